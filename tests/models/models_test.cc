// Runs the program on every model in ../shared/models: gradients of both backends against each other and against
// float64 finite differences, 20 steps on one batch with each backend, export, evaluation of the exported model. Prints
// a table at the end; tools/check_models.sh shows only the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/rows.h"
#include "tests/models/specs.h"
#include "tests/shared_files.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kModels = SharedPath("models");

// Tolerance between the backends in float32, relative to the norm of each tensor.
constexpr double kBackends = 1e-4;
// A gradient on the edge of a Relu or maximum (see specs.h) may differ by kMoves times the change that a relative
// perturbation kNudge of the inputs causes.
constexpr double kNudge = 1e-5, kMoves = 1.5;
// Tolerance between the losses of the exported model and of the model in training.
constexpr double kReload = 1e-5;

struct Row {
  std::string backends = "-", differences = "-", cpu = "-", torch = "-", reload = "-";
};

// The table, printed when all tests have run.
class Table : public testing::Environment {
 public:
  static Row& At(const std::string& model) { return Rows()[model]; }
  void TearDown() override {
    if (Rows().empty()) return;
    std::printf("\n%-46s %-10s %-10s %-19s %-19s %s\n", "model", "backends", "float64", "cpu: 20 steps",
                "torch: 20 steps", "reload");
    for (const auto& [model, row] : Rows()) {
      std::printf("%-46s %-10s %-10s %-19s %-19s %s\n", model.c_str(), row.backends.c_str(), row.differences.c_str(),
                  row.cpu.c_str(), row.torch.c_str(), row.reload.c_str());
    }
  }

 private:
  static std::map<std::string, Row>& Rows() {
    static auto* rows = new std::map<std::string, Row>;
    return *rows;
  }
};
const auto* const kTable = testing::AddGlobalTestEnvironment(new Table);

std::string Format(const char* format, double a, double b = 0) {
  char text[64];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

HostTensor MnistTest(const std::string& part) {
  const auto tensor = ReadIdx(SharedPath("data/mnist_idx/t10k-" + part + "-ubyte.gz"), int64_t{1} << 30);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *tensor : HostTensor({DType::kUInt8, {10000, 28, 28}});
}

HostTensor Filled(const ModelColumn& column, int64_t batch) {
  Shape shape = column.sample.shape;
  shape.insert(shape.begin(), batch);
  HostTensor tensor({column.sample.dtype, shape});
  const int64_t width = tensor.size() / batch;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  static const HostTensor digits = MnistTest("images-idx3"), labels = MnistTest("labels-idx1");
  for (int64_t i = 0; i < tensor.size(); ++i) {
    switch (column.fill) {
      case Fill::kDigits:
        tensor.Set(i, digits.At(i / width * 784 + i % width) / 255);
        break;
      case Fill::kDigitLabels:
        tensor.SetInt(i, labels.IntAt(i));
        break;
      case Fill::kTokens:
        tensor.SetInt(i, static_cast<int64_t>(random() % column.limit));
        break;
      case Fill::kOnes:
        tensor.SetInt(i, 1);
        break;
      case Fill::kNormal:
        tensor.Set(i, normal(random));
    }
  }
  return tensor;
}

std::vector<double> Losses(const std::string& metrics) {
  std::vector<double> losses;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.value("event", "") == "step") losses.push_back(event["loss"]);
  }
  return losses;
}

double MaxDifference(const HostTensor& a, const HostTensor& b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a.At(i) - b.At(i), 2);
    norm += std::pow(a.At(i), 2);
  }
  return std::sqrt(difference / std::max(1e-300, norm));
}

class Model : public Scratch, public testing::WithParamInterface<ModelSpec> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_SHARED("models");
    NamedArrays arrays;
    for (const ModelColumn& column : spec().columns) arrays.emplace_back(column.name, Filled(column, spec().batch));
    ASSERT_TRUE(WriteNpz(Path("batch.npz"), arrays).ok());
  }

  const ModelSpec& spec() const { return GetParam(); }
  Row& row() const { return Table::At(spec().file); }

  std::string Flags(const std::string& model, const std::string& data = "batch.npz") const {
    return StrCat("--model ", model, " --data ", data, " --label label --batch-size ", spec().batch, " ", spec().flags,
                  " ");
  }
  // Exit code 2 says that some value disagrees by a measure of the program's own: the tests judge the numbers.
  Json Parsed(const Outcome& o) const {
    EXPECT_TRUE(o.code == 0 || o.code == 2) << o.err;
    return Json::parse(o.out, nullptr, false);
  }

  // The largest relative difference between the backends' outputs, loss and gradients.
  void CompareBackends() {
    const Json result =
        Parsed(Run("compare " + Flags(kModels + "/" + spec().file) + spec().gradient_flags + " --json --quiet"));
    ASSERT_TRUE(result.is_object());
    double worst = 0;
    std::map<std::string, double> on_edge;
    for (const Json& value : result["comparisons"].back()["values"]) {
      const double relative = value["relative"];
      worst = std::max(worst, relative);
      if (std::ranges::count(spec().on_edge, value["name"].get<std::string>()) > 0) {
        on_edge[value["name"]] = relative;
      } else {
        EXPECT_LE(relative, kBackends) << value["name"];
      }
    }
    row().backends = Format("%.1e", worst);
    ASSERT_EQ(on_edge.size(), spec().on_edge.size());
    if (on_edge.empty()) return;
    const std::map<std::string, double> moves = MovesByNudge();
    for (const auto& [name, relative] : on_edge)
      EXPECT_LE(relative, std::max(kBackends, kMoves * moves.at(name))) << name;
  }

  // How far libtorch's gradients move when the inputs move by rounding. Where some of many values stand on the edge of
  // a Relu or of a maximum, that decides which way their gradient goes.
  std::map<std::string, double> MovesByNudge() {
    auto arrays = ReadNpz(Path("batch.npz"));
    EXPECT_TRUE(arrays.ok());
    std::mt19937 random(2);
    std::normal_distribution<double> normal(1, kNudge);
    for (auto& [name, tensor] : *arrays) {
      for (int64_t i = 0; i < tensor.size() && name != "label"; ++i) tensor.Set(i, tensor.At(i) * normal(random));
    }
    EXPECT_TRUE(WriteNpz(Path("nudged.npz"), *arrays).ok());
    const auto gradients = [&](const std::string& data) {
      const Outcome o = Run("grad " + Flags(kModels + "/" + spec().file, data) + spec().gradient_flags +
                            " --backend torch --quiet --out of-" + data);
      EXPECT_EQ(o.code, 0) << o.err;
      return ReadNpz(Path("of-" + data));
    };
    const auto usual = gradients("batch.npz"), nudged = gradients("nudged.npz");
    std::map<std::string, double> moves;
    if (!usual.ok() || !nudged.ok()) return moves;
    for (size_t i = 0; i < usual->size(); ++i)
      moves[(*usual)[i].first] = MaxDifference((*usual)[i].second, (*nudged)[i].second);
    return moves;
  }

  void CompareDifferences() {
    const Json result =
        Parsed(Run(StrCat("compare ", Flags(kModels + "/" + spec().file), " --json --quiet --gradcheck ",
                          spec().coordinates, " --train '", spec().checked, "'")));
    ASSERT_TRUE(result.is_object());
    const Json& rows = result["gradcheck"]["parameters"];
    ASSERT_FALSE(rows.empty());
    row().differences = Format("%.1e", rows[0]["relative"].get<double>());
    EXPECT_TRUE(result["gradcheck"]["agrees"].get<bool>()) << rows[0];
  }

  // 20 steps on the one batch; then the exported model must lose as much on it as the trained one did.
  std::string Train(const std::string& backend) {
    const std::string flags = Flags(kModels + "/" + spec().file) + " --backend " + backend + " --quiet ";
    const Outcome trained = Run(flags + "--eval-data batch.npz --max-steps 20 --epochs 20 --out " + backend);
    EXPECT_EQ(trained.code, 0) << trained.err;
    if (trained.code != 0) return "fails";
    const std::vector<double> losses = Losses(ReadAll(Path(backend + "/metrics.jsonl")));
    EXPECT_EQ(losses.size(), 20u);
    if (losses.empty()) return "no steps";
    EXPECT_LT(losses.back(), losses.front());
    return Format("%.4g -> %.4g", losses.front(), losses.back());
  }

  void Reload(const std::string& backend) {
    const Json summary = Json::parse(ReadAll(Path(backend + "/summary.json")), nullptr, false);
    ASSERT_TRUE(summary.is_object());
    const Json again =
        Parsed(Run("eval " + Flags(backend + "/model.onnx") + " --backend " + backend + " --json --quiet"));
    ASSERT_TRUE(again.is_object()) << "no JSON";
    const double before = summary["eval"]["loss"], after = again["loss"];
    const double apart = std::fabs(after - before) / std::max(1e-6, std::fabs(before));
    row().reload = Format("%.1e", apart);
    EXPECT_LE(apart, kReload) << before << " in training, " << after << " reloaded";
  }
};

TEST_P(Model, TrainsAndGoesBack) {
  CompareBackends();
  CompareDifferences();
  row().cpu = Train("cpu");
  row().torch = Train("torch");
  if (Exists("cpu/summary.json")) Reload("cpu");
}

std::string TestName(const std::string& file) {
  std::string name;
  for (char c : file) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Shared, Model, testing::ValuesIn(ModelSpecs()),
                         [](const auto& info) { return TestName(info.param.file); });

using Models = Scratch;

TEST_F(Models, ThatCannotBeTrainedAreRefusedByName) {
  SKIP_WITHOUT_SHARED("models");
  for (const Refusal& refusal : Refusals()) {
    const Outcome o = Run("--model " + kModels + "/" + refusal.file + " --quiet");
    EXPECT_EQ(o.code, 1) << refusal.file;
    EXPECT_NE(o.err.find(refusal.reason), std::string::npos) << refusal.file << ": " << o.err;
  }
}

// PyTorch counts as many parameters: rotary frequencies are none, and relative positions have one bias each.
TEST_F(Models, TrainWhatTheFrameworkTrains) {
  SKIP_WITHOUT_SHARED("models");
  const std::map<std::string, int64_t> counts = {{"mistral_tiny_optimum.onnx", 26784},
                                                 {"swin_tiny_optimum.onnx", 35102}};
  for (const auto& [file, count] : counts) {
    const Outcome o = Run(StrCat("inspect --json --model ", kModels, "/", file));
    ASSERT_EQ(o.code, 0) << o.err;
    const Json page = Json::parse(o.out);
    int64_t trained = 0;
    for (const Json& weight : page["weights"]) {
      int64_t size = 1;
      for (const int64_t extent : weight["shape"]) size *= extent;
      trained += weight["trained"].get<bool>() ? size : 0;
    }
    EXPECT_EQ(trained, count) << file;
  }
}

// All of their weights are equal, so that gradients are of the order of 1e29: finite, but their squares are beyond
// float32.
TEST_F(Models, OfEqualWeightsTakeSteps) {
  for (const std::string model : {"light_inception_v1", "light_vgg19"}) {
    SKIP_WITHOUT_SHARED("conformance/light/" + model + ".onnx");
    const std::string file = SharedPath("conformance/light/" + model + ".onnx");
    for (const char* backend : {"cpu", "torch"}) {
      const Outcome o = Run(StrCat("--model ", file, " --backend ", backend,
                                   " --optimizer sgd --batch-size 1 --max-steps 2 --overwrite --quiet --out r"));
      ASSERT_EQ(o.code, 0) << model << " on " << backend << ": " << o.err;
      const Json summary = Json::parse(ReadAll(Path("r/summary.json")));
      EXPECT_EQ(summary["steps"], 2) << model << " on " << backend;
      EXPECT_EQ(summary["skipped_steps"], 0) << model << " on " << backend;
    }
  }
}

TEST_F(Models, DetectorsStart) {
  SKIP_WITHOUT_SHARED("models");
  for (const std::string& file : Detectors()) {
    const Outcome o = Run(StrCat("--model ", kModels, "/", file, " --batch-size 1 --max-steps 1 --quiet --out r"));
    ASSERT_EQ(o.code, 0) << file << ": " << o.err;
    const Json summary = Json::parse(ReadAll(Path("r/summary.json")));
    EXPECT_EQ(summary["steps"], 1) << file;
    EXPECT_EQ(summary["skipped_steps"], 0) << file;
  }
}

TEST_F(Models, AreAllInTheTable) {
  SKIP_WITHOUT_SHARED("models");
  std::set<std::string> known;
  for (const ModelSpec& spec : ModelSpecs()) known.insert(spec.file);
  for (const Refusal& refusal : Refusals()) known.insert(refusal.file);
  for (const std::string& file : Detectors()) known.insert(file);
  for (const auto& entry : fs::recursive_directory_iterator(kModels)) {
    if (entry.path().extension() != ".onnx") continue;
    EXPECT_TRUE(known.contains(fs::relative(entry.path(), kModels).string())) << entry.path();
  }
}

}  // namespace
}  // namespace onnxtrain
