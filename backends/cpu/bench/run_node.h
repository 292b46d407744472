// Runs single nodes with the kernels of this backend, and sequences of oneDNN primitives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dnnl.hpp>
#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::bench {

using Run = std::function<void()>;     // computes the operation once
using Prepare = std::function<Run()>;  // allocates memory and prepares kernels

// Registers the benchmarks "NAME/own" and "NAME/oneDNN". `operations`: additions and multiplications of one run, for
// the column of GF/s; 0: none.
void Compare(const std::string& name, Prepare own, Prepare onednn, double operations = 0);

// Register the comparisons of one family of kernels each.
void CompareConvWeightGrad();
void ComparePool();
void CompareBatchNorm();
void ComparePack();
void CompareAttention();
void CompareDequantize();
void CompareLoop();
void CompareProduct();

// Allocates 64-byte aligned memory with random floats in [-1, 1) if the type is f32 or bf16, else with zeros.
std::shared_ptr<void> MakeBuffer(DType dtype, size_t bytes);

// Owns a node and its buffers. Ends the process if the node cannot be typed or has no kernel.
class NodeRunner {
 public:
  NodeRunner(std::string_view op, const std::vector<std::optional<Type>>& inputs, const Attrs& attrs);
  NodeRunner(const NodeRunner&) = delete;

  void Run() const;
  const Type& output_type(size_t i) const { return graph_.type(node().outputs[i]); }
  const std::shared_ptr<void>& output(size_t i) const { return outputs_[i]; }
  void SetInput(size_t i, std::shared_ptr<void> buffer) { inputs_[i] = std::move(buffer); }

 private:
  const Node& node() const { return graph_.nodes().back(); }

  Graph graph_;
  cpu::Kernel kernel_;
  std::vector<std::shared_ptr<void>> inputs_, outputs_;
  std::shared_ptr<void> workspace_;
};

// Returns a function that runs the node. Inputs may be absent.
Run MakeNodeRun(std::string_view op, const std::vector<std::optional<Type>>& inputs, const Attrs& attrs);

// Runs primitives in the order in which they were added.
class DnnlSequence {
 public:
  // Allocates memory with random contents.
  static dnnl::memory MakeMemory(const dnnl::memory::desc& desc);

  DnnlSequence& Add(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> args);
  void Run();

 private:
  struct Step {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> args;
  };
  dnnl::stream stream_{cpu::Engine()};
  std::vector<Step> steps_;
};

// Returns a function that runs the primitives.
Run MakeDnnlRun(std::shared_ptr<DnnlSequence> sequence);

}  // namespace onnxtrain::bench
