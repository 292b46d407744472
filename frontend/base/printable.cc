#include "frontend/base/printable.h"

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

constexpr size_t kLongestName = 120;
constexpr size_t kLongestMessage = 4000;

std::string Sanitize(std::string_view text, size_t longest) {
  std::string out(text.substr(0, longest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  if (text.size() > longest) out += "…";
  return out;
}

}  // namespace

std::string Printable(std::string_view name) { return Sanitize(name, kLongestName); }

std::string PrintableLine(std::string_view message) { return Sanitize(message, kLongestMessage); }

absl::Status OneLine(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), ToAbsl(PrintableLine(ToStd(status.message()))));
}

}  // namespace onnxtrain
