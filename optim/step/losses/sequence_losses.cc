// Connectionist temporal classification: Graves et al. (2006), the forward recursion in logarithms over all samples and
// positions at once; its derivative is the backward recursion.
#include <limits>

#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

// log 0: far below every log-probability, while sums of many stay finite.
constexpr double kLogZero = -1e30;

// log(e^a + e^b + …). The derivative of the subtracted maximum cancels, so ties are exact.
Val LogSum(const std::vector<Val>& terms) {
  Val most = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) most = Max(most, terms[i]);
  Val sum = Exp(terms[0] - most);
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + Exp(terms[i] - most);
  return most + Log(sum);
}

// Shifts every row right by `by`, filling with log 0.
Val Shifted(Val x, int64_t by) {
  const Val zero = Expand(x.b().Scalar(x.dtype(), kLogZero), {x.dim(0), by});
  return Concat({zero, Slice(x, 1, 0, x.dim(1) - by)}, 1);
}

// [N,S] → [N,2S+1]: inserts blanks before, between and after the labels.
Val Interleaved(Val labels, Val blank) {
  const int64_t n = labels.dim(0), s = labels.dim(1);
  const Val pairs = Concat({Expand(blank, {n, s, 1}), Reshape(labels, {n, s, 1})}, 2);
  return Concat({Reshape(pairs, {n, 2 * s}), Expand(blank, {n, 1})}, 1);
}

Val LogIf(Val condition, DType dtype) {
  Builder& b = condition.b();
  return Where(condition, b.Scalar(dtype, 0), b.Scalar(dtype, kLogZero));
}

struct Lattice {
  Val emissions;  // log-probabilities [N,T,2S+1]
  Val skip;       // log 1 where a position can be reached from two to the left, past a blank; else log 0 [N,2S+1]
};

// log Σ over the paths that end at each position after the last step: [N,2S+1].
Val Forward(const Lattice& l) {
  const int64_t n = l.emissions.dim(0), steps = l.emissions.dim(1), width = l.emissions.dim(2);
  const auto at = [&](int64_t t) { return Reshape(Slice(l.emissions, 1, t, 1), {n, width}); };
  Val alpha = at(0);
  const Val first = Less(ClassIndices(alpha.b(), width, 2, 1), alpha.b().Scalar(DType::kInt64, 2));
  alpha = Where(first, alpha, alpha.b().Scalar(alpha.dtype(), kLogZero));
  for (int64_t t = 1; t < steps; ++t) {
    std::vector<Val> from = {alpha, Shifted(alpha, 1)};
    if (width > 2) from.push_back(Shifted(alpha, 2) + l.skip);
    alpha = LogSum(from) + at(t);
  }
  return alpha;
}

LossParts Ctc(const LossContext& c) {
  const Val y = c.Option("time_first", 0) != 0 ? Transpose(c.y, {1, 0, 2}) : c.y;
  Builder& b = y.b();
  const DType dtype = y.dtype();
  const int64_t n = y.dim(0), steps = y.dim(1), width = 2 * c.labels.dim(1) + 1;
  const Val blank = b.Scalar(DType::kInt64, c.Option("blank", 0));
  const Val ignored = Equal(c.labels, b.Scalar(DType::kInt64, static_cast<double>(c.ignore_index)));
  const Val path = Interleaved(Where(ignored, blank, c.labels), blank);
  const Val log_prob = LogSoftmax(y, 2);
  const Val index = Expand(Reshape(path, {n, 1, width}), {n, steps, width});
  Lattice lattice{.emissions = GatherElements(log_prob, index, 2)};
  if (width > 2) {
    const Val before = Concat({Expand(blank, {n, 2}), Slice(path, 1, 0, width - 2)}, 1);
    const Val to_blank = Equal(path, blank), stays = Or(to_blank, Equal(path, before));
    lattice.skip = LogIf(Not(stays), dtype);
  }
  // A path ends at the last label or at the blank after it.
  const Val length = ReduceSum(Cast(Not(ignored), dtype), {1}, true);
  const Val behind = Cast(ClassIndices(b, width, 2, 1), dtype) - length * 2.0;
  const Val at_blank = Equal(behind, b.Scalar(dtype, 0));
  const Val ends = LogIf(Or(at_blank, Equal(behind, b.Scalar(dtype, -1))), dtype);
  const Val last = Forward(lattice) + ends;
  const Val most = ReduceMax(last, {1}, true);
  const Val total = Reshape(most + Log(ReduceSum(Exp(last - most), {1}, true)), {n});
  const bool per_label = c.Option("per_label", 1) != 0;
  const Val loss = per_label ? -total / Max(Reshape(length, {n}), 1) : -total;
  // More labels than steps: there is no path.
  const double impossible = c.Option("zero_infinity", 1) != 0 ? 0 : std::numeric_limits<double>::infinity();
  return {Where(Less(total, b.Scalar(dtype, kLogZero / 10)), b.Scalar(dtype, impossible), loss), Val()};
}

}  // namespace

std::span<const LossFunction> SequenceLosses() {
  static const std::vector<LossFunction> rows = {
      {.name = "ctc",
       .text =
           "−log of the sum over all alignments of the labels with the steps, ÷ number of labels (per_label=0: not); "
           "0 where the steps are too few",
       .takes = "ignore_index",
       .options = {{"blank", 0, 0, 1e9}, {"zero_infinity", 1, 0, 1}, {"time_first", 0, 0, 1}, {"per_label", 1, 0, 1}},
       .sequences = true,
       .final_activations = "Softmax LogSoftmax",
       .mean = LossMean::kSamples,
       .parts = Ctc},
  };
  return rows;
}

}  // namespace onnxtrain
