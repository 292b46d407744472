#include <array>
#include <numeric>

#include "frontend/base/strings.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

std::array<std::span<const LossFunction>, 5> Tables() {
  return {ClassLosses(), ElementLosses(), RegionLosses(), SequenceLosses(), PairLosses()};
}

}  // namespace

const LossFunction* FindLoss(std::string_view name) {
  for (const auto& table : Tables()) {
    for (const LossFunction& loss : table) {
      if (loss.name == name || (!loss.alias.empty() && loss.alias == name)) return &loss;
    }
  }
  return nullptr;
}

std::string LossNames() {
  std::string names;
  for (const auto& table : Tables()) {
    for (const LossFunction& loss : table) {
      if (loss.name != "output" && loss.name != "onnx") StrAppend(&names, loss.name, ", ");
    }
  }
  return names + "output:NAME, onnx:FILE";
}

std::optional<int> ClassAxis(const Shape& logits, Shape label) {
  if (logits.size() < 2) return std::nullopt;
  if (!label.empty() && label.back() == 1 && label.size() + 1 == logits.size())
    label.pop_back();  // [N,1] instead of [N]
  const Shape sample(logits.begin() + 1, logits.end());
  if (Shape(sample.begin(), sample.end() - 1) == label) return static_cast<int>(logits.size()) - 1;
  if (Shape(sample.begin() + 1, sample.end()) == label) return 1;
  return std::nullopt;
}

Val ClassIndices(Builder& b, int64_t classes, int rank, int axis) {
  std::vector<int64_t> index(classes);
  std::iota(index.begin(), index.end(), 0);
  Shape along(rank, 1);
  along[axis] = classes;
  return Reshape(b.Ints(index), along);
}

Val ChooseBinary(Val logits, std::optional<double> least) {
  Builder& b = logits.b();
  if (!least.has_value()) return Greater(logits, b.Scalar(logits.dtype(), 0));
  return Not(Less(logits, b.Scalar(logits.dtype(), *least)));
}

Val CountCorrectBinary(const LossContext& c) {
  const Val actual = Greater(c.labels, c.y.b().Scalar(c.labels.dtype(), 0.5));
  return ReduceSum(Cast(Equal(ChooseBinary(c.y, c.least_logit), actual), c.y.dtype()), {}, false);
}

namespace {

LossParts Bce(const LossContext& c) {
  return {c.y.b().Op("BinaryCrossEntropyWithLogits", {c.y, c.labels}), CountCorrectBinary(c)};
}

LossParts Mse(const LossContext& c) {
  const Val d = c.y - c.labels;
  return {d * d, Val()};
}

LossParts L1(const LossContext& c) { return {Abs(c.y - c.labels), Val()}; }

// Huber (1964), as PyTorch's HuberLoss.
LossParts Huber(const LossContext& c) {
  const double delta = c.Option("delta", 1);
  const Val d = c.y - c.labels, a = Abs(d);
  return {Where(Less(a, d.b().Scalar(d.dtype(), delta)), d * d * 0.5, (a - delta / 2) * delta), Val()};
}

LossParts Dot(const LossContext& c) { return {c.y * c.labels, Val()}; }

// A scalar output is the mean over the samples; any other output has one loss per sample.
LossParts Output(const LossContext& c) { return {c.y, Val()}; }

}  // namespace

std::span<const LossFunction> ElementLosses() {
  static const std::vector<LossFunction> rows = {
      {.name = "bce",
       .text = "log(1 + e^y) − label·y",
       .elements = true,
       .final_activations = "Sigmoid",
       .counts_correct = true,
       .parts = Bce},
      {.name = "mse", .text = "(y − label)²", .elements = true, .parts = Mse},
      {.name = "l1", .text = "|y − label|", .elements = true, .parts = L1},
      {.name = "huber",
       .text = "(y − label)²/2 up to delta, a straight line beyond",
       .options = {{"delta", 1, 1e-12, 1e12}},
       .elements = true,
       .parts = Huber},
      {.name = "dot",
       .text = "y·label, summed over a sample: the gradients are vector-Jacobian products",
       .elements = true,
       .mean = LossMean::kSamples,
       .parts = Dot},
      {.name = "onnx", .text = "a model of its own: see onnx_functions.h", .mean = LossMean::kSamples},
      {.name = "output", .text = "an output of the model is the loss", .mean = LossMean::kSamples, .parts = Output},
  };
  return rows;
}

}  // namespace onnxtrain
