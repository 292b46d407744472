#include "tools/onnxtrain/flags/require.h"

#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain::cli {
namespace {

struct Comparison {
  std::string_view text;
  bool (*met)(double value, double bound);
};
// Longer ones first: ">=" begins with ">".
constexpr Comparison kComparisons[] = {
    {">=", [](double v, double b) { return v >= b; }}, {"<=", [](double v, double b) { return v <= b; }},
    {"==", [](double v, double b) { return v == b; }}, {">", [](double v, double b) { return v > b; }},
    {"<", [](double v, double b) { return v < b; }},
};

std::string Strip(std::string_view text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

bool IsMet(const Requirement& r, double value) {
  for (const Comparison& c : kComparisons) {
    if (c.text == r.comparison) return c.met(value, r.bound);
  }
  return false;
}

}  // namespace

absl::StatusOr<Requirement> ParseRequirement(const std::string& text) {
  const size_t at = text.find_first_of("<>=");
  for (const Comparison& c : kComparisons) {
    if (at == std::string::npos || at == 0 || text.compare(at, c.text.size(), c.text) != 0) continue;
    const auto bound = ParseNumber(Strip(std::string_view(text).substr(at + c.text.size())));
    const std::string metric = Strip(std::string_view(text).substr(0, at));
    if (!bound.ok() || metric.empty()) break;
    return Requirement{metric, std::string(c.text), *bound};
  }
  return Invalid("expected METRIC>=X (or <=, >, <, ==), got '", text, "'");
}

std::vector<std::string> FindUnmetRequirements(const std::vector<Requirement>& requirements, const MetricFn& metric) {
  std::vector<std::string> lines;
  for (const Requirement& r : requirements) {
    const std::optional<double> value = metric(r.metric);
    const std::string wanted = StrCat(", not ", r.comparison, " ", r.bound);
    if (!value.has_value()) {
      lines.push_back(StrCat(r.metric, " has no value", wanted));
    } else if (!IsMet(r, *value)) {
      lines.push_back(StrCat(r.metric, " is ", *value, wanted));
    }
  }
  return lines;
}

}  // namespace onnxtrain::cli
