#include "backends/bindings.h"

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

absl::StatusOr<HostTensor> FetchValue(const Graph& graph, const CompileOptions& options, ValueId value,
                                      const ValueReader& reader) {
  if (!options.keep_values) return absl::FailedPreconditionError("the program was not compiled to keep its values");
  if (value < 0 || value >= static_cast<ValueId>(graph.values().size())) return Invalid("there is no value ", value);
  const std::byte* data = reader.find(value);
  if (data == nullptr) return absl::NotFoundError(StrCat("value ", value, " has not been computed"));
  HostTensor tensor(graph.type(value));
  RETURN_IF_ERROR(reader.copy(tensor.mutable_bytes().data(), data, tensor.bytes().size()));
  return tensor;
}

bool NeedsRanks(const Node& node) { return FindOp(node.op)->collective && node.attrs.Int("ranks") > 1; }

absl::Status RankGroups::Bind(const Graph& graph, std::string_view name, Collectives* ranks) {
  for (const Node& node : graph.nodes()) {
    if (!FindOp(node.op)->collective || node.attrs.String("group") != name) continue;
    if (const int64_t size = node.attrs.Int("ranks"); size != ranks->size())
      return Invalid(NodeTag(node), "is of ", size, " ranks, group '", name, "' has ", ranks->size());
  }
  groups_[std::string(name)] = ranks;
  return absl::OkStatus();
}

Collectives* RankGroups::Find(const Node& node) const {
  if (groups_.empty() || !FindOp(node.op)->collective) return nullptr;
  const auto found = groups_.find(node.attrs.String("group"));
  return found != groups_.end() ? found->second : nullptr;
}

absl::Status RankGroups::CheckAllBound(const Graph& graph) const {
  for (const Node& node : graph.nodes()) {
    if (NeedsRanks(node) && Find(node) == nullptr)
      return absl::FailedPreconditionError(
          StrCat(NodeTag(node), "no group '", node.attrs.String("group"), "' of ranks is bound"));
  }
  return absl::OkStatus();
}

Bindings::Bindings(const Graph& graph, const MemoryPlan& plan)
    : graph_(&graph),
      plan_(&plan),
      bound_inputs_(graph.inputs().size()),
      inputs_(graph.inputs().size()),
      outputs_(graph.outputs().size()) {}

absl::Status Bindings::Bind(std::string_view name, size_t bytes, BufferView view, Address* address) {
  if (view.buffer == nullptr && bytes > 0) return Invalid("'", name, "' is bound to no buffer");
  if (view.offset % 64 != 0) return Invalid("'", name, "' is bound to offset ", view.offset, ", no multiple of 64");
  const size_t size = view.buffer == nullptr ? 0 : view.buffer->size();
  if (view.offset > size || bytes > size - view.offset)
    return Invalid("'", name, "' needs ", bytes, " bytes at offset ", view.offset, " of a buffer of ", size);
  *address = view.buffer == nullptr ? nullptr : static_cast<std::byte*>(view.buffer->data()) + view.offset;
  return absl::OkStatus();
}

absl::Status Bindings::BindInput(std::string_view name, BufferView view) {
  const GraphInput* input = graph_->FindInput(name);
  if (input == nullptr) return Invalid("the program has no input '", name, "'");
  const size_t i = input - graph_->inputs().data();
  RETURN_IF_ERROR(Bind(name, graph_->type(input->value).bytes(), view, &bound_inputs_[i]));
  inputs_[i] = bound_inputs_[i];
  return absl::OkStatus();
}

absl::Status Bindings::BindOutput(std::string_view name, BufferView view) {
  const GraphOutput* output = graph_->FindOutput(name);
  if (output == nullptr) return Invalid("the program has no output '", name, "'");
  if (output->into != kNoValue) return Invalid("output '", name, "' lives in an input");
  return Bind(name, graph_->type(output->value).bytes(), view, &outputs_[output - graph_->outputs().data()]);
}

bool Bindings::MoveInput(size_t input, std::byte* address) {
  const Address now = address == nullptr ? bound_inputs_[input] : address;
  const bool changed = inputs_[input] != now;
  inputs_[input] = now;
  return changed;
}

absl::Status Bindings::CheckAllBound() const {
  const auto check = [](const Address& address, std::string_view kind, std::string_view name) {
    if (address) return absl::OkStatus();
    return absl::FailedPreconditionError(StrCat(kind, " '", name, "' is not bound"));
  };
  for (size_t i = 0; i < inputs_.size(); ++i) RETURN_IF_ERROR(check(inputs_[i], "input", graph_->inputs()[i].name));
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const GraphOutput& output = graph_->outputs()[o];
    if (output.into == kNoValue) RETURN_IF_ERROR(check(outputs_[o], "output", output.name));
  }
  if (!arena_ && plan_->arena_bytes > 0) return absl::FailedPreconditionError("the arena is not bound");
  return absl::OkStatus();
}

std::byte* Bindings::At(const Place& place) const {
  switch (place.where) {
    case Place::Where::kArena:
      return arena() + place.offset;
    case Place::Where::kInput:
      return *inputs_[place.index];
    case Place::Where::kOutput:
      return *outputs_[place.index];
    case Place::Where::kOffloaded:
    case Place::Where::kConstant:
    case Place::Where::kNone:
      return nullptr;
  }
  return nullptr;
}

}  // namespace onnxtrain
