// Reads lists of a YAML file, such as the characters in inference.yml of PP-OCR.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the items of the first block list ("- item" on a line each) with this key: plain, 'quoted' or "quoted" with
// escapes. Fails if there is none, or if an item is not on one line.
absl::StatusOr<std::vector<std::string>> ListInYaml(std::string_view text, std::string_view key);

}  // namespace onnxtrain
