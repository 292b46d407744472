// Binary masks that are stored as pictures with the values 0 and 255, while losses expect the classes 0 and 1.
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
// Convert to and from the names in preprocess.json: "classes", "black and white", "greys".
std::string ToString(MaskEncoding encoding);
absl::StatusOr<MaskEncoding> ParseMaskEncoding(const std::string& text);

// Detects the encoding of a column from its first 1,000 non-empty samples. Only columns that are decoded from picture
// files can be kGreys: nine of ten pixels are nearly black or white, and some are nearly white, which class indices are
// not. Returns kClasses at once for columns without height and width and for streams. If a sample cannot be read,
// fails, or with `skip_bad` ignores it.
absl::StatusOr<MaskEncoding> FindMaskEncoding(const Dataset& data, int column, bool skip_bad);

// Returns a view of `source` with class indices in these columns. Read of a kBlackAndWhite column fails, naming the
// sample, on values other than 0 and 255.
std::shared_ptr<const Dataset> WithMaskClasses(std::shared_ptr<const Dataset> source,
                                               const std::map<int, MaskEncoding>& columns);

}  // namespace onnxtrain
