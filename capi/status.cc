#include "capi/status.h"

#include <memory>

#include "absl/strings/cord.h"
#include "frontend/base/strings.h"

namespace onnxtrain::capi {
namespace {

struct StatusText {
  OnnxtrainCode code;
  std::string message;
};

HandleTable<StatusText>& Table() {
  static auto* table = new HandleTable<StatusText>;  // never destroyed: statuses may outlive static objects
  return *table;
}

constexpr uintptr_t kOutOfMemory = 2;  // even, unlike the numbers of NextHandle
constexpr uintptr_t kNull = 0;

uintptr_t ToNumber(const OnnxtrainStatus* status) { return reinterpret_cast<uintptr_t>(status); }
OnnxtrainStatus* ToStatus(uintptr_t number) { return reinterpret_cast<OnnxtrainStatus*>(number); }

constexpr absl::string_view kCallback = "onnxtrain/callback";  // payload that marks callback errors

OnnxtrainCode ToCode(const absl::Status& status) {
  if (status.GetPayload(kCallback).has_value()) return ONNXTRAIN_CALLBACK;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ONNXTRAIN_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return ONNXTRAIN_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound:
      return ONNXTRAIN_NOT_FOUND;
    case absl::StatusCode::kUnimplemented:
      return ONNXTRAIN_UNSUPPORTED;
    case absl::StatusCode::kResourceExhausted:
      return ONNXTRAIN_OUT_OF_MEMORY;
    case absl::StatusCode::kCancelled:
      return ONNXTRAIN_CANCELLED;
    case absl::StatusCode::kAborted:
      return ONNXTRAIN_BUSY;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
      return ONNXTRAIN_UNAVAILABLE;
    default:
      return ONNXTRAIN_INTERNAL;
  }
}

// Drops further lines of messages, which other libraries may add.
std::string FirstLine(std::string_view message) {
  return std::string(message.substr(0, message.find_first_of(std::string_view("\n\r\0", 3))));
}

}  // namespace

OnnxtrainStatus* MakeStatus(const absl::Status& status) noexcept {
  if (status.ok()) return ToStatus(kNull);
  try {
    const absl::string_view message = status.message();
    auto text = std::make_shared<StatusText>(StatusText{ToCode(status), FirstLine({message.data(), message.size()})});
    return ToStatus(Table().Add(std::move(text)));
  } catch (...) {
    return OutOfMemory();
  }
}

absl::Status CallbackFailed(const char* callback, int result) {
  absl::Status status = absl::UnknownError(StrCat("the callback ", callback, " failed: it returned ", result));
  status.SetPayload(kCallback, absl::Cord());
  return status;
}

OnnxtrainStatus* OutOfMemory() noexcept { return ToStatus(kOutOfMemory); }

OnnxtrainCode GetCode(const OnnxtrainStatus* status) noexcept {
  if (ToNumber(status) == kNull) return ONNXTRAIN_OK;
  if (ToNumber(status) == kOutOfMemory) return ONNXTRAIN_OUT_OF_MEMORY;
  const auto text = Table().Find(ToNumber(status));
  return text == nullptr ? ONNXTRAIN_INVALID_ARGUMENT : text->code;
}

const char* GetMessage(const OnnxtrainStatus* status) noexcept {
  if (ToNumber(status) == kNull) return "";
  if (ToNumber(status) == kOutOfMemory) return "out of memory";
  const auto text = Table().Find(ToNumber(status));
  return text == nullptr ? "a status that was released" : text->message.c_str();
}

void Release(OnnxtrainStatus* status) noexcept { Table().Remove(ToNumber(status)); }

}  // namespace onnxtrain::capi
