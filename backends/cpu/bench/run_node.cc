#include "backends/cpu/bench/run_node.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>

#include "frontend/base/small_float.h"
#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"

namespace onnxtrain::bench {
namespace {

constexpr std::align_val_t kAlignment{64};

[[noreturn]] void Die(std::string_view op, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", std::string(op).c_str(), status.ToString().c_str());
  std::exit(1);
}

void FillRandom(DType dtype, size_t bytes, void* data) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (dtype == DType::kFloat32) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i) static_cast<float*>(data)[i] = uniform(random);
  } else if (dtype == DType::kBFloat16) {
    for (size_t i = 0; i < bytes / 2; ++i) static_cast<uint16_t*>(data)[i] = FloatToBFloat16(uniform(random));
  } else {
    std::memset(data, 0, bytes);
  }
}

DType FromDnnl(dnnl::memory::data_type type) {
  return type == dnnl::memory::data_type::f32    ? DType::kFloat32
         : type == dnnl::memory::data_type::bf16 ? DType::kBFloat16
                                                 : DType::kUInt8;
}

std::vector<void*> GetPointers(const std::vector<std::shared_ptr<void>>& buffers) {
  std::vector<void*> pointers;
  for (const auto& buffer : buffers) pointers.push_back(buffer.get());
  return pointers;
}

}  // namespace

std::shared_ptr<void> MakeBuffer(DType dtype, size_t bytes) {
  std::shared_ptr<void> buffer(::operator new(bytes + 64, kAlignment),
                               [](void* p) { ::operator delete(p, kAlignment); });
  FillRandom(dtype, bytes, buffer.get());
  return buffer;
}

NodeRunner::NodeRunner(std::string_view op, const std::vector<std::optional<Type>>& inputs, const Attrs& attrs) {
  Builder b(&graph_);
  std::vector<Val> values;
  for (const std::optional<Type>& type : inputs) {
    values.push_back(type ? b.Input(InputKind::kFeed, StrCat("i", values.size()), *type) : Val());
    inputs_.push_back(type ? MakeBuffer(type->dtype, type->bytes()) : nullptr);
  }
  b.Ops(op, values, attrs);
  if (!b.status().ok()) Die(op, b.status());
  auto kernel = cpu::PrepareKernel(graph_, node());
  if (!kernel.ok()) Die(op, kernel.status());
  kernel_ = *std::move(kernel);
  for (ValueId v : node().outputs) outputs_.push_back(MakeBuffer(DType::kUInt8, graph_.type(v).bytes()));
  workspace_ = MakeBuffer(DType::kUInt8, kernel_.workspace);
}

void NodeRunner::Run() const {
  const std::vector<void*> inputs = GetPointers(inputs_), outputs = GetPointers(outputs_);
  kernel_.run({.inputs = inputs.data(), .outputs = outputs.data(), .workspace = workspace_.get()});
}

Run MakeNodeRun(std::string_view op, const std::vector<std::optional<Type>>& inputs, const Attrs& attrs) {
  return [node = std::make_shared<NodeRunner>(op, inputs, attrs)] { node->Run(); };
}

dnnl::memory DnnlSequence::MakeMemory(const dnnl::memory::desc& desc) {
  dnnl::memory memory(desc, cpu::Engine());
  FillRandom(FromDnnl(desc.data_type()), desc.get_size(), memory.get_data_handle());
  return memory;
}

DnnlSequence& DnnlSequence::Add(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> args) {
  steps_.push_back({std::move(primitive), std::move(args)});
  return *this;
}

void DnnlSequence::Run() {
  for (Step& step : steps_) step.primitive.execute(stream_, step.args);
}

Run MakeDnnlRun(std::shared_ptr<DnnlSequence> sequence) {
  return [sequence = std::move(sequence)] { sequence->Run(); };
}

}  // namespace onnxtrain::bench
