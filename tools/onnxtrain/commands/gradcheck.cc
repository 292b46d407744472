#include "tools/onnxtrain/commands/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/plan/data_setup.h"

namespace onnxtrain::cli {
namespace {

// Several step sizes: among thousands of units with kinks, only the smallest step crosses none.
constexpr double kSteps[] = {1e-5, 1e-6, 1e-7, 1e-8};

class Checker {
 public:
  Checker(Session& session, const GlobalBatch& global_batch) : session_(session), global_batch_(global_batch) {}

  absl::StatusOr<GradcheckRow> Check(const std::string& name, const HostTensor& value, const HostTensor& gradient,
                                     double scale, int64_t coordinates, uint64_t seed);

 private:
  struct Slope {
    double numeric = 0, error = INFINITY;
  };
  absl::StatusOr<Slope> SlopeAt(const std::string& name, const HostTensor& value, int64_t at, double analytic,
                                double scale);
  absl::StatusOr<double> LossWith(const std::string& name, const HostTensor& value, int64_t at, double element);

  Session& session_;
  const GlobalBatch& global_batch_;
};

absl::StatusOr<double> Checker::LossWith(const std::string& name, const HostTensor& value, int64_t at, double element) {
  HostTensor changed = value.Clone();
  changed.Set(at, element);
  RETURN_IF_ERROR(session_.SetWeights({{name, changed}}));
  return session_.TrainingLoss(global_batch_);
}

// Returns the slope of the step size that agrees best: larger steps may cross a kink, smaller ones drown in rounding.
absl::StatusOr<Checker::Slope> Checker::SlopeAt(const std::string& name, const HostTensor& value, int64_t at,
                                                double analytic, double scale) {
  Slope best;
  const double x = value.At(at);
  for (double step : kSteps) {
    const double h = step * std::max(1.0, std::abs(x));
    // Rounding hides a flat slope at small steps.
    if (step < 1e-6 && 2e-15 / h > 0.5 * GradcheckResult::kTolerance * std::abs(analytic)) break;
    ASSIGN_OR_RETURN(const double above, LossWith(name, value, at, x + h));
    ASSIGN_OR_RETURN(const double below, LossWith(name, value, at, x - h));
    const double slope = (above - below) / (2 * h);
    // The loss is accurate to a few units in the last place, like the logits.
    const double rounding = 1e-15 * (1 + std::abs(above)) / h;
    const double apart = std::max(0.0, std::abs(slope - analytic) - rounding);
    const double error = apart / std::max({std::abs(slope), std::abs(analytic), scale});
    if (error < best.error) best = {slope, error};
    if (best.error < 1e-7) break;
  }
  return best;
}

// Chooses the coordinate of the steepest slope, then random ones: most slopes of a trained model are nearly zero.
std::vector<int64_t> ChooseCoordinates(const std::string& name, const HostTensor& gradient, int64_t count,
                                       uint64_t seed) {
  std::vector<int64_t> chosen = {0};
  for (int64_t i = 1; i < gradient.size(); ++i) {
    if (std::abs(gradient.At(i)) > std::abs(gradient.At(chosen[0]))) chosen[0] = i;
  }
  std::mt19937_64 random(seed ^ std::hash<std::string>()(name));
  while (static_cast<int64_t>(chosen.size()) < std::min(count, gradient.size())) {
    chosen.push_back(static_cast<int64_t>(random() % gradient.size()));
  }
  return chosen;
}

absl::StatusOr<GradcheckRow> Checker::Check(const std::string& name, const HostTensor& value,
                                            const HostTensor& gradient, double scale, int64_t coordinates,
                                            uint64_t seed) {
  GradcheckRow row{.parameter = name, .worst = -1};
  for (int64_t at : ChooseCoordinates(name, gradient, coordinates, seed)) {
    const double analytic = gradient.At(at);
    ASSIGN_OR_RETURN(const Slope slope, SlopeAt(name, value, at, analytic, scale));
    ++row.checked;
    if (!(slope.error <= row.worst))
      row.worst = slope.error, row.at = at, row.analytic = analytic, row.numeric = slope.numeric;
  }
  RETURN_IF_ERROR(session_.SetWeights({{name, value}}));
  return row;
}

// Returns the largest gradient; what is tiny relative to it is rounding.
double LargestGradient(const std::map<std::string, HostTensor>& gradients) {
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

absl::StatusOr<GradcheckResult> Gradcheck(std::shared_ptr<PreparedModels> models, Backend& backend,
                                          SessionOptions options, TrainData data, int64_t coordinates) {
  options.import.float_type = DType::kFloat64;
  ToDouble(&data);
  const int64_t samples = options.micro_batch;
  const uint64_t seed = options.seed;
  ASSIGN_OR_RETURN(const auto session, Session::Create(std::move(models), &backend, std::move(options)));
  ASSIGN_OR_RETURN(const GlobalBatch global_batch, ReadGlobalBatch(data, samples));
  ASSIGN_OR_RETURN(const GradientResult analytic, session->Gradients(global_batch, GradientsOf::kWeights));
  ASSIGN_OR_RETURN(const auto weights, session->Weights());
  const double scale = std::max(1e-6 * LargestGradient(analytic.gradients), 1e-12);
  GradcheckResult result;
  for (const auto& [name, gradient] : analytic.gradients) {
    ASSIGN_OR_RETURN(GradcheckRow row,
                     Checker(*session, global_batch).Check(name, weights.at(name), gradient, scale, coordinates, seed));
    result.rows.push_back(std::move(row));
  }
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const auto& a, const auto& b) { return a.worst > b.worst; });
  return result;
}

std::string Page(const GradcheckResult& result) {
  std::string text = StrCat("gradients and central differences in float64: ", result.passed() ? "agree" : "DISAGREE",
                            " (relative error up to ", GradcheckResult::kTolerance, ")\n");
  for (const GradcheckRow& r : result.rows) {
    text += absl::StrFormat("  %9.2e relative  %s[%d]: %.9g, by differences %.9g (%d checked)\n", r.worst, r.parameter,
                            r.at, r.analytic, r.numeric, r.checked);
  }
  return text;
}

}  // namespace onnxtrain::cli
