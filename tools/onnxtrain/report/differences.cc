#include "tools/onnxtrain/report/differences.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "optim/plan/data_setup.h"

namespace onnxtrain::cli {

NamedArrays NamedResults(const GradientResult& result) {
  constexpr char kLoss[] = "loss";
  std::set<std::string> others = {kLoss};
  for (const auto& [name, value] : result.gradients) others.insert(kGradPrefix + name);
  for (const auto& [name, value] : result.input_gradients) others.insert(kGradPrefix + name);
  NamedArrays named = {{kLoss, HostTensor::Scalar(DType::kFloat64, result.loss)}};
  for (const auto& [output, value] : result.outputs) {
    std::string name = output;
    while (others.contains(name) || (name != output && result.outputs.contains(name))) name = StrCat("output:", name);
    named.emplace_back(name, value);
  }
  for (const auto* gradients : {&result.gradients, &result.input_gradients}) {
    for (const auto& [name, value] : *gradients) named.emplace_back(kGradPrefix + name, value);
  }
  return named;
}

Difference CompareTensors(const std::string& name, const HostTensor& a, const HostTensor& b) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Difference d{.name = name, .type = b.type()};
  if (a.size() != b.size()) {
    d.largest = d.relative = kInf;
    return d;
  }
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.At(i), y = b.At(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      if (std::isfinite(y)) norm += y * y;
      continue;
    }
    const double apart = std::isfinite(x) && std::isfinite(y) ? std::abs(x - y) : kInf;
    d.largest = std::max(d.largest, apart);
    difference += apart * apart;
    norm += y * y;
  }
  d.relative = d.largest == kInf ? kInf : norm > 0 ? std::sqrt(difference / norm) : d.largest;
  return d;
}

namespace {

double GradientNorm(const std::map<std::string, HostTensor>& values) {
  double total = 0;
  for (const auto& [name, value] : values) {
    if (!name.starts_with(kGradPrefix)) continue;
    for (int64_t i = 0; i < value.size(); ++i) total += value.At(i) * value.At(i);
  }
  return std::sqrt(total);
}

// Lowers the relative difference of a gradient smaller than a thousandth of the norm of all gradients.
void MeasureAgainstAll(double norm, Difference* d) {
  if (!d->name.starts_with(kGradPrefix) || !std::isfinite(d->relative) || norm == 0) return;
  d->relative = std::min(d->relative, d->largest * std::sqrt(static_cast<double>(d->type.elements())) / (1e-3 * norm));
}

}  // namespace

std::vector<Difference> CompareTensorMaps(const std::map<std::string, HostTensor>& a,
                                          const std::map<std::string, HostTensor>& b) {
  const double norm = GradientNorm(b);
  std::vector<Difference> all;
  for (const auto& [name, value] : a) {
    const auto it = b.find(name);
    if (it == b.end()) continue;
    all.push_back(CompareTensors(name, value, it->second));
    MeasureAgainstAll(norm, &all.back());
  }
  return all;
}

void JudgeDifferences(const std::vector<std::vector<Difference>>& moves, std::vector<Difference>* differences) {
  std::map<std::string, double> nudged;
  for (const auto& all : moves) {
    for (const Difference& d : all) nudged[d.name] = std::max(nudged[d.name], d.relative);
  }
  for (Difference& d : *differences) {
    d.nudged = nudged[d.name];
    d.allowed =
        d.nudged > kJudgeable ? std::numeric_limits<double>::infinity() : std::max(kRounding, kSpread * d.nudged);
  }
  const auto excess = [](const Difference& d) { return d.judged() ? d.relative / d.allowed : -1; };
  std::ranges::stable_sort(*differences, std::ranges::greater(), excess);
}

HostTensor Nudge(const HostTensor& tensor, uint64_t seed, bool keep_whole) {
  if (!IsFloat(tensor.dtype())) return tensor;
  std::mt19937_64 random(seed);
  HostTensor moved(tensor.type());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i), unit = static_cast<double>(random() >> 11) * 0x1p-52 - 1;  // in [-1, 1)
    moved.Set(i, keep_whole && x == std::trunc(x) ? x : x * (1 + kNudgeUlps * 0x1p-23 * unit));
  }
  return moved;
}

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
