// A model whose layers are divided among ranks trains like the whole one. Ranks are threads with a session and Gloo
// connections each.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/tensor/tensor_session.h"
#include "optim/step/session.h"
#include "tests/optim/parallel/blob_batches.h"
#include "tests/optim/parallel/local_device.h"
#include "tests/optim/parallel/rank_threads.h"
#include "tests/optim/parallel/state_of_parts.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int kSteps = 6;
constexpr int64_t kWidth = 8, kTokens = 4, kHeads = 4, kClasses = 16;

// Writes a model as exporters do.
class Net {
 public:
  std::string Op(const std::string& type, std::vector<std::string> inputs,
                 std::map<std::string, std::vector<int64_t>> ints = {}, std::map<std::string, int64_t> numbers = {}) {
    const std::string output = StrCat("v", model_.nodes.size());
    model_.nodes.push_back({type, std::move(inputs), {output}, std::move(ints), std::move(numbers)});
    return output;
  }
  std::string Weight(std::vector<int64_t> shape, float bound = 0.4f) {
    const std::string name = StrCat("w", model_.weights.size());
    const int64_t n = NumElements(shape);
    model_.weights.push_back({name, std::move(shape), tiny::Uniform(n, bound, 17 + model_.weights.size())});
    return name;
  }
  std::string Ints(std::vector<int64_t> values) { return Op("Constant", {}, {{"value_ints", std::move(values)}}); }
  std::string Linear(const std::string& x, int64_t from, int64_t to) {
    return Op("Add", {Op("MatMul", {x, Weight({from, to})}), Weight({to})});
  }
  std::string Norm(const std::string& x) {
    return Op("LayerNormalization", {x, Weight({kWidth}, 1), Weight({kWidth})});
  }
  std::string Reshape(const std::string& x, std::vector<int64_t> shape) {
    return Op("Reshape", {x, Ints(std::move(shape))});
  }

  void Save(const std::string& y, const std::string& path) {
    model_.outputs = {y};
    model_.Save(path);
  }

 private:
  tiny::Model model_;
};

// [N, tokens, width] → [N, heads, tokens, width / heads], or with the last two axes exchanged.
std::string SplitHeads(Net& net, const std::string& x, int64_t heads, std::vector<int64_t> perm) {
  return net.Op("Transpose", {net.Reshape(x, {0, kTokens, heads, kWidth / kHeads})}, {{"perm", std::move(perm)}});
}

enum class Projection { kThree, kOne, kGrouped };

// Keys and values of half as many heads, each of which two heads of queries read.
std::string RepeatHeads(Net& net, const std::string& x) {
  const int64_t heads = kHeads / 2, size = kWidth / kHeads;
  const std::string five = net.Op("Unsqueeze", {x, net.Ints({2})});
  const std::string both = net.Op("Expand", {five, net.Ints({1, heads, 2, kTokens, size})});
  return net.Reshape(both, {0, kHeads, kTokens, size});
}

// A bias of keys has no gradient but rounding errors, which AdamW would divide by their own size.
std::string Attention(Net& net, const std::string& x, Projection projection, bool drops) {
  std::string q, k, v;
  if (projection == Projection::kOne) {
    const std::string all = net.Reshape(net.Linear(x, kWidth, 3 * kWidth), {0, kTokens, 3, kHeads, kWidth / kHeads});
    const std::string apart = net.Op("Transpose", {all}, {{"perm", {2, 0, 3, 1, 4}}});
    const auto part = [&](int64_t i) {
      return net.Op("Squeeze", {net.Op("Gather", {apart, net.Ints({i})}), net.Ints({0})});
    };
    q = part(0), k = net.Op("Transpose", {part(1)}, {{"perm", {0, 1, 3, 2}}}), v = part(2);
  } else {
    const bool grouped = projection == Projection::kGrouped;
    const int64_t heads = grouped ? kHeads / 2 : kHeads, width = heads * kWidth / kHeads;
    q = SplitHeads(net, net.Linear(x, kWidth, kWidth), kHeads, {0, 2, 1, 3});
    k = SplitHeads(net, net.Op("MatMul", {x, net.Weight({kWidth, width})}), heads, {0, 2, 1, 3});
    v = SplitHeads(net, net.Linear(x, kWidth, width), heads, {0, 2, 1, 3});
    if (grouped) k = RepeatHeads(net, k), v = RepeatHeads(net, v);
    k = net.Op("Transpose", {k}, {{"perm", {0, 1, 3, 2}}});
  }
  std::string p = net.Op("Softmax", {net.Op("MatMul", {q, k})}, {}, {{"axis", -1}});
  if (drops) p = net.Op("Dropout", {p});
  const std::string heads = net.Op("Transpose", {net.Op("MatMul", {p, v})}, {{"perm", {0, 2, 1, 3}}});
  return net.Linear(net.Reshape(heads, {0, kTokens, kWidth}), kWidth, kWidth);
}

// Embeddings by a table that is the head, too, two blocks, the mean over the tokens.
void SaveTransformer(const std::string& path, Projection projection, bool drops) {
  Net net;
  const std::string table = net.Weight({kClasses, kWidth}, 0.8f);
  const std::string ids = net.Op("Cast", {net.Op("Abs", {"x"})}, {}, {{"to", 7}});
  std::string h = net.Op("Add", {net.Op("Gather", {table, ids}), net.Weight({kTokens, kWidth})});
  for (int block = 0; block < 2; ++block) {
    h = net.Op("Add", {h, Attention(net, net.Norm(h), projection, drops)});
    std::string inner = net.Op("Relu", {net.Linear(net.Norm(h), kWidth, 4 * kWidth)});
    if (drops) inner = net.Op("Dropout", {inner});
    h = net.Op("Add", {h, net.Linear(inner, 4 * kWidth, kWidth)});
  }
  const std::string mean = net.Op("ReduceMean", {h}, {{"axes", {1}}}, {{"keepdims", 0}});
  net.Save(net.Op("MatMul", {mean, net.Op("Transpose", {table}, {{"perm", {1, 0}}})}), path);
}

// Convolutions with batch normalization in pairs, one of them by groups, and a classifier of the channels.
void SaveConvolutions(const std::string& path) {
  Net net;
  std::string h = net.Reshape("x", {0, 1, 2, 2});
  const auto conv = [&](int64_t from, int64_t to, int64_t groups) {
    const std::map<std::string, std::vector<int64_t>> ints = {{"pads", {1, 1, 1, 1}}, {"kernel_shape", {3, 3}}};
    h = net.Op("Conv", {h, net.Weight({to, from / groups, 3, 3}), net.Weight({to})}, ints, {{"group", groups}});
  };
  conv(1, 8, 1);
  h = net.Op("BatchNormalization",
             {h, net.Weight({8}, 1), net.Weight({8}), net.Weight({8}), net.Op("Abs", {net.Weight({8}, 1)})});
  h = net.Op("Relu", {h});
  conv(8, 8, 8);
  h = net.Op("Relu", {h});
  conv(8, 8, 1);
  h = net.Op("Relu", {h});
  h = net.Op("Relu", {net.Linear(net.Op("Flatten", {h}), 32, 16)});
  net.Save(net.Linear(h, 16, 3), path);
}

struct Trained {
  absl::Status status;
  std::map<std::string, HostTensor> weights, state;
  std::vector<double> losses, norms, evaluated;
  SessionMemory memory;
  NamedArrays parts;  // of the state, as this rank writes it
  int64_t sent_bytes = 0;
};

class Tensor : public Scratch {
 protected:
  static SessionOptions Complete(SessionOptions options) {
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    return options;
  }

  Trained TrainAs(int rank, int size, SessionOptions options) const {
    options = Complete(std::move(options));
    const auto backend = MakeTestBackend(library_);
    options.tensor = {rank, size};
    auto created = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend.get(), options);
    if (!created.ok()) return {.status = created.status()};
    Session& session = **created;
    Trained trained;
    const SessionCounters counters{.attempted = kSteps / 2, .micro_batch = options.micro_batch};
    if (!restored_.empty() && rank == 0) trained.status = session.Restore(restored_, counters);
    std::unique_ptr<Collectives> ranks;
    std::optional<DataParallel> parallel;
    if (size > 1) {
      auto met = CreateCollectives(
          {.rank = rank, .size = size, .file = Path(StrCat("meet", size)), .interface = "127.0.0.1", .timeout = 60});
      if (!met.ok()) return {.status = met.status()};
      ranks = *std::move(met);
      parallel.emplace(ranks.get(), session.ExchangedSums());
      parallel->SetScratchFolder(folder_);
      const absl::Status joined = session.Distribute(&*parallel, ShardLevel{});
      if (!joined.ok()) return {.status = joined};
    }
    if (!restored_.empty() && rank > 0) trained.status = session.RestoreCounters(counters);
    if (trained.status.ok()) trained.status = Steps(session, options.import.float_type, &trained);
    if (!trained.status.ok()) return trained;
    if (parallel) trained.sent_bytes = parallel->time().sent_bytes;
    trained.memory = session.memory();
    if (session.divides_moments()) trained.parts = ReadParts(session);
    trained.status = session.GatherState();
    trained.weights = session.Weights().value();
    const std::vector<StateTensor> state = session.State().value();
    for (const StateTensor& tensor : state) {
      if (tensor.region.view.buffer != nullptr) trained.state[tensor.name] = ReadRegion(tensor.region).value();
    }
    return trained;
  }

  absl::Status Steps(Session& session, DType dtype, Trained* trained) const {
    for (int64_t step = session.steps(); step < steps_; ++step) {
      RETURN_IF_ERROR(session.Step(MakeBatch(step * kBatch % (kSamples + kSamples % kBatch), dtype)));
      ASSIGN_OR_RETURN(const StepReport report, session.Report());
      trained->losses.push_back(report.loss);
      trained->norms.push_back(report.grad_norm);
    }
    ASSIGN_OR_RETURN(const Evaluation evaluation, session.Evaluate(MakeBatch(0, dtype)));
    trained->evaluated = {evaluation.loss_sums[0], evaluation.correct};
    return absl::OkStatus();
  }

  std::vector<Trained> TrainAll(int size, const SessionOptions& options) const {
    return RunRanks(Path(StrCat("meet", size)), size, [&](int rank) { return TrainAs(rank, size, options); });
  }

  static void ExpectNear(const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
  }

  static void ExpectNear(const std::map<std::string, HostTensor>& a, const std::map<std::string, HostTensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) {
      for (int64_t i = 0; i < value.size(); ++i) ASSERT_NEAR(value.At(i), b.at(name).At(i), 1e-12) << name;
    }
  }

  void ExpectSame(SessionOptions options, const std::vector<int>& sizes) const {
    options.import.float_type = DType::kFloat64;
    const Trained one = TrainAll(1, options)[0];
    ASSERT_TRUE(one.status.ok()) << one.status;
    for (const int size : sizes) {
      const std::vector<Trained> all = TrainAll(size, options);
      for (const Trained& t : all) {
        ASSERT_TRUE(t.status.ok()) << t.status;
        ExpectNear(t.losses, one.losses);
        ExpectNear(t.norms, one.norms);
        EXPECT_LT(t.memory.parameters, one.memory.parameters);
        EXPECT_LT(t.memory.moments, one.memory.moments);
      }
      ExpectNear(all.back().evaluated, one.evaluated);
      ExpectNear(all[0].weights, one.weights);
      ExpectNear(all[0].state, one.state);
      ExpectParts(ListParts(all), all[0].state);
    }
  }

  std::string library_ = "cpu";
  int64_t steps_ = kSteps;
  std::map<std::string, HostTensor> restored_;
};

TEST_F(Tensor, TrainsTheModelsOfOneOnDevices) {
  library_ = kLocalDevice;
  SaveTransformer(Path("m.onnx"), Projection::kThree, false);
  ExpectSame({.optimizer = {.lr = 0.02, .max_grad_norm = 0.5}, .micro_batch = 16}, {2});
  SaveConvolutions(Path("m.onnx"));
  ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = 16}, {2});
}

TEST_F(Tensor, TrainsTheTransformerOfOne) {
  SaveTransformer(Path("m.onnx"), Projection::kThree, false);
  ExpectSame({.optimizer = {.lr = 0.02, .weight_decay = 0.1, .max_grad_norm = 0.5}, .micro_batch = 16}, {2, 4});
}

TEST_F(Tensor, DropsTheElementsOfOne) {
  SaveTransformer(Path("m.onnx"), Projection::kThree, true);
  ExpectSame({.optimizer = {.rule = "sgd", .lr = 0.1, .momentum = 0.9}, .micro_batch = 6}, {2});
}

TEST_F(Tensor, DividesOneProjectionByHeads) {
  SaveTransformer(Path("m.onnx"), Projection::kOne, false);
  ExpectSame({.optimizer = {.rule = "sgd", .lr = 0.1, .momentum = 0.9}, .micro_batch = 16}, {2, 4});
}

TEST_F(Tensor, DividesGroupedKeys) {
  SaveTransformer(Path("m.onnx"), Projection::kGrouped, false);
  ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = 16}, {2});
}

TEST_F(Tensor, TrainsTheConvolutionsOfOne) {
  SaveConvolutions(Path("m.onnx"));
  ExpectSame({.optimizer = {.lr = 0.02}, .micro_batch = 16}, {2, 4});
}

TEST_F(Tensor, TakesAndSendsWhatIsPlanned) {
  SaveTransformer(Path("m.onnx"), Projection::kThree, false);
  steps_ = 3;  // the first one is not counted
  const SessionOptions options{.optimizer = {.lr = 0.02}, .micro_batch = 4};
  const auto backend = CreateBackend("cpu", {.threads = 1}).value();
  const auto models = std::make_shared<PreparedModels>(OnnxModel::Load(Path("m.onnx")).value());
  SessionOptions planned = Complete(options);
  planned.tensor.count = 2;
  const auto plan = PlanPart(models, *backend, planned, kBatch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->divided_weights, 10);
  EXPECT_LT(plan->divided_weights, plan->trained_weights) << "normalizations are whole";
  for (const Trained& t : TrainAll(2, options)) {
    ASSERT_TRUE(t.status.ok()) << t.status;
    EXPECT_EQ(t.sent_bytes, 2 * plan->sent_bytes);
    for (int64_t SessionMemory::*bytes :
         {&SessionMemory::parameters, &SessionMemory::gradients, &SessionMemory::moments})
      EXPECT_EQ(t.memory.*bytes, plan->memory.*bytes);
  }
}

TEST_F(Tensor, GoesOnFromTheStateOfOne) {
  SaveTransformer(Path("m.onnx"), Projection::kThree, false);
  const SessionOptions options{.import = {.float_type = DType::kFloat64}, .optimizer = {.lr = 0.02}, .micro_batch = 16};
  const Trained whole = TrainAll(1, options)[0];
  steps_ = kSteps / 2;
  restored_ = TrainAll(1, options)[0].state;
  steps_ = kSteps;
  const Trained resumed = TrainAll(2, options)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  ExpectNear(resumed.weights, whole.weights);
}

TEST_F(Tensor, RefusesWhatCannotBeDivided) {
  tiny::Mlp(3).Save(Path("m.onnx"));
  for (const Trained& t : TrainAll(5, {.micro_batch = 4})) {
    EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(t.status.message(), "`tensor` 5: no weight of the model has parts that 5 ranks could compute with");
  }
  for (const Trained& t : TrainAll(2, {.optimizer = {.rule = "lamb"}, .micro_batch = 4}))
    EXPECT_EQ(t.status.code(), absl::StatusCode::kInvalidArgument) << t.status;
}

}  // namespace
}  // namespace onnxtrain
