// Loads shared libraries at run time: backends and plugins.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/plugin/onnxtrain_plugin.h"

namespace onnxtrain {

// Receives the message of one call of a plugin and converts its code to a Status.
class PluginMessage {
 public:
  OnnxtrainMessage* get() { return &message_; }
  // Returns the first line of the message.
  std::string_view text();
  // Returns the status for a code of OnnxtrainPluginCode. `otherwise` is its message if the plugin wrote none.
  absl::Status ToStatus(int code, std::string_view otherwise);

 private:
  std::array<char, 1024> text_ = {};
  OnnxtrainMessage message_ = {.text = text_.data(), .size = text_.size()};
};

// Opens a library with RTLD_LOCAL, never closes it, and returns the address of a symbol, or null if the library lacks
// it. Fails with kNotFound if there is no such file and kUnavailable if it cannot be loaded; the message starts with
// `what`.
absl::StatusOr<void*> FindSymbol(const std::string& path, const char* symbol, const std::string& what);

// Return the table of a plugin's operators or backend, or null if it exports none. Fail if the library cannot be loaded
// or its table has another version. Messages start with the path.
absl::StatusOr<const OnnxtrainOperatorsApi*> LoadOperatorsApi(const std::string& path);
absl::StatusOr<const OnnxtrainBackendApi*> LoadBackendApi(const std::string& path);

}  // namespace onnxtrain
