// Normalizers of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {

using NormalizerPtr = std::unique_ptr<const Normalizer>;

struct BertOptions {
  bool clean_text = true, chinese = true, strip_accents = true, lowercase = true;
};
// Removes control characters, spaces ideographs, strips accents (NFD without Mn), lower-cases: in that order.
NormalizerPtr MakeBertNormalizer(const BertOptions& options);
NormalizerPtr MakeFormNormalizer(NormalForm form);
NormalizerPtr MakeLowercase();
NormalizerPtr MakeStripAccents();  // removes marks, without decomposing
NormalizerPtr MakeStrip(bool left, bool right);
NormalizerPtr MakePrepend(std::string prefix);  // to texts that are not empty
NormalizerPtr MakeReplace(std::string text, std::string with);
// Fails on a broken expression.
absl::StatusOr<NormalizerPtr> MakeRegexReplace(const std::string& expression, std::string with);
NormalizerPtr MakeNormalizerSequence(std::vector<NormalizerPtr> steps);

}  // namespace onnxtrain
