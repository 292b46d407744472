#include "frontend/data/sources/json_scan.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

// Moves over the values of a JSON text. Each Skip returns false at what is none.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  std::optional<std::vector<JsonMember>> ListMembers() {
    std::vector<JsonMember> members;
    SkipBlanks();
    if (!SkipItems('}', 0, &members)) return std::nullopt;
    SkipBlanks();
    return at_ == text_.size() ? std::optional(std::move(members)) : std::nullopt;
  }

 private:
  bool Accept(char c) { return at_ < text_.size() && text_[at_] == c && (++at_, true); }
  void SkipBlanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  // Skips the items or members between brackets, the last of which is `close`.
  bool SkipItems(char close, int depth, std::vector<JsonMember>* members) {
    if (!Accept(close == '}' ? '{' : '[') || depth == kDeepestJson) return false;
    SkipBlanks();
    if (Accept(close)) return true;
    do {
      SkipBlanks();
      JsonMember member;
      if (close == '}' && !SkipKey(&member.key)) return false;
      const size_t begin = at_;
      if (!SkipValue(depth + 1)) return false;
      member.value = text_.substr(begin, at_ - begin);
      if (members != nullptr) members->push_back(member);
      SkipBlanks();
    } while (Accept(','));
    return Accept(close);
  }

  // Skips a key, the colon and the blanks around it.
  bool SkipKey(std::string_view* key) {
    const size_t begin = at_ + 1;
    if (!SkipString()) return false;
    *key = text_.substr(begin, at_ - 1 - begin);
    if (key->find('\\') != key->npos) return false;
    SkipBlanks();
    if (!Accept(':')) return false;
    SkipBlanks();
    return true;
  }

  bool SkipValue(int depth) {
    const char first = at_ < text_.size() ? text_[at_] : ' ';
    if (first == '"') return SkipString();
    if (first == '{' || first == '[') return SkipItems(first == '{' ? '}' : ']', depth, nullptr);
    const size_t begin = at_;  // a number, true, false or null
    while (at_ < text_.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-' ||
                                  text_[at_] == '+' || text_[at_] == '.'))
      ++at_;
    return OrderedJson::accept(text_.substr(begin, at_ - begin));
  }

  bool SkipString() {
    if (!Accept('"')) return false;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < ' ' || (c == '\\' && !SkipEscape())) return false;
    }
    return false;
  }

  // Skips an escape without its backslash.
  bool SkipEscape() {
    if (at_ == text_.size()) return false;
    const char kind = text_[at_++];
    if (kind != 'u') return std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos;
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    at_ += digits.size();
    return digits.size() == 4 && std::ranges::all_of(digits, absl::ascii_isxdigit) &&
           absl::SimpleHexAtoi(ToAbsl(digits), &code) && (code < 0xd800 || code > 0xdfff);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<JsonMember>> ScanJsonObject(std::string_view text) {
  if (FindInvalidUtf8(text) != text.npos) return std::nullopt;
  return JsonScanner(text).ListMembers();
}

}  // namespace onnxtrain
