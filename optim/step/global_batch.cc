#include "optim/step/global_batch.h"

#include <algorithm>
#include <bit>
#include <span>

#include "frontend/base/status.h"
#include "frontend/ops/host_eval.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

bool IsLabel(std::string_view feed) { return feed.starts_with(kLabelFeed); }

// Returns true if the denominator depends on the values or the shape of labels.
bool CountsLabels(const LossTerm& term) {
  return term.function->mean != LossMean::kSamples && term.form != LabelForm::kNone &&
         !(term.onnx != nullptr && term.onnx->weighted);
}

double CountLabels(const LossTerm& term, std::span<const double> class_weights, int64_t ignore_index,
                   const HostTensor& labels) {
  const auto size = static_cast<double>(labels.size());
  if (term.form == LabelForm::kElements) return size;
  if (term.form == LabelForm::kDistribution)
    return size / static_cast<double>(std::max<int64_t>(1, labels.shape().back()));
  const auto values = labels.data<int64_t>();
  if (!class_weights.empty() && term.function->takes.find("class_weights") != std::string_view::npos) {
    double sum = 0;
    for (int64_t label : values) {
      if (label != ignore_index) sum += class_weights[std::clamp<int64_t>(label, 0, std::ssize(class_weights) - 1)];
    }
    return sum;
  }
  return size - static_cast<double>(std::count(values.begin(), values.end(), ignore_index));
}

}  // namespace

GlobalBatch::GlobalBatch(std::vector<std::string> names) : tensors_(names.size()) {
  for (const std::string& name : names) is_label_.push_back(IsLabel(name));
  names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

GlobalBatch::GlobalBatch(std::initializer_list<std::pair<std::string, HostTensor>> feeds) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : feeds) names.push_back(name);
  *this = GlobalBatch(std::move(names));
  std::ranges::transform(feeds, tensors_.begin(), [](const auto& feed) { return feed.second; });
}

const HostTensor* GlobalBatch::Find(std::string_view name) const {
  const auto found = std::ranges::find(*names_, name);
  return found == names_->end() ? nullptr : &tensors_[found - names_->begin()];
}

int64_t GlobalBatch::part_samples() const {
  int64_t samples = -1;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].type().rank() > 0 && !is_label_[i]) samples = std::max(samples, tensors_[i].shape()[0]);
  }
  return samples;
}

int64_t GlobalBatch::samples() const {
  int64_t samples = part_samples();
  for (const GlobalBatch& part : further_) samples += part.part_samples();
  return samples;
}

std::vector<GlobalBatch>& GlobalBatch::ResizeFurther(size_t size) {
  if (further_.size() > size) further_.erase(further_.begin() + static_cast<std::ptrdiff_t>(size), further_.end());
  while (further_.size() < size) {
    GlobalBatch part = *this;
    part.further_.clear();
    further_.push_back(std::move(part));
  }
  return further_;
}

absl::Status FeedPositions::Resolve(const GlobalBatch& batch) {
  if (names_ == batch.names()) return absl::OkStatus();
  std::vector<size_t> positions;
  for (const std::string& feed : feeds_) {
    const auto found = std::ranges::find(*batch.names(), feed);
    if (found == batch.names()->end())
      return Invalid(IsLabel(feed) ? "the loss's label '" : "model input '", feed, "' is not fed");
    positions.push_back(found - batch.names()->begin());
  }
  positions_ = std::move(positions);
  names_ = batch.names();
  return absl::OkStatus();
}

LossDenominators::LossDenominators(const LossChoice& choice, const LossSpec& spec)
    : choice_(choice), spec_(spec), label_of_(choice.terms.size()), weights_(choice.terms.size()) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < choice.terms.size(); ++i) {
    if (!CountsLabels(choice.terms[i])) continue;
    label_of_[i] = labels.size();
    labels.push_back(choice.terms[i].feed);
  }
  labels_ = FeedPositions(std::move(labels));
}

absl::Status LossDenominators::Count(const GlobalBatch& global_batch, int64_t samples) {
  std::ranges::fill(weights_, 0);
  targets_ = 0;
  const bool parts = !global_batch.further().empty();
  return VisitParts(global_batch,
                    [&](const GlobalBatch& part) { return CountPart(part, parts ? part.part_samples() : samples); });
}

absl::Status LossDenominators::CountPart(const GlobalBatch& part, int64_t samples) {
  RETURN_IF_ERROR(labels_.Resolve(part));
  const LossTerm& lead = choice_.leading();
  const bool weighted = !spec_.class_weights.empty() && CountsLabels(lead);
  for (size_t i = 0; i < weights_.size(); ++i) {
    ASSIGN_OR_RETURN(const double weight, TermDenominator(i, part, samples));
    weights_[i] += weight;
    if (i == choice_.lead && !weighted) targets_ += weight;
  }
  if (weighted) targets_ += CountLabels(lead, {}, spec_.ignore_index, labels_.Get(part, label_of_[choice_.lead]));
  return absl::OkStatus();
}

absl::StatusOr<double> LossDenominators::TermDenominator(size_t term, const GlobalBatch& global_batch,
                                                         int64_t samples) {
  const LossTerm& loss = choice_.terms[term];
  if (loss.onnx != nullptr && loss.onnx->weighted) return OnnxDenominator(*loss.onnx, global_batch, samples);
  if (!CountsLabels(loss)) return static_cast<double>(samples);
  return CountLabels(loss, spec_.class_weights, spec_.ignore_index, labels_.Get(global_batch, label_of_[term]));
}

absl::StatusOr<double> LossDenominators::OnnxDenominator(const OnnxLoss& loss, const GlobalBatch& global_batch,
                                                         int64_t samples) {
  const std::pair key(&loss, samples);
  auto graph = onnx_.find(key);
  if (graph == onnx_.end()) {
    ASSIGN_OR_RETURN(Graph made, BuildOnnxLossWeight(loss, samples));
    ASSIGN_OR_RETURN(made, OptimizeProgram(std::move(made), DType::kFloat32));
    graph = onnx_.emplace(key, std::move(made)).first;
  }
  std::map<std::string, HostTensor> feeds;
  for (const GraphInput& input : graph->second.inputs()) {
    const HostTensor* tensor = global_batch.Find(input.name);
    if (tensor == nullptr) return Invalid(loss.model->path(), ": '", input.name, "' is not fed");
    if (const Type& type = graph->second.type(input.value); tensor->size() != type.elements())
      return Invalid(loss.model->path(), ": '", input.name, "' is ", ToString(tensor->type()), ", the loss takes ",
                     ToString(type), ": all samples must have one size (`image_size`)");
    feeds[input.name] = *tensor;
  }
  ASSIGN_OR_RETURN(const std::vector<HostTensor> values, Interpret(graph->second, feeds));
  const double weight = values[0].At(0);
  return weight >= 0 && weight < 1e300 ? absl::StatusOr<double>(weight)
                                       : Invalid(loss.model->path(), ": weight is ", weight, " for a batch");
}

double InverseDenominator(const LossTerm& term, double weight) { return weight > 0 ? term.factor / weight : 0; }

double MeanLoss(const LossChoice& choice, const std::vector<double>& sums, const std::vector<double>& weights) {
  double mean = 0;
  for (size_t i = 0; i < choice.terms.size(); ++i) {
    if (weights[i] > 0) mean += choice.terms[i].factor * sums[i] / weights[i];
  }
  return mean;
}

namespace {

int64_t CountNext(int64_t left, int64_t step, bool powers_of_two) {
  if (left >= step || !powers_of_two) return std::min(left, step);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(left)));
}

}  // namespace

absl::StatusOr<int64_t> CountSamples(const GlobalBatch& global_batch, int64_t fixed_batch) {
  const int64_t samples = global_batch.samples();
  const auto is_divided = [&](const GlobalBatch& part) { return part.part_samples() % fixed_batch == 0; };
  const bool divided =
      fixed_batch == 0 || (is_divided(global_batch) && std::ranges::all_of(global_batch.further(), is_divided));
  if (!divided)
    return Invalid("the model is bound to a batch of ", fixed_batch, ", which does not divide ", samples, " samples",
                   global_batch.further().empty() ? "" : " by their sizes (`image_size` makes them one size)");
  if (samples < 0) return Invalid("the model takes no input with a batch axis: there are no samples to train on");
  if (samples == 0) return Invalid("a global batch without samples");
  return samples;
}

void CutMicroBatches(const GlobalBatch& global_batch, const MicroSize& size, bool powers_of_two,
                     std::vector<MicroBatch>* micros) {
  micros->clear();
  int64_t place = 0;
  const auto cut = [&](const GlobalBatch& part) {
    const int64_t samples = part.part_samples(), step = size(part);
    for (int64_t begin = 0, count; begin < samples; begin += count, place += count) {
      count = CountNext(samples - begin, step, powers_of_two);
      micros->push_back({&part, begin, count, place, std::ssize(*micros)});
    }
  };
  cut(global_batch);
  std::ranges::for_each(global_batch.further(), cut);
}

SampleRange ShareOfRank(int64_t samples, int64_t unit, int rank, int size) {
  const int64_t units = samples / unit;
  return {units * rank / size * unit, units * (rank + 1) / size * unit};
}

int64_t LargestShare(int64_t samples, int64_t unit, int size) { return (samples / unit + size - 1) / size * unit; }

int64_t CountMicros(const SampleRange& share, const std::vector<MicroBatch>& micros) {
  return std::ranges::count_if(micros, [&](const MicroBatch& m) {
    return std::max(share.begin, m.place) < std::min(share.end, m.place + m.count);
  });
}

void ClipToShare(const SampleRange& share, std::vector<MicroBatch>* micros) {
  for (MicroBatch& m : *micros) {
    m.skipped = std::clamp<int64_t>(share.begin - m.place, 0, m.count);
    m.count = std::clamp<int64_t>(share.end - m.place, m.skipped, m.count) - m.skipped;
    m.begin += m.skipped;
    m.place += m.skipped;
  }
  std::erase_if(*micros, [](const MicroBatch& m) { return m.count == 0; });
}

}  // namespace onnxtrain
