// Runs of the program with low-rank adapters on a small network.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/step/session.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

using Json = nlohmann::json;

// x[batch,4] → relu(x·w1ᵀ + b1) [batch,16] → relu(h·w2) [batch,8] → ·w3 + b3 [batch,3]: weights stored both ways, as
// Gemm with transB and as MatMul, in modules of PyTorch's names.
inline tiny::Model Net() {
  tiny::Model m;
  m.nodes = {{"Gemm", {"x", "net.up.weight", "net.up.bias"}, {"h0"}, {}, {{"transB", 1}}},
             {"Relu", {"h0"}, {"h"}},
             {"MatMul", {"h", "net.mid.weight"}, {"g0"}},
             {"Relu", {"g0"}, {"g"}},
             {"MatMul", {"g", "net.out.weight"}, {"y0"}},
             {"Add", {"y0", "net.out.bias"}, {"y"}}};
  m.weights = {{"net.up.weight", {16, 4}, tiny::Uniform(64, 0.7f, 1)},
               {"net.up.bias", {16}, tiny::Uniform(16, 0.1f, 2)},
               {"net.mid.weight", {16, 8}, tiny::Uniform(128, 0.5f, 3)},
               {"net.out.weight", {8, 3}, tiny::Uniform(24, 0.6f, 4)},
               {"net.out.bias", {3}, {0, 0, 0}}};
  return m;
}

// Returns the programs that the cpu plans for batches of 16 samples of `edited`, whose labels are class indices.
inline std::vector<Graph> PlanPrograms(const std::shared_ptr<const OnnxModel>& edited, int64_t classes) {
  SessionOptions options{
      .labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = classes - 1},
      .micro_batch = 16,
      .plan_only = true};
  for (const LowRankUpdate& u : edited->edits().low_rank)
    options.trainable.adapters.insert(options.trainable.adapters.end(), {u.a_name(), u.b_name()});
  const auto backend = CreateBackend("cpu", {.threads = 2});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto session = Session::Create(edited, backend->get(), options);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Plan(16).ok());
  std::vector<Graph> graphs;
  for (const ProgramProfile& profile : (*session)->Profile()) graphs.push_back(profile.program->graph());
  return graphs;
}

class AdapterRuns : public RunScratch {
 protected:
  AdapterRuns() {
    Net().Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("test.npz"), Blobs(30, {.seed = 8})).ok());
  }

  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --data d.npz --eval-data test.npz --batch-size 16 --lr 0.02 --quiet " + flags);
  }

  HostTensor Weight(const std::string& model, const std::string& name) const {
    const auto loaded = OnnxModel::Load(Path(model));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return (*loaded)->parsed().graph.initializers.at(name).Clone();
  }

  std::map<std::string, HostTensor> Adapter(const std::string& folder) const {
    const auto arrays = ReadSafetensors(Path(folder + "/adapter_model.safetensors"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    return {arrays->begin(), arrays->end()};
  }
};

}  // namespace onnxtrain
