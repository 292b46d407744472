#include "frontend/plugin/plugin_message.h"

#include "frontend/base/printable.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::StatusCode ToStatusCode(int code) {
  switch (code) {
    case ONNXTRAIN_PLUGIN_INVALID:
      return absl::StatusCode::kInvalidArgument;
    case ONNXTRAIN_PLUGIN_UNSUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case ONNXTRAIN_PLUGIN_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case ONNXTRAIN_PLUGIN_UNAVAILABLE:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::string_view PluginMessage::text() {
  text_.back() = 0;
  const std::string_view all = text_.data();
  return all.substr(0, all.find('\n'));
}

absl::Status PluginMessage::ToStatus(int code, std::string_view otherwise) {
  if (code == ONNXTRAIN_PLUGIN_OK) return absl::OkStatus();
  const std::string_view written = text();
  return {ToStatusCode(code), written.empty() ? StrCat(otherwise, " (code ", code, ")") : PrintableLine(written)};
}

}  // namespace onnxtrain
