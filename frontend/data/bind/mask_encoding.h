// Masks of two classes that are drawn in black and white, 0 and 255, where losses take 0 and 1.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

enum class MaskEncoding : uint8_t {
  kClasses,        // the values are the classes
  kBlackAndWhite,  // 0 and 255 are the classes 0 and 1
  kGreys,          // 128 to 255 are class 1: JPEG and smooth edges make greys of black and white
};
// "classes", "black and white", "greys": as preprocess.json names them.
std::string ToString(MaskEncoding encoding);
absl::StatusOr<MaskEncoding> ParseMaskEncoding(const std::string& text);

// Finds out what the values of a column are, by its first 1,000 samples that are not empty. Greys are looked for in
// files of pictures alone: nine of ten pixels are nearly black or white, and some are nearly white, which no numbers of
// classes are. Returns kClasses at once for columns without height and width and for streams. Fails where a sample
// cannot be read, or with `skip_bad` passes it over.
absl::StatusOr<MaskEncoding> FindMaskEncoding(const Dataset& data, int column, bool skip_bad);

// `source` with 0 and 1 in these columns. Read fails, naming the sample, on another value than 0 and 255 where there
// are no greys.
std::shared_ptr<const Dataset> WithMaskClasses(std::shared_ptr<const Dataset> source,
                                               const std::map<int, MaskEncoding>& columns);

}  // namespace onnxtrain
