// Labels that are texts, such as the words in a picture or a sound, as the classes of a model that is trained with CTC.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/alphabet.h"

namespace onnxtrain {

// Returns a view of `source` in which a column of text has the classes of each text instead: i64 [longest], with
// `padding` at the end. Reads all texts. Fails at the first one that the alphabet cannot write; with `skip_bad`, Read
// fails for such samples.
absl::StatusOr<std::shared_ptr<const Dataset>> WithTextClasses(std::shared_ptr<const Dataset> source, int column,
                                                               const Alphabet& alphabet, int64_t padding,
                                                               bool skip_bad);

// Returns a view in which samples of a column i64 [n] have `length` ≥ n elements, with `padding` at the end.
std::shared_ptr<const Dataset> WithPadding(std::shared_ptr<const Dataset> source, int column, int64_t length,
                                           int64_t padding);

}  // namespace onnxtrain
