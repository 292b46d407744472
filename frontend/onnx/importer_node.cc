#include <algorithm>
#include <map>

#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr size_t kKnownLimit = size_t{1} << 20;  // bytes of a value that is computed only to be known
constexpr size_t kConstantBudget = size_t{128} << 20;
constexpr size_t kFoldLimitAfterwards = 4096;

// As a canonical row wants it: 1 for 1.0, [1] for [1.0]; nothing where the kinds do not fit.
std::optional<AttrValue> Converted(const AttrValue& value, const AttrValue& like) {
  if (value.index() == like.index()) return value;
  if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && std::holds_alternative<double>(like)) {
    return static_cast<double>(*i);
  }
  const auto* ints = std::get_if<std::vector<int64_t>>(&value);
  if (ints != nullptr && std::holds_alternative<std::vector<double>>(like)) return std::vector<double>(ints->begin(), ints->end());
  const auto* floats = std::get_if<std::vector<double>>(&value);
  if (ints != nullptr && ints->empty()) return like;
  if (floats != nullptr && floats->empty()) return like;
  return std::nullopt;
}

// The canonical operator of the same name, with those attributes that it has.
absl::StatusOr<std::vector<Val>> ImportBySameName(const NodeView& node, Builder& b) {
  const OpRow* row = FindOp(node.op_type);
  if (row == nullptr) return absl::UnimplementedError("no canonical operator has its name");
  Attrs attrs;
  for (const AttrSpec& spec : row->attrs) {
    for (const auto& [name, value] : node.attrs) {
      if (name != spec.name) continue;
      auto converted = Converted(value, spec.value);
      if (!converted) return Invalid("attribute '", name, "' is of the wrong kind");
      attrs.Set(name, *std::move(converted));
    }
  }
  return b.Ops(node.op_type, node.inputs, std::move(attrs));
}

// FNV-1a, 31 bits.
int64_t HashOf(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash >> 1;
}

}  // namespace

class NodeContext : public ImportContext {
 public:
  NodeContext(Importer& importer, const NodeView& node, const ParsedNode& parsed, bool top)
      : importer_(importer), parsed_(parsed), top_(top) {
    node_ = &node;
    b_ = &importer.builder_;
    training = importer.options_.training;
    batch_norm_frozen = importer.options_.batch_norm_frozen;
    dropout = importer.options_.dropout;
    float_type = importer.options_.float_type;
    conformance = importer.options_.conformance;
  }

  const HostTensor* Known(size_t i) override { return has(i) ? importer_.KnownValue(in(i).id()) : nullptr; }

  Val AttributeWeight(std::string_view attribute, HostTensor tensor) override {
    if (!top_ || importer_.options_.conformance) return b_->Constant(std::move(tensor));
    return importer_.AttributeWeight(parsed_, attribute, std::move(tensor));
  }

  void SetLogits(Val prediction, Val logits) override {
    if (prediction.valid() && logits.valid()) importer_.logits_[prediction.id()] = logits.id();
  }

  Val LogitsOf(Val prediction) override {
    auto it = prediction.valid() ? importer_.logits_.find(prediction.id()) : importer_.logits_.end();
    return it == importer_.logits_.end() ? Val() : b_->Wrap(it->second);
  }

  Val AsFloatWeight(size_t i, const HostTensor& value) override {
    return has(i) && !conformance ? importer_.FloatWeight(in(i), value, parsed_) : Val();
  }

  absl::StatusOr<Val> AsState(size_t i) override {
    Importer::Weight* weight = importer_.FindWeight(in(i));
    if (weight == nullptr && has(i) && !training) return in(i);  // computed statistics can be read, not updated
    if (weight == nullptr) return Invalid("input ", i, " must be an initializer");
    weight->state = true;
    return in(i);
  }

  void UpdateState(Val state, Val value) override {
    if (!importer_.options_.training || !state.valid() || !value.valid()) return;
    Importer::Weight* weight = importer_.FindWeight(state);
    if (weight == nullptr) return;
    if (importer_.conditional_ > 0) {
      b_->Fail(absl::UnimplementedError(StrCat("updates '", weight->name, "' under a condition that is known only at run time")));
    } else if (weight->updated) {
      b_->Fail(Invalid("updates '", weight->name, "', which another node updates too"));
    } else if (!(state.type() == value.type())) {
      b_->Fail(Invalid("replaces '", weight->name, "' of type ", ToString(state.type()), " by ", ToString(value.type())));
    } else {
      weight->updated = true;
      importer_.update_values_.emplace_back(state.id(), value.id());
    }
  }

  Val RandomKey() override {
    if (!importer_.random_key_.valid()) {
      std::string name = "random_key";
      while (importer_.graph_.FindInput(name) != nullptr || importer_.model_.graph.initializers.count(name) > 0) name += "_";
      importer_.random_key_ = b_->Input(InputKind::kFeed, name, {DType::kUInt32, {4}});
    }
    return importer_.random_key_;
  }

  int64_t RandomStream() override { return HashOf(b_->source()); }

 private:
  Importer& importer_;
  const ParsedNode& parsed_;
  bool top_;  // in the top graph
};

absl::StatusOr<Attrs> Importer::ResolveAttrs(const ImportScope& scope, const ParsedNode& node) const {
  Attrs attrs = node.attrs;
  for (const auto& [name, outer] : node.refs) {
    if (scope.call == nullptr) return Invalid("attribute '", Printable(name), "' refers to a function's attribute outside a function");
    for (const auto& [key, value] : *scope.call) {
      if (key == outer) attrs.Set(name, value);
    }
  }
  return attrs;
}

absl::Status Importer::ImportOperator(ImportScope& scope, const ParsedNode& node, const OnnxOp& op) {
  NodeView view{.domain = op.domain, .op_type = node.op_type, .name = builder_.source(), .version = 1,
                .num_outputs = static_cast<int>(node.outputs.size())};
  if (auto opset = scope.opsets->find(node.domain); opset != scope.opsets->end()) view.version = static_cast<int>(opset->second);
  for (const std::string& name : node.inputs) {
    const std::optional<Val> v = name.empty() ? Val() : Lookup(scope, name, node);
    if (!v) return AlreadyReported();
    view.inputs.push_back(*v);
  }
  while (!view.inputs.empty() && !view.inputs.back().valid()) view.inputs.pop_back();
  const auto count = static_cast<int>(view.inputs.size());
  if (count < op.min_inputs || count > op.max_inputs) return Invalid("has ", count, " inputs, which is too ", count < op.min_inputs ? "few" : "many");
  for (int i = 0; i < op.min_inputs; ++i) {
    if (!view.inputs[i].valid()) return Invalid("input ", i, " is missing");
  }
  const bool top = scope.graph == &model_.graph;
  for (const std::string& name : node.outputs) view.used.push_back(!name.empty() && (!top || needed_names_.count(name) > 0));
  ASSIGN_OR_RETURN(view.attrs, ResolveAttrs(scope, node));
  MapTypes(node, &view.attrs);
  ExtendFed();  // initializers that were just created
  RETURN_IF_ERROR(ThawBatch(node, &view.inputs, &view.attrs));
  view.strings = node.strings;
  NodeContext context(*this, view, node, top);
  context.batch_norm_frozen |= NormIsFrozen(node);
  ASSIGN_OR_RETURN(std::vector<Val> results, op.import != nullptr ? op.import(context) : ImportBySameName(view, builder_));
  RETURN_IF_ERROR(builder_.status());
  results.resize(std::max(results.size(), node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (view.used[i] && !results[i].valid()) return absl::UnimplementedError(StrCat("output ", i, " is not supported"));
  }
  return Bind(scope, node, {results.begin(), results.end()}), absl::OkStatus();
}

// Constants, weights, and what can be computed of them on the host. Known values are small: shapes, bounds, scales.
const HostTensor* Importer::KnownValue(ValueId value) {
  ExtendFed();
  if (const HostTensor* constant = graph_.ConstantOf(value)) return constant;
  if (auto weight = weight_of_.find(value); weight != weight_of_.end()) {
    return weights_[weight->second].state ? nullptr : &weights_[weight->second].tensor;
  }
  if (fed_[value] || graph_.IsInput(value)) return nullptr;
  auto [it, added] = known_.emplace(value, std::nullopt);
  if (!added) return it->second ? &*it->second : nullptr;
  const Node node = *graph_.producer(value);
  const OpRow* row = FindOp(node.op);
  if (row == nullptr || row->evaluate == nullptr) return nullptr;
  std::vector<const HostTensor*> inputs;
  for (ValueId input : node.inputs) {
    const HostTensor* known = input == kNoValue ? nullptr : KnownValue(input);
    if (input != kNoValue && (known == nullptr || known->type().bytes() > kKnownLimit)) return nullptr;
    inputs.push_back(known);
  }
  std::vector<Type> types;
  for (ValueId output : node.outputs) types.push_back(graph_.type(output));
  for (const Type& type : types) {
    if (type.bytes() > kKnownLimit) return nullptr;
  }
  it->second = row->evaluate({node.attrs, inputs, types})[graph_.value(value).index];
  return &*it->second;
}

void Importer::ExtendFed() {
  for (size_t v = fed_.size(); v < graph_.values().size(); ++v) {
    const Node* node = graph_.producer(static_cast<ValueId>(v));
    if (node == nullptr) {
      fed_.push_back(graph_.inputs()[graph_.value(static_cast<ValueId>(v)).index].kind == InputKind::kFeed);
      continue;
    }
    fed_.push_back(std::any_of(node->inputs.begin(), node->inputs.end(), [&](ValueId in) { return in != kNoValue && fed_[in]; }));
    if (node->op == "Constant") constant_bytes_ += graph_.type(static_cast<ValueId>(v)).bytes();
  }
  // Many small nodes must not fold into a large heap: shapes still fold, tables stay expressions.
  if (constant_bytes_ > kConstantBudget && !options_.conformance) builder_.set_fold_limit(kFoldLimitAfterwards);
}

namespace {

// The input of an operator that holds the extents of its whole output, the batch in front; 0 where there is none.
size_t TargetInput(std::string_view op_type) {
  static const std::map<std::string_view, size_t> inputs = {{"Reshape", 1},   {"Expand", 1},     {"Tile", 1},         {"Resize", 3},
                                                            {"MaxUnpool", 2}, {"AffineGrid", 1}, {"CenterCropPad", 1}};
  const auto it = inputs.find(op_type);
  return it == inputs.end() ? 0 : it->second;
}

}  // namespace

// A model that was exported for a fixed batch holds it as a constant in targets of Reshape and the like.
absl::Status Importer::ThawBatch(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs) {
  if (frozen_batch_ == 0 || !node.domain.empty()) return absl::OkStatus();
  if (node.op_type == "Concat") return ThawConcat(inputs, *attrs), absl::OkStatus();
  const size_t at = TargetInput(node.op_type);
  if (at == 0 || inputs->empty() || attrs->Has("axes")) return absl::OkStatus();
  std::vector<int64_t> target = attrs->Ints("shape");
  const HostTensor* known = inputs->size() > at && (*inputs)[at].valid() ? KnownValue((*inputs)[at].id()) : nullptr;
  if (known != nullptr) target = known->ToInts();
  if (target.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool thawed, ThawShape(node, (*inputs)[0], &target));
  if (!thawed) return absl::OkStatus();
  if (known != nullptr) {
    (*inputs)[at] = builder_.Ints(target);
    ExtendFed();
  } else {
    attrs->Set("shape", target);
  }
  notes_.push_back(StrCat(node.op_type, " '", node.source, "': the leading ", frozen_batch_, " of its target became ", batch_));
  return absl::OkStatus();
}

absl::StatusOr<bool> Importer::ThawShape(const ParsedNode& node, Val data, std::vector<int64_t>* target) {
  int64_t& lead = target->front();
  if (RepeatsForBatch(node, data, lead)) return lead = batch_, true;
  if (node.op_type == "Tile") return false;
  if (!IsFed(data) || data.rank() == 0 || data.dim(0) != batch_ || lead == batch_) return false;
  if (lead == frozen_batch_) return lead = batch_, true;
  const bool infers = std::find(target->begin() + 1, target->end(), -1) != target->end();
  if (node.op_type == "Reshape" && lead > 0 && infers) {
    return Invalid("reshapes to ", ToString(*target), ", which holds only for the batch of ", frozen_batch_,
                   " that the model was exported for");
  }
  return false;
}

// A class token or initial state that was expanded to the fixed batch joins what follows the new one.
void Importer::ThawConcat(std::vector<Val>* inputs, const Attrs& attrs) {
  const int64_t axis = attrs.Int("axis", 1);
  auto follows = [&](Val v) { return IsFed(v) && v.rank() > 0 && v.dim(0) == batch_; };
  if (axis == 0 || std::none_of(inputs->begin(), inputs->end(), follows)) return;
  for (Val& v : *inputs) {
    if (!v.valid() || IsFed(v) || v.rank() == 0 || axis == -v.rank() || v.dim(0) != 1 || frozen_batch_ != 1) continue;
    Shape shape = v.shape();
    shape[0] = batch_;
    v = Expand(v, shape);
  }
  ExtendFed();
}

}  // namespace onnxtrain
