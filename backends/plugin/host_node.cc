#include "backends/plugin/host_node.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string InputName(size_t i) { return StrCat("x", i); }
std::string OutputName(size_t o) { return StrCat("y", o); }

// Returns a graph of the node and the constants that it reads.
Graph MakeGraph(const Graph& graph, const Node& node, const std::vector<bool>& wanted) {
  Graph alone;
  std::map<ValueId, ValueId> known;
  ValueIds inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    const auto seen = known.find(v);
    if (v == kNoValue || seen != known.end()) {
      inputs.push_back(v == kNoValue ? kNoValue : seen->second);
      continue;
    }
    const Node* producer = graph.producer(v);
    inputs.push_back(graph.FindConstant(v) != nullptr
                         ? alone.AddNode(producer->op, {}, producer->attrs, {graph.type(v)}).outputs[0]
                         : alone.AddInput(InputKind::kFeed, InputName(i), graph.type(v)));
    known[v] = inputs.back();
  }
  const ValueIds outputs = alone.AddCopy(graph, node, std::move(inputs)).outputs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (wanted[o]) alone.AddOutput(OutputName(o), outputs[o]);
  }
  return alone;
}

// Wraps memory at an address as a Buffer, for bindings.
class Borrowed : public Buffer {
 public:
  Borrowed(void* address, size_t size) : address_(address), size_(size) {}
  size_t size() const override { return size_; }
  void* data() override { return address_; }
  absl::Status Write(size_t, std::span<const std::byte>) override { return absl::UnimplementedError("only bound"); }
  absl::Status Read(size_t, std::span<std::byte>) const override { return absl::UnimplementedError("only bound"); }

 private:
  void* address_;
  size_t size_;
};

// Returns true if the memory plan may place an output in the memory of an input.
bool MayOverwrite(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row->elementwise || row->overwrites != 0;
}

int64_t CountKernels(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [](const Node& node) { return !node.inputs.empty(); });
}

}  // namespace

bool HostRuns(const Backend& host, const Graph& graph, const Node& node) {
  if (host.Supports(graph, node)) return true;
  return host.Legalize(MakeGraph(graph, node, std::vector<bool>(node.outputs.size(), true))).ok();
}

absl::StatusOr<std::unique_ptr<HostNode>> HostNode::Make(Backend& host, const Graph& graph, const Node& node,
                                                         const std::vector<bool>& wanted) {
  const Graph alone = MakeGraph(graph, node, wanted);
  ASSIGN_OR_RETURN(const Graph legal, host.Legalize(alone));
  auto made = std::make_unique<HostNode>();
  ASSIGN_OR_RETURN(made->program_, host.Compile(legal, {}));
  const Graph& compiled = made->program_->graph();
  for (const GraphInput& input : compiled.inputs()) {
    const size_t index = std::stoul(input.name.substr(1));
    made->inputs_.push_back({.index = index, .bytes = compiled.type(input.value).bytes()});
  }
  made->workspace_ = Aligned(made->program_->memory().arena);
  made->stages_ = MayOverwrite(node) && CountKernels(compiled) > 1;
  for (const GraphOutput& output : compiled.outputs()) {
    Operand operand{.index = std::stoul(output.name.substr(1)), .bytes = compiled.type(output.value).bytes()};
    if (made->stages_) {
      operand.staged = made->workspace_;
      made->workspace_ += Aligned(operand.bytes);
    }
    made->outputs_.push_back(operand);
  }
  return made;
}

absl::Status HostNode::Bind(void* const* inputs, void* const* outputs, std::byte* workspace) {
  for (Operand& input : inputs_) {
    input.bound = inputs[input.index];
    Borrowed memory(input.bound, input.bytes);
    RETURN_IF_ERROR(program_->BindInput(InputName(input.index), {&memory, 0}));
  }
  for (Operand& output : outputs_) {
    output.bound = outputs[output.index];
    Borrowed memory(stages_ ? workspace + output.staged : output.bound, output.bytes);
    RETURN_IF_ERROR(program_->BindOutput(OutputName(output.index), {&memory, 0}));
  }
  Borrowed arena(workspace, program_->memory().arena);
  RETURN_IF_ERROR(program_->BindArena({&arena, 0}));
  bound_workspace_ = workspace;
  bound_ = true;
  return absl::OkStatus();
}

// Updates the addresses of the inputs, which may differ in every run.
absl::Status HostNode::MoveInputs(void* const* inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Operand& input = inputs_[i];
    if (inputs[input.index] == input.bound) continue;
    input.bound = inputs[input.index];
    const auto* data = static_cast<const std::byte*>(input.bound);
    if (input.bytes == 0 || program_->ReadInPlace(i, data)) continue;
    Borrowed memory(input.bound, input.bytes);
    RETURN_IF_ERROR(program_->BindInput(InputName(input.index), {&memory, 0}));
  }
  return absl::OkStatus();
}

absl::Status HostNode::Run(void* const* inputs, void* const* outputs, void* workspace) {
  const auto moved = [&](const Operand& output) { return outputs[output.index] != output.bound; };
  if (!bound_ || workspace != bound_workspace_ || std::ranges::any_of(outputs_, moved)) {
    RETURN_IF_ERROR(Bind(inputs, outputs, static_cast<std::byte*>(workspace)));
  } else {
    RETURN_IF_ERROR(MoveInputs(inputs));
  }
  RETURN_IF_ERROR(program_->Run());
  if (!stages_) return absl::OkStatus();
  for (const Operand& output : outputs_) {
    if (output.bytes > 0) std::memcpy(output.bound, static_cast<std::byte*>(workspace) + output.staged, output.bytes);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
