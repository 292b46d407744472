// Losses of pairs of answers: values computed by hand, and gradients by central differences, in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "frontend/ops/host_eval.h"
#include "frontend/passes/differentiate.h"
#include "optim/config/loss_text.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

// Two pairs of two tokens and three classes; the first rejected answer has one token.
const std::vector<double> kLogits = {0.3, -0.2, 0.9,  1.1, 0.4, -0.7, -0.5, 0.2, 0.1, 0.6,  -1.0, 0.3,
                                     0.2, 0.8,  -0.3, 0.5, 0.0, 0.7,  -0.9, 0.4, 0.2, -0.1, 0.3,  1.2};
const std::vector<int64_t> kChosen = {2, 0, 1, 1}, kRejected = {1, -100, 0, 2};
const std::vector<double> kReference = {-1.5, -0.9, -2.5, -2.0};

// Builds the sum of the losses of the pairs, with its gradient, as outputs "loss", "correct" and "gradient".
Graph Build(const std::string& text) {
  const LossTermSpec term = (*ParseLoss(text))[0];
  Graph graph;
  Builder b(&graph);
  const Val y = b.Input(InputKind::kParameter, "y", {DType::kFloat64, {4, 2, 3}});
  const Val chosen = b.Constant(HostTensor::FromInts(kChosen)), rejected = b.Constant(HostTensor::FromInts(kRejected));
  const LossParts parts =
      term.function->parts({.y = y,
                            .labels = Reshape(chosen, {2, 2}),
                            .form = LabelForm::kClasses,
                            .options = term.options,
                            .ignore_index = -100,
                            .label_smoothing = 0,
                            .class_weights = {},
                            .rejected = Reshape(rejected, {2, 2}),
                            .reference = b.Constant(HostTensor::FromDoubles({DType::kFloat64, {2, 2}}, kReference))});
  const Val sum = ReduceSum(parts.losses, {}, false);
  graph.AddOutput("loss", sum.id());
  graph.AddOutput("correct", parts.correct.id());
  const auto gradients = Differentiate(&graph, std::vector<Seed>{{sum.id(), b.Scalar(DType::kFloat64, 1).id()}},
                                       std::vector<ValueId>{y.id()});
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  graph.AddOutput("gradient", gradients->at(y.id()));
  return graph;
}

std::vector<HostTensor> Evaluate(const Graph& graph, const std::vector<double>& logits) {
  auto values = Interpret(graph, {{"y", HostTensor::FromDoubles({DType::kFloat64, {4, 2, 3}}, logits)}});
  EXPECT_TRUE(values.ok()) << values.status();
  return *std::move(values);
}

// Log-probability of a row's labels, summed, and their number.
struct Score {
  double sum = 0, tokens = 0;
  double mean() const { return sum / tokens; }
};
Score ScoreRow(int64_t row, const std::vector<int64_t>& labels, int64_t pair) {
  Score score;
  for (int64_t t = 0; t < 2; ++t) {
    const int64_t label = labels[2 * pair + t];
    if (label < 0) continue;
    const double* y = kLogits.data() + (row * 2 + t) * 3;
    score.sum += y[label] - std::log(std::exp(y[0]) + std::exp(y[1]) + std::exp(y[2]));
    ++score.tokens;
  }
  return score;
}

double LogSigmoid(double x) { return -std::log1p(std::exp(-x)); }
double LogOdds(double x) { return x - std::log1p(-std::exp(x)); }

// Sums the loss of both pairs, of scores and the reference's log-probabilities.
template <typename Loss>
double SumPairs(Loss loss) {
  double sum = 0;
  for (int64_t i = 0; i < 2; ++i)
    sum += loss(ScoreRow(i, kChosen, i), ScoreRow(2 + i, kRejected, i), kReference[2 * i], kReference[2 * i + 1]);
  return sum;
}

void ExpectLoss(const std::string& text, double expected) {
  EXPECT_NEAR(Evaluate(Build(text), kLogits)[0].At(0), expected, 1e-12) << text;
}

TEST(PairLosses, EqualTheirFormulas) {
  ExpectLoss("dpo:beta=0.3", SumPairs([](Score c, Score r, double rc, double rr) {
               return -LogSigmoid(0.3 * (c.sum - rc - r.sum + rr));
             }));
  ExpectLoss("dpo:beta=0.3,label_smoothing=0.2", SumPairs([](Score c, Score r, double rc, double rr) {
               const double z = 0.3 * (c.sum - rc - r.sum + rr);
               return -0.8 * LogSigmoid(z) - 0.2 * LogSigmoid(-z);
             }));
  ExpectLoss("ipo:beta=0.25", SumPairs([](Score c, Score r, double rc, double rr) {
               return std::pow((c.sum - rc) / c.tokens - (r.sum - rr) / r.tokens - 2, 2);
             }));
  ExpectLoss("simpo:beta=2,gamma=0.7",
             SumPairs([](Score c, Score r, double, double) { return -LogSigmoid(2 * (c.mean() - r.mean()) - 0.7); }));
  ExpectLoss("orpo:beta=0.4", SumPairs([](Score c, Score r, double, double) {
               return -c.mean() - 0.4 * LogSigmoid(LogOdds(c.mean()) - LogOdds(r.mean()));
             }));
}

TEST(PairLosses, HaveTheGradientsOfCentralDifferences) {
  for (const char* text : {"dpo:beta=0.3", "dpo:label_smoothing=0.2", "ipo:beta=0.25", "simpo", "orpo:beta=0.4"}) {
    const Graph graph = Build(text);
    const HostTensor gradient = Evaluate(graph, kLogits)[2];
    for (size_t i = 0; i < kLogits.size(); ++i) {
      constexpr double kStep = 1e-5;
      std::vector<double> up = kLogits, down = kLogits;
      up[i] += kStep;
      down[i] -= kStep;
      const double slope = (Evaluate(graph, up)[0].At(0) - Evaluate(graph, down)[0].At(0)) / (2 * kStep);
      EXPECT_NEAR(gradient.At(static_cast<int64_t>(i)), slope, 1e-8) << text << " " << i;
    }
  }
}

TEST(PairLosses, CountPairsInOrder) {
  const double expected =
      SumPairs([](Score c, Score r, double rc, double rr) { return c.sum - rc > r.sum - rr ? 1.0 : 0.0; });
  EXPECT_EQ(Evaluate(Build("dpo"), kLogits)[1].At(0), expected);
}

}  // namespace
}  // namespace onnxtrain
