#include "optim/loop/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Calls visit(row) for every metric until it returns true.
template <typename Visitor>
void ForEachRow(Visitor visit) {
  for (const auto rows : {ClassMetrics(), ValueMetrics(), PairMetrics(), TextMetrics()}) {
    for (const MetricRow& row : rows) {
      if (visit(row)) return;
    }
  }
}

// Returns true if `name` is that of the row, and sets *k to the number in a numbered name.
bool IsNameOf(const MetricRow& row, std::string_view name, int64_t* k) {
  if (!row.numbered) return row.name == name;
  if (!name.starts_with(row.name)) return false;
  return absl::SimpleAtoi(ToAbsl(name.substr(row.name.size())), k) && *k >= 1 && *k <= 1'000'000;
}

const MetricRow* FindMetric(std::string_view name, int64_t* k) {
  const MetricRow* found = nullptr;
  ForEachRow([&](const MetricRow& row) {
    if (IsNameOf(row, name, k)) found = &row;
    return found != nullptr;
  });
  return found;
}

std::string Names() {
  std::string names;
  ForEachRow([&](const MetricRow& row) {
    if (row.name.starts_with("$")) return false;
    StrAppend(&names, names.empty() ? "" : ", ", row.name, row.numbered ? "K" : "");
    return false;
  });
  return names;
}

bool Fits(const MetricRow& row, const LossTerm& term) {
  if (term.function->pairs || row.pairs) return term.function->pairs && row.pairs;
  if (term.form == LabelForm::kClasses || term.form == LabelForm::kDistribution) {
    return row.classes && (!row.numbered || term.form == LabelForm::kClasses);
  }
  if (term.form == LabelForm::kSequence) return row.sequences;
  if (term.form != LabelForm::kElements) return false;
  return term.function->final_activations.empty() ? row.values : row.binary_labels;
}

absl::StatusOr<Metric> ChooseMetric(const std::string& text, const LossChoice& loss) {
  Metric metric{.name = text, .term = loss.lead, .alphabet = loss.alphabet};
  const size_t at = text.find('@');
  metric.row = FindMetric(text.substr(0, at), &metric.k);
  if (metric.row == nullptr) return Invalid("unknown; there are ", Names());
  if (at != std::string::npos) {
    const auto term = std::find_if(loss.terms.begin(), loss.terms.end(),
                                   [&](const LossTerm& t) { return t.output == text.substr(at + 1); });
    if (term == loss.terms.end()) return Invalid("no loss is on an output '", text.substr(at + 1), "'");
    metric.term = static_cast<size_t>(term - loss.terms.begin());
  }
  const LossTerm& term = loss.terms[metric.term];
  if (!Fits(*metric.row, term))
    return Invalid("loss ", term.function->name, " on '", term.output, "' has none (its labels do not fit)");
  if (metric.row->needs_words && (loss.alphabet == nullptr || !loss.alphabet->has_spaces()))
    return Invalid("no class of the model is a space (`class_map` FILE names the characters of the classes)");
  return metric;
}

}  // namespace

absl::StatusOr<std::vector<Metric>> ChooseMetrics(const std::vector<std::string>& names, const LossChoice& loss) {
  std::vector<Metric> metrics;
  for (const std::string& name : names) {
    const auto same = [&](const Metric& m) { return m.name == name; };
    if (std::any_of(metrics.begin(), metrics.end(), same)) return Invalid("`metrics` ", name, ": given twice");
    auto metric = ChooseMetric(name, loss);
    if (!metric.ok()) return Annotate(metric.status(), StrCat("`metrics` ", name, ": "));
    metrics.push_back(*std::move(metric));
  }
  return metrics;
}

namespace {

constexpr int64_t kMostTargets = 64;

int64_t CountTargets(const LossTerm& term, const LossChoice& loss) {
  const auto feed = std::ranges::find(loss.feeds, term.feed, &LossFeed::name);
  return feed != loss.feeds.end() ? feed->sample.elements() : 0;
}

bool ReportsTargets(const MetricRow& row, int64_t targets) {
  return row.by_target != nullptr && targets > 1 && targets <= kMostTargets;
}

// Converts the statistics to the original unit of scaled targets.
MetricStats InUnit(const MetricRow& row, MetricStats stats, const std::vector<double>& unit) {
  if (unit.empty() || row.error_power == 0) return stats;
  for (size_t t = 0; t < stats[0].size(); ++t) stats[0][t] *= std::pow(unit[unit.size() == 1 ? 0 : t], row.error_power);
  return stats;
}

}  // namespace

std::vector<std::string> DefaultMetrics(const LossChoice& loss, const TextUnit& unit) {
  const LossTerm& term = loss.leading();
  if (term.function->pairs)
    return {"reward_margin", "chosen_reward", "rejected_reward", "chosen_logp", "rejected_logp"};
  if (unit.tokens_per_sample > 0 && term.form == LabelForm::kClasses) {
    if (unit.tokens_are_characters) return {"perplexity", "bits_per_character"};
    return unit.bytes_per_token > 0 ? std::vector<std::string>{"perplexity", "bits_per_byte"}
                                    : std::vector<std::string>{"perplexity"};
  }
  if (term.form == LabelForm::kSequence) {
    const bool words = loss.alphabet != nullptr && loss.alphabet->has_spaces();
    return words ? std::vector<std::string>{"cer", "wer", "exact"} : std::vector<std::string>{"cer", "exact"};
  }
  const bool regression = term.form == LabelForm::kElements && term.function->final_activations.empty();
  if (loss.terms.size() > 1 || !regression || CountTargets(term, loss) > kMostTargets) return {};
  return {"rmse", "r2"};
}

std::vector<std::string> ValueNames(const Metric& metric, const LossChoice& loss) {
  std::vector<std::string> names = {metric.name};
  const int64_t targets = CountTargets(loss.terms[metric.term], loss);
  for (int64_t t = 0; ReportsTargets(*metric.row, targets) && t < targets; ++t) {
    const size_t at = std::min(metric.name.find('@'), metric.name.size());
    names.push_back(StrCat(metric.name.substr(0, at), "_", t, metric.name.substr(at)));
  }
  return names;
}

std::string MetricOutput(size_t metric, size_t stat) { return StrCat("$metric:", metric, ":", stat); }

absl::Status AttachMetrics(Graph* graph, const std::vector<Metric>& metrics, const LossChoice& loss,
                           const LossSpec& spec) {
  Builder b(graph);
  b.set_source("metrics");
  for (size_t m = 0; m < metrics.size(); ++m) {
    const LossTerm& term = loss.terms[metrics[m].term];
    const LossContext context = MakeLossContext(graph, b, term, spec);
    const std::vector<Val> stats = metrics[m].row->stats({.y = b.Wrap(term.value),
                                                          .labels = b.Wrap(graph->FindInput(term.feed)->value),
                                                          .form = term.form,
                                                          .ignore_index = spec.ignore_index,
                                                          .k = metrics[m].k,
                                                          .batch_axis = term.batch_axis(),
                                                          .least_logit = LeastLogit(spec),
                                                          .function = term.function,
                                                          .loss = &context});
    RETURN_IF_ERROR(b.status());
    for (size_t i = 0; i < stats.size(); ++i) graph->AddOutput(MetricOutput(m, i), stats[i].id());
  }
  return absl::OkStatus();
}

void MetricSums::Add(const MetricRow& row, const std::vector<double>& part, std::vector<double>* into) {
  if (row.keep || into->empty()) {
    into->insert(into->end(), part.begin(), part.end());
  } else {
    std::transform(part.begin(), part.end(), into->begin(), into->begin(), std::plus<>());
  }
}

void MetricSums::Add(const std::vector<Metric>& metrics, size_t metric, size_t stat, const HostTensor& tensor) {
  stats_.resize(metrics.size());
  stats_[metric].resize(std::max(stats_[metric].size(), stat + 1));
  const MetricRow& row = *metrics[metric].row;
  if (row.count != nullptr) return Add(row, row.count(metrics[metric], tensor), &stats_[metric][stat]);
  std::vector<double> part(tensor.size());
  for (size_t i = 0; i < part.size(); ++i) part[i] = tensor.At(static_cast<int64_t>(i));
  Add(row, part, &stats_[metric][stat]);
}

void MetricSums::Add(const std::vector<Metric>& metrics, const MetricSums& other) {
  stats_.resize(metrics.size());
  for (size_t m = 0; m < other.stats_.size(); ++m) {
    stats_[m].resize(other.stats_[m].size());
    for (size_t i = 0; i < other.stats_[m].size(); ++i) Add(*metrics[m].row, other.stats_[m][i], &stats_[m][i]);
  }
}

std::vector<double> MetricSums::Values(const std::vector<Metric>& metrics,
                                       const std::vector<std::vector<double>>& units) const {
  std::vector<double> values;
  for (size_t m = 0; m < metrics.size(); ++m) {
    const MetricRow& row = *metrics[m].row;
    if (m >= stats_.size() || stats_[m].empty()) {
      values.push_back(kUndefinedMetric);
      continue;
    }
    const MetricStats stats = InUnit(row, stats_[m], m < units.size() ? units[m] : std::vector<double>());
    values.push_back(row.value(stats));
    if (row.by_target == nullptr) continue;
    const std::vector<double> targets = row.by_target(stats);
    if (ReportsTargets(row, static_cast<int64_t>(targets.size())))
      values.insert(values.end(), targets.begin(), targets.end());
  }
  return values;
}

}  // namespace onnxtrain
