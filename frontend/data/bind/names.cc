#include "frontend/data/bind/names.h"

#include "absl/strings/ascii.h"

namespace onnxtrain {
namespace {

struct TokenInput {
  const char* part;  // substring of the input's name in lower case
  TokenRole role;
};
constexpr TokenInput kTokenInputs[] = {
    {"token_type_ids", TokenRole::kTypes},     {"segment_ids", TokenRole::kTypes},
    {"attention_mask", TokenRole::kMask},      {"input_mask", TokenRole::kMask},
    {"key_padding_mask", TokenRole::kPadding},  // in PyTorch, true marks padding
    {"padding_mask", TokenRole::kMask},         // in Keras, true marks tokens
    {"position_ids", TokenRole::kPositions},
};

}  // namespace

std::string_view StripExporterAffixes(std::string_view name) {
  const size_t end = name.find_last_not_of("0123456789");
  if (end != name.npos && end + 1 < name.size() && name[end] == ':') name = name.substr(0, end);
  name.remove_prefix(name.rfind('/') + 1);
  constexpr std::string_view kServed = "serving_default_";
  return name.starts_with(kServed) ? name.substr(kServed.size()) : name;
}

std::optional<TokenRole> FindTokenRole(const std::string& input) {
  const std::string lower = absl::AsciiStrToLower(input);
  for (const TokenInput& known : kTokenInputs) {
    if (lower.find(known.part) != std::string::npos) return known.role;
  }
  return std::nullopt;
}

bool NamesSplit(const std::string& column) {
  static const std::set<std::string> kNames = {"split", "set", "subset", "partition", "fold"};
  return kNames.contains(absl::AsciiStrToLower(column));
}

bool NamesRow(const std::string& column) {
  static const std::set<std::string> kNames = {"id", "index", "row", "rownames", "unnamed: 0", "#0", "idx"};
  return kNames.contains(absl::AsciiStrToLower(column));
}

}  // namespace onnxtrain
