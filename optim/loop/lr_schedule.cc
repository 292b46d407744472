#include "optim/loop/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Sources: cosine restarts: Loshchilov & Hutter, SGDR (2017). One cycle: Smith & Topin, Super-Convergence (2019).
// Inverse square root: Vaswani et al., Attention Is All You Need (2017). Warm-up, stable, decay: Hu et al., MiniCPM
// (2024); Hägele et al. (2024).

constexpr double kInf = std::numeric_limits<double>::infinity();

// Each schedule is one template over numbers (double) and graph values (Val).
double Min(double a, double b) { return std::min(a, b); }
double Max(double a, double b) { return std::max(a, b); }
double Cos(double x) { return std::cos(x); }
Val Cos(Val x) { return x.b().Op("Cos", {x}); }
double Root(double x) { return std::sqrt(x); }
Val Root(Val x) { return Sqrt(x); }
double Floor(double x) { return std::floor(x); }
Val Floor(Val x) { return x.b().Op("Floor", {x}); }
double Pow(double base, double x) { return std::pow(base, x); }
Val Pow(double base, Val x) { return Pow(x.b().Scalar(x.dtype(), base), x); }
double IfBelow(double x, double limit, double a, double b) { return x < limit ? a : b; }
Val IfBelow(Val x, double limit, Val a, Val b) { return Where(Less(x, x.b().Scalar(x.dtype(), limit)), a, b); }

double Option(const ScheduleSpec& spec, std::string_view name, double otherwise) {
  return OptionOr(spec.options, name, otherwise);
}

// Falls from 1 at p = 0 to 0 at p = 1. Computes (1 + cos πp)/2 as a square, which is exact near its end.
template <typename T>
T HalfWave(T p) {
  const T c = Cos(p * (std::numbers::pi / 2));
  return c * c;
}

template <typename T>
T Share(double rest, T u) {
  return Min(u / rest, 1);
}

template <typename T>
T Between(double min, T left) {
  return left * (1 - min) + min;
}

template <typename T>
T Constant(const ScheduleSpec&, double, double, T u) {
  return u * 0.0 + 1.0;
}

template <typename T>
T Linear(const ScheduleSpec&, double min, double rest, T u) {
  return Between(min, 1.0 - Share(rest, u));
}

template <typename T>
T Cosine(const ScheduleSpec&, double min, double rest, T u) {
  return Between(min, HalfWave(Share(rest, u)));
}

// The starts of the cycles are constants of the graph.
template <typename T>
T CosineRestarts(const ScheduleSpec& spec, double min, double rest, T u) {
  const double period = Option(spec, "period", std::max(1.0, std::floor(rest / 2))), growth = Option(spec, "growth", 1);
  if (growth == 1) return Between(min, HalfWave(u / period - Floor(u / period)));
  T share = u / period;
  double begin = period, length = period * growth;
  for (; begin < rest; begin += length, length *= growth) share = IfBelow(u, begin, share, (u - begin) / length);
  return Between(min, HalfWave(Min(share, 1)));
}

template <typename T>
T Polynomial(const ScheduleSpec& spec, double min, double rest, T u) {
  return Between(min, Pow(1.0 - Share(rest, u), Option(spec, "power", 1)));
}

template <typename T>
T Step(const ScheduleSpec& spec, double min, double rest, T u) {
  const double size = Option(spec, "size", std::max(1.0, std::floor(rest / 3)));
  return Max(Pow(Option(spec, "gamma", 0.1), Floor(u / size)), min);
}

template <typename T>
T MultiStep(const ScheduleSpec& spec, double min, double, T u) {
  const double gamma = Option(spec, "gamma", 0.1);
  T factor = u * 0.0 + 1.0;
  const auto at = spec.options.find("at");
  if (at == spec.options.end()) return factor;
  for (double milestone : at->second) factor = IfBelow(u, milestone, factor, factor * gamma);
  return Max(factor, min);
}

template <typename T>
T Exponential(const ScheduleSpec& spec, double min, double rest, T u) {
  const double to_the_end = std::pow(min > 0 ? min : 0.01, 1 / rest);
  return Max(Pow(Option(spec, "gamma", to_the_end), u), min);
}

template <typename T>
T InverseSqrt(const ScheduleSpec& spec, double min, double, T u) {
  const double scale = Option(spec, "scale", spec.warmup >= 1 ? spec.warmup : 10000);
  return Max(1.0 / Root(u / scale + 1.0), min);
}

// Combines two half waves: up during the first `pct` of the run, down to its end; the last update has the last rate.
template <typename T>
T OneCycle(const ScheduleSpec& spec, double, double rest, T u) {
  const double first = 1 / Option(spec, "div", 25), last = first / Option(spec, "final_div", 1e4);
  const double top = std::max(1e-9, Option(spec, "pct", 0.3) * rest - 1), end = std::max(top + 1e-9, rest - 1);
  const T up = Between(first, 1.0 - HalfWave(Min(u / top, 1)));
  const T down = Between(last, HalfWave(Min((Max(u, top) - top) / (end - top), 1)));
  return IfBelow(u, top, up, down);
}

// Returns the remaining share of the decay at progress q.
template <typename T>
T Fall(std::string_view name, T q) {
  if (name == "wsd_cosine") return HalfWave(q);
  return name == "wsd_sqrt" ? 1.0 - Root(q) : 1.0 - q;
}

template <typename T>
T Wsd(const ScheduleSpec& spec, double min, double rest, T u) {
  const double decay = std::max(1.0, Option(spec, "decay", 0.2) * rest);
  return Between(min, Fall(spec.name, Min(Max(u - (rest - decay), 0) / decay, 1)));
}

template <auto Number, auto OnGraph>
ScheduleRow Row(std::string_view name, std::string_view text, std::vector<NumberOption> options = {},
                bool own_warmup = false) {
  return {name, text, std::move(options), own_warmup, Number, OnGraph};
}
#define BOTH(f) f<double>, f<Val>

const NumberOption kDecay = {"decay", 0.2, 1e-9, 1};
const NumberOption kGamma = {"gamma", 0.1, 0, 1};

const std::vector<ScheduleRow>& Rows() {
  static const auto* rows = new std::vector<ScheduleRow>{
      Row<BOTH(Constant)>("constant", "1"),
      Row<BOTH(Linear)>("linear", "1 − p"),
      Row<BOTH(Cosine)>("cosine", "(1 + cos πp)/2"),
      Row<BOTH(CosineRestarts)>(
          "cosine_restarts",
          "a cosine of `period` updates (half the run), again and again, each `growth` times as long",
          {{"period", kOpenOption, 1, kInf}, {"growth", 1, 1, 1e6}}),
      Row<BOTH(Polynomial)>("polynomial", "(1 − p)^power", {{"power", 1, 0, 1e3}}),
      Row<BOTH(Step)>("step", "× gamma every `size` updates (a third of the run)",
                      {{"size", kOpenOption, 1, kInf}, kGamma}),
      Row<BOTH(MultiStep)>("multistep", "× gamma after each of the updates `at`",
                           {{"at", kOpenOption, 0, kInf, true}, kGamma}),
      Row<BOTH(Exponential)>("exponential", "gamma^u (to min-lr, or 1 %, at the end)", {{"gamma", kOpenOption, 0, 1}}),
      Row<BOTH(InverseSqrt)>("inverse_sqrt", "1/√(1 + u/scale); scale is the warm-up, or 10000",
                             {{"scale", kOpenOption, 1, kInf}}),
      Row<BOTH(Constant)>(
          "plateau",
          "× factor after more than `patience` evaluations that are not better by `threshold`: see lr_schedule.h",
          {{"factor", 0.1, 1e-9, 1}, {"patience", 10, 0, 1e9}, {"threshold", 1e-4, 0, 1}, {"cooldown", 0, 0, 1e9}}),
      Row<BOTH(OneCycle)>("one_cycle",
                          "from 1/div up to 1 in the first `pct` of the run, down to 1/(div·final_div), by cosine",
                          {{"pct", 0.3, 0, 1}, {"div", 25, 1, kInf}, {"final_div", 1e4, 1, kInf}}, true),
      Row<BOTH(Wsd)>("wsd", "1, then a straight line to min-lr over the last `decay` of the run", {kDecay}),
      Row<BOTH(Wsd)>("wsd_cosine", "1, then half a cosine to min-lr over the last `decay` of the run", {kDecay}),
      Row<BOTH(Wsd)>("wsd_sqrt", "1, then 1 − √q to min-lr over the last `decay` of the run", {kDecay}),
  };
  return *rows;
}
#undef BOTH

// `name` must be known; the session checks it.
const ScheduleRow& RowOf(const std::string& name) {
  return *std::find_if(Rows().begin(), Rows().end(), [&](const ScheduleRow& r) { return r.name == name; });
}

struct Plan {
  double warmup;  // updates
  double rest;    // updates after the warm-up
  double min;     // lowest factor
};

Plan PlanOf(const ScheduleSpec& s, double lr) {
  const auto total = static_cast<double>(s.total_steps);
  const double warmup = s.warmup < 1 ? std::floor(s.warmup * total) : s.warmup;
  return {warmup, std::max(1.0, total - warmup), lr > 0 ? s.min_lr / lr : 0};
}

}  // namespace

std::span<const ScheduleRow> AllSchedules() { return Rows(); }

absl::StatusOr<ScheduleSpec> ParseSchedule(const std::string& text) {
  const size_t colon = text.find(':');
  ScheduleSpec spec{.name = text.substr(0, colon)};
  const auto row =
      std::find_if(Rows().begin(), Rows().end(), [&](const ScheduleRow& r) { return r.name == spec.name; });
  if (row == Rows().end()) {
    std::string names;
    for (const ScheduleRow& r : Rows()) StrAppend(&names, names.empty() ? "" : ", ", r.name);
    return Invalid("no schedule '", spec.name, "'; there are ", names);
  }
  ASSIGN_OR_RETURN(spec.options, ParseNumberOptions(spec.name, row->options,
                                                    colon == std::string::npos ? "" : text.substr(colon + 1)));
  if (spec.name == "multistep" && !spec.options.contains("at")) {
    return Invalid("multistep needs the updates at which the rate falls: multistep:at=1000/2000");
  }
  return spec;
}

double ScheduleFactor(const ScheduleSpec& schedule, double lr, int64_t step) {
  const Plan plan = PlanOf(schedule, lr);
  const auto t = static_cast<double>(step);
  if (t < plan.warmup) return (t + 1) / plan.warmup;
  return RowOf(schedule.name).number(schedule, plan.min, plan.rest, t - plan.warmup);
}

Val ScheduleFactor(const ScheduleSpec& schedule, double lr, Val step) {
  Builder& b = step.b();
  const Plan plan = PlanOf(schedule, lr);
  if ((schedule.name == "constant" || schedule.name == "plateau") && plan.warmup <= 0) return b.Scalar(step.dtype(), 1);
  // u must not be negative: during the warm-up it is unused, but its roots and powers are evaluated.
  const Val u = Max(step - plan.warmup, 0);
  const Val factor = RowOf(schedule.name).graph(schedule, plan.min, plan.rest, u);
  if (plan.warmup <= 0) return factor;
  return Where(Less(step, b.Scalar(step.dtype(), plan.warmup)), (step + 1.0) / plan.warmup, factor);
}

Plateau::Plateau(const ScheduleSpec& spec, double lr, bool maximize)
    : lr_(lr),
      min_lr_(spec.min_lr),
      fall_(OptionOr(spec.options, "factor", 0.1)),
      patience_(OptionOr(spec.options, "patience", 10)),
      threshold_(OptionOr(spec.options, "threshold", 1e-4)),
      cooldown_(OptionOr(spec.options, "cooldown", 0)),
      maximize_(maximize) {}

bool Plateau::Better(double metric) const {
  const double worst = (maximize_ ? -1 : 1) * std::numeric_limits<double>::infinity();
  const double best = std::isnan(state_.best) ? worst : state_.best;
  return maximize_ ? metric > best * (1 + threshold_) : metric < best * (1 - threshold_);
}

double Plateau::Step(double metric) {
  const bool better = Better(metric);
  if (better) state_.best = metric;
  state_.bad = better ? 0 : state_.bad + 1;
  if (state_.cooling > 0) {
    --state_.cooling;
    state_.bad = 0;
  }
  if (state_.bad <= patience_) return state_.factor;
  state_.cooling = cooldown_;
  state_.bad = 0;
  const double lower = std::max(lr_ * state_.factor * fall_, min_lr_);
  constexpr double kLeastChange = 1e-8;
  if (lr_ * state_.factor - lower > kLeastChange) state_.factor = lower / lr_;
  return state_.factor;
}

}  // namespace onnxtrain
