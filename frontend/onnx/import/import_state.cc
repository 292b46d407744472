#include "frontend/onnx/import/import_state.h"

#include <algorithm>
#include <optional>

#include "frontend/base/status.h"

namespace onnxtrain {

std::optional<ImportValue> SymbolTable::Find(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  for (ImportScope* at = &scope; at != nullptr; at = at->parent) {
    if (auto it = at->values.find(name); it != at->values.end())
      return it->second.valid() ? std::optional<ImportValue>(it->second) : std::nullopt;
    if (auto it = at->graph->initializers.find(name); it != at->graph->initializers.end()) {
      const Val v = weights_.ReadInitializer(*at, name, it->second, reader);
      return at->values[name] = v;
    }
    if (auto it = at->graph->opaque.find(name); it != at->graph->opaque.end()) {
      errors_.Add(reader,
                  absl::UnimplementedError(StrCat("initializer '", Printable(name), "' is a tensor of ", it->second)));
      at->values[name] = Val();
      return std::nullopt;
    }
  }
  return ImportValue();
}

std::optional<Val> SymbolTable::FindTensor(ImportScope& scope, const std::string& name, const ParsedNode& reader) {
  const std::optional<ImportValue> value = Find(scope, name, reader);
  if (!value) return std::nullopt;
  if (value->list == nullptr) return value->tensor;
  errors_.Add(reader, Invalid("reads '", Printable(name), "', which is ",
                              value->list->form.optional ? "an optional" : "a sequence", ", as a tensor"));
  return std::nullopt;
}

bool SymbolTable::CanRead(ImportScope& scope, const ParsedNode& node) {
  auto found = [&](const std::string& name) { return name.empty() || Find(scope, name, node); };
  return std::ranges::all_of(node.inputs, found) && std::ranges::all_of(node.captured, found);
}

ImportValues SymbolTable::FindInputs(ImportScope& scope, const ParsedNode& node) {
  ImportValues inputs;
  for (const std::string& name : node.inputs) inputs.push_back(name.empty() ? ImportValue() : *Find(scope, name, node));
  return inputs;
}

void SymbolTable::Bind(ImportScope& scope, const ParsedNode& node, const ImportValues& results) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const ImportValue value = i < results.size() ? results[i] : ImportValue();
    scope.values[node.outputs[i]] = value;
    const Val v = value.tensor;
    if (v.valid() && builder_.graph().value(v.id()).name->empty())
      builder_.graph().SetValueName(v.id(), scope.prefix + node.outputs[i]);
  }
}

namespace {

struct BatchChange {
  int64_t fixed, batch;  // the batch of the file, and the new one
};

// Returns the target with 0 and -1 resolved for data of the fixed batch with `elements` elements; nullopt if it does
// not fit that data.
std::optional<Shape> ResolveTarget(const Shape& data, Shape target, int64_t elements) {
  int64_t rest = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && i < data.size()) target[i] = data[i];
    if (target[i] == 0 || target[i] < -1 || target[i] > elements / rest) return std::nullopt;
    if (target[i] > 0) rest *= target[i];
  }
  if (elements % rest != 0) return std::nullopt;
  const auto open = std::ranges::find(target, -1);
  if (open != target.end()) {
    *open = elements / rest;
  } else if (rest != elements) {
    return std::nullopt;
  }
  return target;
}

// Returns the possible numbers of elements per batch index, for each axis that is the batch or has it as its outer or
// inner factor.
std::vector<int64_t> InnerSizes(const Shape& data, int64_t batch) {
  std::vector<int64_t> exact, outer, inner;
  int64_t behind = 1;
  for (size_t i = data.size(); i-- > 0; behind *= data[i]) {
    if (data[i] == batch) exact.insert(exact.begin(), behind);
    if (data[i] == batch || data[i] % batch != 0) continue;
    outer.insert(outer.begin(), data[i] / batch * behind);
    inner.insert(inner.begin(), behind);
  }
  exact.insert(exact.end(), outer.begin(), outer.end());
  exact.insert(exact.end(), inner.begin(), inner.end());
  return exact;
}

// Scales the one extent of the target that contains the batch. Elements keep their order, so the extent must have as
// many elements per batch index as the data. If several extents fit, running the model reveals a wrong choice.
bool UnfixReshape(const Shape& data, BatchChange change, std::vector<int64_t>* target) {
  const auto [fixed_batch, batch] = change;
  const int64_t elements = NumElements(data);
  if (elements == 0 || elements % batch != 0) return false;
  const std::optional<Shape> fixed = ResolveTarget(data, *target, elements / batch * fixed_batch);
  if (!fixed) return false;
  for (const int64_t inner : InnerSizes(data, batch)) {
    int64_t from = NumElements(*fixed);  // elements of this axis and the following ones
    for (size_t i = 0; i < fixed->size(); from /= (*fixed)[i], ++i) {
      if ((*fixed)[i] % fixed_batch != 0 || from / fixed_batch != inner) continue;
      if ((*target)[i] <= 0) return false;  // 0 and -1 are inferred
      (*target)[i] = (*fixed)[i] / fixed_batch * batch;
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status BatchUnfixer::UnfixNode(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs) {
  if (fixed_ == 0 || !node.domain.empty()) return absl::OkStatus();
  if (node.op_type == "Concat") return UnfixConcat(inputs, *attrs), absl::OkStatus();
  const size_t at = GetOnnxTraits(node).extents_input;
  if (at == 0 || inputs->empty() || attrs->Has("axes")) return absl::OkStatus();
  const HostTensor* known = inputs->size() > at ? known_.Find((*inputs)[at]) : nullptr;
  std::vector<int64_t> target = known != nullptr ? known->ToInts() : attrs->Ints("shape");
  if (target.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool changed, UnfixShape(node, inputs->front(), &target));
  if (!changed) return absl::OkStatus();
  if (known != nullptr) {
    (*inputs)[at] = builder_.Ints(target);
  } else {
    attrs->Set("shape", target);
  }
  notes_.push_back(
      StrCat(node.op_type, " '", node.source, "': the batch of ", fixed_, " in its target became ", batch_));
  return absl::OkStatus();
}

// Returns true if a constant is repeated for each sample of the fixed batch.
bool BatchUnfixer::RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead) {
  if (node.op_type == "Reshape" || known_.MayHoldBatch(data) || fixed_ == 1 || lead != fixed_) return false;
  return data.rank() == 0 || data.dim(0) == 1;
}

absl::StatusOr<bool> BatchUnfixer::UnfixShape(const ParsedNode& node, Val data, std::vector<int64_t>* target) {
  int64_t& lead = target->front();
  if (RepeatsForBatch(node, data, lead)) return lead = batch_, true;
  if (node.op_type == "Tile" || !known_.MayHoldBatch(data) || data.rank() == 0) return false;
  if (data.dim(0) == batch_ && lead == batch_) return false;
  if (data.dim(0) == batch_ && lead == fixed_) return lead = batch_, true;
  return node.op_type == "Reshape" && UnfixReshape(data.shape(), {fixed_, batch_}, target);
}

// Expands constants of the fixed batch 1 (class tokens, initial states) that are concatenated with values of the new
// batch.
void BatchUnfixer::UnfixConcat(std::vector<Val>* inputs, const Attrs& attrs) {
  const int64_t axis = attrs.Int("axis", 1);
  auto is_batched = [&](Val v) { return known_.MayHoldBatch(v) && v.rank() > 0 && v.dim(0) == batch_; };
  if (axis == 0 || fixed_ != 1 || std::ranges::none_of(*inputs, is_batched)) return;
  for (Val& v : *inputs) {
    if (!v.valid() || known_.MayHoldBatch(v) || v.rank() == 0 || axis == -v.rank() || v.dim(0) != 1) continue;
    Shape shape = v.shape();
    shape[0] = batch_;
    v = Expand(v, shape);
  }
}

absl::Status BatchUnfixer::CheckOutputs(const ParsedGraph& model, const InputShapes& shapes) const {
  if (fixed_ == 0) return absl::OkStatus();
  const Graph& graph = builder_.graph();
  for (const ParsedValue& output : model.outputs) {
    const GraphOutput* bound = graph.FindOutput(output.name);
    const int axis = shapes.BatchAxis(output);
    if (bound == nullptr || axis < 0 || axis >= std::ssize(output.dims) || output.dims[axis] != fixed_) continue;
    const Type& type = graph.type(bound->value);
    if (type.rank() > 0 && type.shape[0] == batch_) continue;
    const Node* node = graph.producer(bound->value);
    return Invalid(node == nullptr ? "" : NodeTag(*node), "output '", Printable(output.name), "' is ", ToString(type),
                   ": the model was exported for a batch of ", fixed_, " and does not follow a batch of ", batch_);
  }
  return absl::OkStatus();
}

namespace {

constexpr size_t kFoldLimit = size_t{16} << 20;  // bytes of one folded constant

}  // namespace

ImportState::ImportState(const OnnxModel::Parsed& parsed, const ImportOptions& import_options,
                         const LiveGraph& live_graph, const InputShapes& shapes, std::vector<std::string>* import_notes)
    : model(parsed),
      options(import_options),
      live(live_graph),
      types(options.float_type, options.conformance, HasDoubleWeights(parsed.graph)),
      builder(&graph),
      weights(model.graph, live, types, options, model.edits, &builder),
      filled_weights(model.graph, live, types),
      known(&builder, &weights, !options.conformance),
      batch_unfixer(shapes.fixed_batch(), shapes.batch(), &builder, &known, import_notes),
      symbols(&builder, &weights, &errors),
      top{.graph = &model.graph, .opsets = &model.opsets} {
  // In conformance cases the backend must compute constants, too.
  if (!options.conformance) builder.set_fold_limit(kFoldLimit);
}

}  // namespace onnxtrain
