#include "frontend/onnx/import/node_context.h"

#include "frontend/base/status.h"
#include "frontend/onnx/import/operator_importer.h"

namespace onnxtrain {
namespace {

// FNV-1a, 31 bits.
int64_t HashName(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash >> 1;
}

}  // namespace

NodeImportContext::NodeImportContext(ImportState& state, const ImportScope& scope, const ParsedNode& parsed,
                                     const NodeView& view)
    : state_(state), scope_(scope), parsed_(parsed) {
  const ImportOptions& options = state.options;
  node_ = &view;
  b_ = &state.builder;
  training = options.training;
  batch_norm_frozen = options.batch_norm_frozen || HasFrozenScale(options, parsed);
  dropout = options.dropout;
  float_type = options.float_type;
  conformance = options.conformance;
}

Val NodeImportContext::AttributeWeight(std::string_view attribute, HostTensor tensor) {
  if (!scope_.is_top() || conformance) return b_->Constant(std::move(tensor));
  return state_.weights.AddFromAttribute(parsed_, attribute, tensor);
}

void NodeImportContext::SetLogits(Val prediction, Val logits) {
  if (prediction.valid() && logits.valid()) state_.effects.logits[prediction.id()] = logits.id();
}

Val NodeImportContext::FindLogits(Val prediction) {
  const auto& logits = state_.effects.logits;
  const auto it = prediction.valid() ? logits.find(prediction.id()) : logits.end();
  return it == logits.end() ? Val() : b_->Wrap(it->second);
}

Val NodeImportContext::AsFloatWeight(size_t i, const HostTensor& value) {
  return has(i) && !conformance ? state_.weights.AddDequantized(in(i), value, parsed_) : Val();
}

absl::StatusOr<Val> NodeImportContext::AsState(size_t i) {
  ImportWeight* weight = state_.weights.Find(in(i));
  if (weight == nullptr && has(i) && !training) return in(i);  // computed statistics can be read, not updated
  if (weight == nullptr) return Invalid("input ", i, " must be an initializer");
  weight->state = true;
  return in(i);
}

absl::Status NodeImportContext::CheckUpdate(const ImportWeight& weight, Val value) const {
  if (scope_.conditional)
    return absl::UnimplementedError(
        StrCat("updates '", weight.name, "' under a condition that is known only at run time"));
  if (weight.updated) return Invalid("updates '", weight.name, "', which another node updates too");
  const Type& type = state_.graph.type(weight.value);
  if (type == value.type()) return absl::OkStatus();
  return Invalid("replaces '", weight.name, "' of type ", ToString(type), " by ", ToString(value.type()));
}

void NodeImportContext::UpdateState(Val state, Val value, double momentum) {
  ImportWeight* weight = training && value.valid() ? state_.weights.Find(state) : nullptr;
  if (weight == nullptr) return;
  if (absl::Status status = CheckUpdate(*weight, value); !status.ok()) {
    b_->Fail(std::move(status));
    return;
  }
  weight->updated = true;
  state_.effects.updates.push_back({state.id(), value.id(), momentum});
}

Val NodeImportContext::RandomKey() {
  Val& key = state_.effects.random_key;
  if (key.valid()) return key;
  std::string name = "random_key";
  while (state_.graph.FindInput(name) != nullptr || state_.model.graph.initializers.count(name) > 0) name += "_";
  return key = b_->Input(InputKind::kFeed, name, {DType::kUInt32, {4}});
}

int64_t NodeImportContext::RandomStream() { return HashName(b_->source()); }

}  // namespace onnxtrain
