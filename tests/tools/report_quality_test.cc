// What report.html says of predictions at positions, of several labels and of several numbers.
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "optim/record/quality.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"
#include "tools/onnxtrain/report/quality_html.h"

namespace onnxtrain::cli {
namespace {

class ReportQuality : public RunScratch {
 protected:
  // Trains m.onnx on d.npz and returns the report.
  std::string Train(const std::string& flags) const {
    const Outcome o = Run(
        StrCat("--model m.onnx --data d.npz --eval-split last:0.5 --batch-size 8 --threads 1 --quiet --out r ", flags));
    EXPECT_EQ(o.code, 0) << o.err;
    return ReadAll(Path("r/report.html"));
  }
};

// x[n,1,8,8] → 1×1 convolution → scores of three classes at each pixel, which is one of three greys.
TEST_F(ReportQuality, Segmentation) {
  tiny::Model m{.input_shape = {-1, 1, 8, 8}};
  m.nodes = {{"Conv", {"x", "w", "b"}, {"y"}}};
  m.weights = {{"w", {3, 1, 1, 1}, {-8, 0, 8}}, {"b", {3}, {2, 2, -6}}};
  m.Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {24, 1, 8, 8}}), mask({DType::kInt64, {24, 8, 8}});
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t grey = (i / 5) % 3;
    x.Set(i, 0.5 * static_cast<double>(grey));
    mask.SetInt(i, i % 8 == 7 ? -100 : grey == 1 && i % 64 == 0 ? 2 : grey);  // some are wrong, some have no label
  }
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", mask}}).ok());
  const std::string html = Train("--lr 1e-6 --max-steps 1");
  EXPECT_NE(html.find("12 samples of the evaluation data, at equal distances, with 672 labels"), std::string::npos);
  EXPECT_NE(html.find("<th>IoU</th>"), std::string::npos);
  std::smatch accuracy;
  ASSERT_TRUE(std::regex_search(html, accuracy, std::regex("<td>accuracy</td><td>[^<]*</td><td>([0-9.]+) %")));
  EXPECT_NEAR(std::stod(accuracy[1]) / 100, Summary("r")["eval"]["accuracy"].get<double>(), 6e-4);
  EXPECT_NE(html.find("<img alt=\"label\""), std::string::npos);
  EXPECT_NE(html.find("<img alt=\"prediction\""), std::string::npos);
  EXPECT_NE(html.find(" % correct, loss "), std::string::npos);
}

TEST_F(ReportQuality, SeveralNumbersInTheirOwnUnits) {
  tiny::Model m{.input_shape = {-1, 2}};
  m.nodes = {{"MatMul", {"x", "w"}, {"o"}}, {"Add", {"o", "b"}, {"y"}}};
  m.weights = {{"w", {2, 2}, {1, 0, 0, 1}}, {"b", {2}, {0, 0}}};
  m.Save(Path("m.onnx"));
  std::string csv = "a,b,corn,rye\n";
  for (int i = 0; i < 40; ++i)
    StrAppend(&csv, i % 7, ",", i % 5, ",", 1000 + 100 * (i % 7), ",", 0.001 * (i % 5), "\n");
  WriteAll(Path("d.csv"), csv);
  const Outcome o =
      Run("--model m.onnx --data d.csv --input x=a,b --label corn,rye --eval-split last:0.5 --epochs 30 "
          "--batch-size 10 --lr 0.1 --optimizer adam --scale-targets --threads 1 --quiet --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string html = ReadAll(Path("r/report.html"));
  EXPECT_NE(html.find("corn: prediction over label"), std::string::npos);
  EXPECT_NE(html.find("rye: prediction over label"), std::string::npos);
  std::smatch corn;
  ASSERT_TRUE(std::regex_search(html, corn, std::regex("label corn: ([0-9.]+), rye: ([0-9.e-]+)</div>"))) << html;
  EXPECT_GE(std::stod(corn[1]), 1000);
  EXPECT_LE(std::stod(corn[2]), 0.004);
}

TEST_F(ReportQuality, SeveralLabels) {
  tiny::Model m{.input_shape = {-1, 2}};
  m.nodes = {{"MatMul", {"x", "w"}, {"o"}}, {"Sigmoid", {"o"}, {"y"}}};
  m.weights = {{"w", {2, 2}, {5, 0, 0, 5}}};
  m.Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {40, 2}}), y({DType::kFloat32, {40, 2}});
  for (int64_t i = 0; i < 80; ++i) {
    x.Set(i, i % 3 == 0 ? 1 : -1);
    y.Set(i, i % 3 == 0 && i != 78 ? 1 : 0);  // the first label of the last sample is wrong
  }
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  const std::string html = Train("--lr 1e-6 --max-steps 1");
  EXPECT_NE(html.find("<td>97.5 %</td>"), std::string::npos);  // of 20 samples with two labels each
  EXPECT_EQ(html.find("Confusion matrix"), std::string::npos);
  EXPECT_NE(html.find("<b>0</b></div><div>label none</div>"), std::string::npos);
}

// The scores of the evaluation data overflow.
TEST_F(ReportQuality, PredictionsOfNanAreWrong) {
  tiny::Model m{.input_shape = {-1, 2}};
  m.nodes = {{"MatMul", {"x", "w"}, {"y"}}};
  m.weights = {{"w", {2, 3}, {10, 1, 1, -10, 1, 1}}};
  m.Save(Path("m.onnx"));
  HostTensor x({DType::kFloat32, {48, 2}}), label({DType::kInt64, {48}});
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, i < 48 ? 0.1 : 3e38);
  for (int64_t i = 0; i < label.size(); ++i) label.SetInt(i, i % 3);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  const std::string html = Train("--lr 1e-6 --max-steps 1");
  EXPECT_NE(html.find("<td>accuracy</td><td>0.0 %</td><td>0.0 %</td>"), std::string::npos);
}

TEST_F(ReportQuality, TokensOfALanguageModelAreNoPictures) {
  SampleResult result{.labels = std::vector<double>(64, 1), .predictions = std::vector<double>(64, 2)};
  EXPECT_EQ(ClassMapsHtml(result, {64}), "");
  EXPECT_NE(ClassMapsHtml(result, {8, 8}), "");
  EXPECT_NE(ClassMapsHtml(result, {1, 8, 8}), "");
  result.labels.clear();  // not among the worst
  EXPECT_EQ(ClassMapsHtml(result, {8, 8}), "");
}

TEST(NumberErrors, AreThoseOfTheirFormulas) {
  Quality q{.kind = QualityKind::kNumbers, .samples = 2};
  q.results = {{.labels = {0, 7}, .predictions = {1, 7}}, {.labels = {4, 7}, .predictions = {1, 9}}};
  const NumberErrors first = ErrorsOf(q, 0), second = ErrorsOf(q, 1);
  EXPECT_DOUBLE_EQ(first.mae, 2);
  EXPECT_DOUBLE_EQ(first.rmse, std::sqrt(5));
  EXPECT_DOUBLE_EQ(first.spread, 2);
  EXPECT_DOUBLE_EQ(first.r2, 1 - 5.0 / 4);
  EXPECT_DOUBLE_EQ(second.rmse, std::sqrt(2));
  EXPECT_TRUE(std::isnan(second.r2));
}

}  // namespace
}  // namespace onnxtrain::cli
