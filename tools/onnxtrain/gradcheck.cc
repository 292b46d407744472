#include "tools/onnxtrain/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "tools/onnxtrain/common.h"

namespace onnxtrain::cli {
namespace {

constexpr double kSteps[] = {1e-5, 1e-6, 1e-7};

class Checker {
 public:
  Checker(Session& session, const Window& window) : session_(session), window_(window) {}

  absl::StatusOr<GradcheckRow> Check(const std::string& name, const HostTensor& value, const HostTensor& gradient,
                                     double scale, int64_t coordinates, uint64_t seed);

 private:
  absl::StatusOr<double> LossWith(const std::string& name, const HostTensor& value, int64_t at, double element);

  Session& session_;
  const Window& window_;
};

absl::StatusOr<double> Checker::LossWith(const std::string& name, const HostTensor& value, int64_t at, double element) {
  HostTensor changed = value.Clone();
  changed.Set(at, element);
  RETURN_IF_ERROR(session_.SetWeights({{name, changed}}));
  ASSIGN_OR_RETURN(const GradientResult result, session_.Gradients(window_));
  return result.loss;
}

absl::StatusOr<GradcheckRow> Checker::Check(const std::string& name, const HostTensor& value, const HostTensor& gradient,
                                            double scale, int64_t coordinates, uint64_t seed) {
  GradcheckRow row{.parameter = name, .worst = -1};
  std::mt19937_64 random(seed ^ std::hash<std::string>()(name));
  for (int64_t k = 0; k < std::min(coordinates, value.size()); ++k) {
    const int64_t at = coordinates >= value.size() ? k : static_cast<int64_t>(random() % value.size());
    const double x = value.At(at), analytic = gradient.At(at);
    double best = INFINITY, numeric = 0;
    for (double step : kSteps) {
      const double h = step * std::max(1.0, std::abs(x));
      ASSIGN_OR_RETURN(const double above, LossWith(name, value, at, x + h));
      ASSIGN_OR_RETURN(const double below, LossWith(name, value, at, x - h));
      const double slope = (above - below) / (2 * h);
      const double error = std::abs(slope - analytic) / std::max({std::abs(slope), std::abs(analytic), scale});
      if (error < best) best = error, numeric = slope;
      if (best < 1e-7) break;
    }
    ++row.checked;
    if (!(best <= row.worst)) row.worst = best, row.at = at, row.analytic = analytic, row.numeric = numeric;
  }
  RETURN_IF_ERROR(session_.SetWeights({{name, value}}));
  return row;
}

// The largest gradient of all: what is tiny against it is rounding.
double LargestOf(const std::map<std::string, HostTensor>& gradients) {
  double most = 0;
  for (const auto& [name, g] : gradients) {
    for (int64_t i = 0; i < g.size(); ++i) most = std::max(most, std::abs(g.At(i)));
  }
  return most;
}

void ToDouble(TrainData* data) {
  for (FeedSpec& spec : data->specs) {
    if (IsFloat(spec.sample.dtype)) spec.sample.dtype = DType::kFloat64;
  }
}

}  // namespace

absl::StatusOr<GradcheckResult> Gradcheck(std::shared_ptr<const OnnxModel> model, Backend& backend, SessionOptions options,
                                          TrainData data, int64_t coordinates) {
  options.import.float_type = DType::kFloat64;
  ToDouble(&data);
  const int64_t samples = options.micro_batch;
  const uint64_t seed = options.seed;
  ASSIGN_OR_RETURN(const auto session, Session::Create(std::move(model), &backend, std::move(options)));
  ASSIGN_OR_RETURN(const Window window, ReadWindow(data, samples));
  ASSIGN_OR_RETURN(const GradientResult analytic, session->Gradients(window));
  ASSIGN_OR_RETURN(const auto weights, session->Weights());
  const double scale = std::max(1e-6 * LargestOf(analytic.gradients), 1e-12);
  GradcheckResult result;
  for (const auto& [name, gradient] : analytic.gradients) {
    ASSIGN_OR_RETURN(GradcheckRow row, Checker(*session, window).Check(name, weights.at(name), gradient, scale, coordinates, seed));
    result.rows.push_back(std::move(row));
  }
  std::stable_sort(result.rows.begin(), result.rows.end(), [](const auto& a, const auto& b) { return a.worst > b.worst; });
  return result;
}

std::string Page(const GradcheckResult& result) {
  std::string text = StrCat("gradients and central differences in float64: ", result.passed() ? "agree" : "DISAGREE", " (relative error up to ",
                            GradcheckResult::kTolerance, ")\n");
  for (const GradcheckRow& r : result.rows) {
    text += absl::StrFormat("  %9.2e relative  %s[%d]: %.9g, by differences %.9g (%d checked)\n", r.worst, r.parameter, r.at, r.analytic, r.numeric, r.checked);
  }
  return text;
}

}  // namespace onnxtrain::cli
