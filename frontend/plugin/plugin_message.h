// Codes and texts of a library as statuses.
#pragma once

#include <array>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/plugin/onnxtrain_plugin.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
