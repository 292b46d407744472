#include "tools/onnxtrain/report/profile_tables.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"

namespace onnxtrain::cli {
namespace {

constexpr size_t kMostOperators = 15, kMostNodes = 10, kMostTypes = 60;

// "12.3", or "-" where the rate is not known.
std::string Rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? absl::StrFormat("%.1f", amount / seconds / 1e9) : "-";
}

std::string Shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "…";
}

std::string OperatorRows(const std::vector<OperatorCost>& costs, int64_t updates, double total) {
  std::string text =
      absl::StrFormat("  %-28s %6s %10s %10s %9s %9s\n", "operator", "share", "calls", "median ms", "GFLOP/s", "GB/s");
  for (size_t i = 0; i < std::min(costs.size(), kMostOperators); ++i) {
    const OperatorCost& c = costs[i];
    absl::StrAppendFormat(&text, "  %-28s %5.1f%% %10.6g %10.3f %9s %9s\n", c.op, 100 * c.seconds / total,
                          static_cast<double>(c.calls) / static_cast<double>(updates), 1e3 * c.median_seconds,
                          Rate(c.flops, c.seconds), Rate(c.bytes, c.seconds));
  }
  if (costs.size() > kMostOperators) StrAppend(&text, "  … and ", costs.size() - kMostOperators, " more\n");
  return text;
}

std::string NodeRows(const std::vector<NodeCost>& costs, double total) {
  std::string text = absl::StrFormat("  %6s %9s %9s  %s\n", "share", "GFLOP/s", "GB/s", "node");
  for (size_t i = 0; i < std::min(costs.size(), kMostNodes); ++i) {
    const NodeCost& c = costs[i];
    absl::StrAppendFormat(&text, "  %5.1f%% %9s %9s  %s '%s' %s\n", 100 * c.seconds / total, Rate(c.flops, c.seconds),
                          Rate(c.bytes, c.seconds), c.op, c.source, Shortened(c.types, kMostTypes));
  }
  return text;
}

}  // namespace

std::string ProfileTables(const Trace& trace) {
  const std::vector<OperatorCost> operators = trace.OperatorCosts();
  const int64_t updates = trace.recorded_updates();
  double total = 0;
  for (const OperatorCost& cost : operators) total += cost.seconds;
  if (operators.empty() || total <= 0) return "profile    no update was recorded";
  std::string text = absl::StrFormat("profile    %.3f ms of operators an update (%d recorded, calls an update)\n",
                                     1e3 * total, updates);
  text += OperatorRows(operators, updates, total) + NodeRows(trace.NodeCosts(), total);
  text.pop_back();
  return text;
}

}  // namespace onnxtrain::cli
