#include "optim/loop/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Scores [n,width], labels and a loss.
struct Data {
  std::string loss;
  int64_t width;
  std::vector<double> scores;
  std::vector<double> labels;  // class indices, or one per score
  bool indices;

  int64_t size() const { return static_cast<int64_t>(scores.size()) / width; }
};

ImportedModel MakeModel(const Data& data, int64_t batch) {
  ImportedModel model;
  Builder b(&model.graph);
  model.graph.AddOutput("y", (b.Input(InputKind::kFeed, "x", {DType::kFloat64, {batch, data.width}}) * 1.0).id());
  model.outputs = {"y"};
  return model;
}

HostTensor Rows(const std::vector<double>& values, Type type, int64_t begin) {
  HostTensor rows(type);
  const int64_t width = rows.size() / type.shape[0];
  for (int64_t i = 0; i < rows.size(); ++i) {
    const double value = values[begin * width + i];
    IsFloat(type.dtype) ? rows.Set(i, value) : rows.SetInt(i, static_cast<int64_t>(value));
  }
  return rows;
}

// Evaluates in batches of these sizes.
std::vector<double> Evaluate(const Data& data, const std::vector<std::string>& names,
                             const std::vector<int64_t>& batches) {
  std::vector<Metric> metrics;
  MetricSums sums;
  int64_t begin = 0;
  for (int64_t batch : batches) {
    const ImportedModel model = MakeModel(data, batch);
    const LabelInfo info{.present = true,
                         .sample = data.indices ? Type{DType::kInt64, {}} : Type{DType::kFloat64, {data.width}},
                         .max_value = 9};
    const LossSpec spec{.name = data.loss};
    const auto choice = ChooseLoss(model, spec, info);
    EXPECT_TRUE(choice.ok()) << choice.status();
    metrics = ChooseMetrics(names, *choice).value();
    Graph graph = model.graph;
    graph.ClearOutputs();
    EXPECT_TRUE(AttachLoss(&graph, *choice, spec, batch).ok());
    EXPECT_TRUE(AttachMetrics(&graph, metrics, *choice, spec).ok());
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    const Type label = data.indices ? Type{DType::kInt64, {batch}} : Type{DType::kFloat64, {batch, data.width}};
    const auto values = Interpret(graph, {{"x", Rows(data.scores, {DType::kFloat64, {batch, data.width}}, begin)},
                                          {kLabelFeed, Rows(data.labels, label, begin)}});
    EXPECT_TRUE(values.ok()) << values.status();
    MetricSums part;
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      for (size_t m = 0; m < metrics.size(); ++m) {
        for (size_t stat = 0; stat < 4; ++stat) {
          if (graph.outputs()[i].name == MetricOutput(m, stat)) part.Add(metrics, m, stat, (*values)[i]);
        }
      }
    }
    sums.Add(metrics, part);
    begin += batch;
  }
  return sums.Values(metrics);
}

Data Random(const std::string& loss, int64_t n, int64_t width, bool indices) {
  Data data{.loss = loss, .width = width, .indices = indices};
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < n * width; ++i) data.scores.push_back(std::round(normal(random) * 4) / 4);  // with ties
  for (int64_t i = 0; i < (indices ? n : n * width); ++i)
    data.labels.push_back(static_cast<double>(random() % (indices ? width : 2)));
  if (indices) data.labels[3] = -100;
  return data;
}

// The definition over all pairs.
double Area(const std::vector<double>& scores, const std::vector<bool>& positive) {
  double ordered = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      pairs += 1;
      ordered += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return ordered / pairs;
}

double F1(const std::vector<int>& predicted, const std::vector<int>& actual, int k) {
  double hit = 0, all = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    hit += predicted[i] == k && actual[i] == k;
    all += (predicted[i] == k) + (actual[i] == k);
  }
  return 2 * hit / all;
}

const std::vector<std::vector<int64_t>> kSplits = {{24}, {8, 8, 8}, {23, 1}, {1, 5, 18}};

TEST(Metrics, OfClasses) {
  const Data data = Random("ce", 24, 4, true);
  std::vector<int> predicted, actual;
  double top2 = 0, nll = 0, hits = 0, area = 0;
  std::vector<std::vector<double>> shares(4);
  for (int64_t i = 0; i < 24; ++i) {
    if (data.labels[i] < 0) continue;
    const double* s = &data.scores[i * 4];
    const int label = static_cast<int>(data.labels[i]);
    actual.push_back(label);
    predicted.push_back(static_cast<int>(std::max_element(s, s + 4) - s));
    hits += predicted.back() == label;
    top2 += std::count_if(s, s + 4, [&](double x) { return x > s[label]; }) < 2;
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += std::exp(s[k]);
    nll += std::log(sum) - s[label];
    for (int k = 0; k < 4; ++k) shares[k].push_back(std::exp(s[k]) / sum);
  }
  for (int k = 0; k < 4; ++k) {
    std::vector<bool> positive;
    for (int label : actual) positive.push_back(label == k);
    area += Area(shares[k], positive) / 4;
  }
  const double n = static_cast<double>(actual.size());
  const double f1 =
      (F1(predicted, actual, 0) + F1(predicted, actual, 1) + F1(predicted, actual, 2) + F1(predicted, actual, 3)) / 4;
  const double want[] = {hits / n, top2 / n, f1, f1, area, std::exp(nll / n)};
  for (const auto& split : kSplits) {
    const auto got = Evaluate(data, {"accuracy", "top2", "f1", "f1_macro", "auc", "perplexity"}, split);
    for (size_t m = 0; m < got.size(); ++m) EXPECT_NEAR(got[m], want[m], 1e-12) << m;
  }
}

TEST(Metrics, OfCoins) {
  const Data data = Random("bce", 24, 1, false);
  std::vector<int> predicted, actual;
  std::vector<bool> positive;
  for (int64_t i = 0; i < 24; ++i) {
    predicted.push_back(data.scores[i] > 0);
    actual.push_back(static_cast<int>(data.labels[i]));
    positive.push_back(actual.back() == 1);
  }
  const double f1 = F1(predicted, actual, 1);
  const double want[] = {f1, (f1 + F1(predicted, actual, 0)) / 2, Area(data.scores, positive)};
  for (const auto& split : kSplits) {
    const auto got = Evaluate(data, {"f1", "f1_macro", "auc"}, split);
    for (size_t m = 0; m < got.size(); ++m) EXPECT_NEAR(got[m], want[m], 1e-12) << m;
  }
}

TEST(Metrics, OfValues) {
  const Data data = Random("mse", 24, 3, false);
  double error = 0;
  for (size_t i = 0; i < data.scores.size(); ++i) error += std::fabs(data.scores[i] - data.labels[i]) / 72;
  for (const auto& split : kSplits) EXPECT_NEAR(Evaluate(data, {"mae"}, split)[0], error, 1e-12);
}

// As scikit-learn defines them: r2 is the mean over the targets.
TEST(Metrics, OfRegressions) {
  Data data = Random("mse", 24, 3, false);
  for (size_t i = 0; i < data.labels.size(); i += 3) data.labels[i] += 1e6;  // far from 0
  std::vector<double> want = {0, 0, 0, 0, 0, 0, 0, 0};                       // rmse, by target, r2, by target
  for (size_t t = 0; t < 3; ++t) {
    double mean = 0, errors = 0, squares = 0;
    for (size_t i = t; i < 72; i += 3) mean += data.labels[i] / 24;
    for (size_t i = t; i < 72; i += 3) {
      errors += std::pow(data.scores[i] - data.labels[i], 2);
      squares += std::pow(data.labels[i] - mean, 2);
    }
    want[1 + t] = std::sqrt(errors / 24);
    want[0] += errors / 72;
    want[5 + t] = 1 - errors / squares;
    want[4] += want[5 + t] / 3;
  }
  want[0] = std::sqrt(want[0]);
  for (const auto& split : kSplits) {
    const auto got = Evaluate(data, {"rmse", "r2"}, split);
    ASSERT_EQ(got.size(), want.size());
    for (size_t m = 0; m < got.size(); ++m) EXPECT_NEAR(got[m] / want[m], 1, 1e-9) << m;
  }
}

TEST(Metrics, OfTargetsWithoutVariance) {
  const Data met{.loss = "mse", .width = 1, .scores = {2, 2}, .labels = {2, 2}, .indices = false};
  EXPECT_EQ(Evaluate(met, {"r2"}, {1, 1}), std::vector<double>{1});
  const Data missed{.loss = "mse", .width = 1, .scores = {1, 2}, .labels = {2, 2}, .indices = false};
  EXPECT_EQ(Evaluate(missed, {"r2"}, {2}), std::vector<double>{0});
}

TEST(Metrics, AreUndefinedWhereNothingCounts) {
  Data data{.loss = "ce", .width = 2, .scores = {1, 2, 3, 4}, .labels = {-100, -100}, .indices = true};
  for (double value : Evaluate(data, {"accuracy", "top1", "auc", "perplexity"}, {2})) EXPECT_TRUE(std::isnan(value));
  data.labels = {1, 1};
  EXPECT_TRUE(std::isnan(Evaluate(data, {"auc"}, {2})[0]));
}

TEST(Metrics, RefusesWhatDoesNotFit) {
  const LossChoice classes{.terms = {{.function = FindLoss("ce"), .output = "y", .form = LabelForm::kClasses}}};
  const LossChoice values{.terms = {{.function = FindLoss("mse"), .output = "y", .form = LabelForm::kElements}}};
  const std::pair<const char*, const char*> rows[] = {{"mae", "loss cross_entropy on 'y' has none"},
                                                      {"top", "unknown; there are accuracy, topK"},
                                                      {"top0", "unknown"},
                                                      {"f2", "unknown"},
                                                      {"f1@z", "no loss is on an output 'z'"}};
  for (const auto& [name, part] : rows) {
    const auto metrics = ChooseMetrics({name}, classes);
    ASSERT_FALSE(metrics.ok()) << name;
    EXPECT_NE(std::string(metrics.status().message()).find(part), std::string::npos) << metrics.status();
  }
  EXPECT_FALSE(ChooseMetrics({"f1", "f1"}, classes).ok());
  EXPECT_FALSE(ChooseMetrics({"accuracy"}, values).ok());
  EXPECT_EQ((*ChooseMetrics({"top5"}, classes))[0].k, 5);
}

}  // namespace
}  // namespace onnxtrain
