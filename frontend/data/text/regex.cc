#include "frontend/data/text/regex.h"

#include <unicode/regex.h>
#include <unicode/utext.h>

#include <new>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

class IcuRegex : public Regex {
 public:
  explicit IcuRegex(std::unique_ptr<icu::RegexPattern> pattern) : pattern_(std::move(pattern)) {}

  void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> visit) const override {
    UErrorCode error = U_ZERO_ERROR;
    UText utext = UTEXT_INITIALIZER;
    utext_openUTF8(&utext, text.data(), static_cast<int64_t>(text.size()), &error);
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(error));
    if (U_SUCCESS(error)) matcher->reset(&utext);
    if (U_SUCCESS(error)) matcher->setStackLimit(0, error);  // none
    while (U_SUCCESS(error) && matcher->find(error)) {
      const int64_t begin = matcher->start64(error), end = matcher->end64(error);
      if (begin < end) visit(static_cast<size_t>(begin), static_cast<size_t>(end));
    }
    utext_close(&utext);
    if (U_FAILURE(error)) throw std::bad_alloc();
  }

 private:
  std::unique_ptr<icu::RegexPattern> pattern_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Regex>> Regex::Compile(const std::string& expression) {
  UErrorCode error = U_ZERO_ERROR;
  UParseError where;
  std::unique_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(expression), 0, where, error));
  if (U_FAILURE(error)) {
    return Invalid("the expression '", expression, "' cannot be read: ", u_errorName(error), " at character ",
                   where.offset);
  }
  return std::make_shared<IcuRegex>(std::move(pattern));
}

}  // namespace onnxtrain
