// Shared libraries that are loaded while the program runs: backends, and what other parties provide.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/plugin/onnxtrain_plugin.h"

namespace onnxtrain {

// Codes and texts of a library as statuses.

// Memory for the text of one call.
class PluginMessage {
 public:
  OnnxtrainMessage* get() { return &message_; }
  // The first line of the text.
  std::string_view text();
  // The status of a code: OK for 0. `otherwise` is the message where the library wrote none.
  absl::Status ToStatus(int code, std::string_view otherwise);

 private:
  std::array<char, 1024> text_ = {};
  OnnxtrainMessage message_ = {.text = text_.data(), .size = text_.size()};
};

// Opens a library for good, its symbols hidden from others, and returns the address of a symbol, or null where it has
// none. Fails where there is no such file (kNotFound) or it cannot be loaded (kUnavailable); the message starts with
// `what`.
absl::StatusOr<void*> FindSymbol(const std::string& path, const char* symbol, const std::string& what);

// Returns the table of operators or of the backend of a library of another party; null where it exports none. Fails
// where the library cannot be loaded or its table is of another version. Messages start with the path.
absl::StatusOr<const OnnxtrainOperatorsApi*> LoadOperatorsApi(const std::string& path);
absl::StatusOr<const OnnxtrainBackendApi*> LoadBackendApi(const std::string& path);

}  // namespace onnxtrain
