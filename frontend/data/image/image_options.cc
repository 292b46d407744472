#include "frontend/data/image/image_options.h"

#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

struct Part {
  const char* name;
  double Augmentation::*value;
  double otherwise;  // default if no number is given; 0: a number is required
  double max;
};
constexpr Part kParts[] = {
    {"flip", &Augmentation::flip, 0.5, 1},     {"vflip", &Augmentation::vertical_flip, 0.5, 1},
    {"rotate", &Augmentation::rotate, 0, 180}, {"color", &Augmentation::color, 0.4, 1},
    {"erase", &Augmentation::erase, 0.25, 1},  {"mixup", &Augmentation::mixup, 0.2, 100},
    {"cutmix", &Augmentation::cutmix, 1, 100},
};
constexpr double kSmallestCrop = 0.08;
constexpr int kOperations = 2, kMaxOperations = 16, kMaxMagnitude = 30;

absl::Status ParseCrop(const std::string& text, Augmentation* a) {
  a->crop_min = kSmallestCrop;
  a->crop_max = 1;
  if (text.empty()) return absl::OkStatus();
  const size_t dash = text.find('-');
  const auto low = ParseNumber(text.substr(0, dash));
  const auto high = dash == std::string::npos ? absl::StatusOr<double>(1.0) : ParseNumber(text.substr(dash + 1));
  if (!low.ok() || !high.ok() || !(*low > 0) || !(*low <= *high) || !(*high <= 1))
    return Invalid("expected crop:MIN-MAX, shares of the area above 0 and up to 1");
  a->crop_min = *low;
  a->crop_max = *high;
  return absl::OkStatus();
}

absl::Status ParseRandAugment(const std::string& text, Augmentation* a) {
  a->randaugment = kOperations;
  if (text.empty()) return absl::OkStatus();
  const size_t slash = text.find('/');
  const auto n = ParseInt(text.substr(0, slash));
  const auto m = slash == std::string::npos ? absl::StatusOr<int64_t>(a->magnitude) : ParseInt(text.substr(slash + 1));
  if (!n.ok() || !m.ok() || *n < 1 || *n > kMaxOperations || *m < 0 || *m > kMaxMagnitude)
    return Invalid("expected randaugment:N/M, 1 to ", kMaxOperations, " operations of magnitude 0 to ", kMaxMagnitude);
  a->randaugment = static_cast<int>(*n);
  a->magnitude = static_cast<int>(*m);
  return absl::OkStatus();
}

absl::Status ParsePart(const std::string& text, Augmentation* a) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon), value = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (colon != std::string::npos && value.empty()) return Invalid("a value is missing behind ':'");
  if (name == "crop") return ParseCrop(value, a);
  if (name == "randaugment") return ParseRandAugment(value, a);
  for (const Part& part : kParts) {
    if (name != part.name) continue;
    const auto x = value.empty() ? absl::StatusOr<double>(part.otherwise) : ParseNumber(value);
    if (!x.ok() || !(*x > 0) || !(*x <= part.max))
      return Invalid("expected ", name, ":X with X above 0 and up to ", part.max);
    a->*part.value = *x;
    return absl::OkStatus();
  }
  return Invalid("there are crop, flip, vflip, rotate, color, randaugment, erase, mixup and cutmix");
}

}  // namespace

absl::StatusOr<Augmentation> ParseAugmentation(std::span<const std::string> parts) {
  Augmentation a;
  for (const std::string& part : parts) RETURN_IF_ERROR(Annotate(ParsePart(part, &a), StrCat("'", part, "': ")));
  return a;
}

}  // namespace onnxtrain
