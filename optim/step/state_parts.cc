#include "optim/step/state_parts.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"

namespace onnxtrain {

std::string PartName(std::string_view tensor, const ElementRuns& runs) {
  return StrCat(tensor, "@", runs.begin, ":", runs.length, ":", runs.stride);
}

absl::StatusOr<StatePart> ParsePartName(std::string_view name) {
  const size_t at = name.rfind('@');
  const auto invalid = [&] { return Invalid("'", name, "' names no part of a tensor"); };
  if (at == name.npos) return invalid();
  const std::vector<std::string> texts = absl::StrSplit(ToAbsl(name.substr(at + 1)), ':');
  std::array<int64_t, 3> numbers{};
  if (texts.size() != numbers.size()) return invalid();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!absl::SimpleAtoi(texts[i], &numbers[i]) || numbers[i] < 0) return invalid();
  }
  return StatePart{std::string(name.substr(0, at)), {numbers[0], numbers[1], numbers[2]}};
}

absl::Status PutRuns(const HostTensor& part, const ElementRuns& runs, HostTensor* whole) {
  const int64_t elements = part.size(), count = runs.length > 0 ? elements / runs.length : 0;
  const bool fits = part.dtype() == whole->dtype() && count > 0 && count * runs.length == elements &&
                    runs.length <= runs.stride && runs.begin <= whole->size() - runs.length &&
                    count - 1 <= (whole->size() - runs.length - runs.begin) / runs.stride;
  if (!fits) return Invalid("does not lie in its tensor ", ToString(whole->type()));
  const size_t element = DTypeSize(part.dtype()), bytes = runs.length * element;
  std::span<const std::byte> from = part.bytes();
  for (int64_t i = 0; i < count; ++i, from = from.subspan(bytes))
    std::ranges::copy(from.first(bytes),
                      whole->mutable_bytes().subspan((runs.begin + i * runs.stride) * element).data());
  return absl::OkStatus();
}

}  // namespace onnxtrain
