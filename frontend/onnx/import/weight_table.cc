#include "frontend/onnx/import/weight_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import/stages.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of one weight; the largest one of VGG19 has 411 MB
constexpr int64_t kMaxTotalBytes = 2 * kMaxBytes;
constexpr int kMaxViews = 4;  // between a weight and the operator that reads it

// Returns true if the node reads `name` in weight inputs only.
bool TakesAsWeight(const ParsedNode& node, const std::string& name) {
  const uint32_t weights = GetOnnxTraits(node).weight_inputs;
  if (weights == 0) return false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == name && (i >= 32 || (weights >> i & 1) == 0)) return false;
  }
  return true;
}

// Returns true if the node is a view of `name`, which is then still a weight.
bool IsViewOf(const ParsedNode& node, const std::string& name) {
  return GetOnnxTraits(node).view && node.inputs[0] == name && !node.outputs.empty();
}

// Returns true if operators read `name`, perhaps through views, as weights and in no other way.
bool OnlyFeedsWeightInputs(const LiveGraph& live, const std::string& name, int depth = 0) {
  const auto& users = live.Users(name);
  if (users.empty() || depth > kMaxViews) return false;
  return std::ranges::all_of(users, [&](const ParsedNode* user) {
    return TakesAsWeight(*user, name) ||
           (IsViewOf(*user, name) && OnlyFeedsWeightInputs(live, user->outputs[0], depth + 1));
  });
}

// Returns true if MoE nodes alone read `name`, as stacks of matrices.
bool OnlyFeedsMixtures(const LiveGraph& live, const std::string& name) {
  const auto& users = live.Users(name);
  return !users.empty() && std::ranges::all_of(users, [&](const ParsedNode* user) {
    return FindMixtureLayer(*user, name) != nullptr && std::ranges::count(user->inputs, name) == 1;
  });
}

}  // namespace

bool FilledWeights::IsFilledWeight(const ParsedNode& node) const {
  if (!node.domain.empty() || node.op_type != "ConstantOfShape") return false;
  if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.outputs[0].empty()) return false;
  const ParsedNode* shape = live_.Producer(node.inputs[0]);
  const bool given = graph_.initializers.count(node.inputs[0]) > 0 || (shape != nullptr && IsConstantNode(*shape));
  return given && OnlyFeedsWeightInputs(live_, node.outputs[0]);
}

absl::StatusOr<std::optional<HostTensor>> FilledWeights::Fill(const Attrs& attrs, const HostTensor* extents) {
  const HostTensor* value = attrs.Tensor("value");
  const DType stored = value != nullptr ? value->dtype() : DType::kFloat32;
  if (extents == nullptr || extents->dtype() != DType::kInt64 || !IsFloat(stored)) return std::nullopt;
  if (value != nullptr && value->size() != 1) return std::nullopt;
  const Type type{types_.Map(stored), extents->ToInts()};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (type.elements() <= 1) return std::nullopt;
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (bytes > kMaxBytes || (bytes_ += bytes) > kMaxTotalBytes)
    return Invalid("fills ", ToString(type), ": store weights of this size in the file");
  ++count_;
  return HostTensor::Filled(type, value != nullptr ? value->At(0) : 0);
}

namespace {

// Copies the tensor if its address is not aligned for the element type, because kernels read constants in place.
HostTensor Aligned(const HostTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.bytes().data()) % DTypeSize(tensor.dtype()) == 0 ? tensor : tensor.Clone();
}

absl::StatusOr<HostTensor> ConstantTensor(const ParsedNode& node, const Attrs& attrs) {
  if (const HostTensor* t = attrs.Tensor("value")) return *t;
  if (const auto* f = attrs.Find<double>("value_float")) return HostTensor::Scalar(DType::kFloat32, *f);
  if (const auto* i = attrs.Find<int64_t>("value_int"))
    return HostTensor::FromInts({DType::kInt64, {}}, std::array{*i});
  if (const auto* fs = attrs.Find<std::vector<double>>("value_floats"))
    return HostTensor::FromDoubles({DType::kFloat32, {static_cast<int64_t>(fs->size())}}, *fs);
  if (const auto* is = attrs.Find<std::vector<int64_t>>("value_ints")) return HostTensor::FromInts(*is);
  if (!node.opaque.empty())
    return absl::UnimplementedError(StrCat("holds a ", node.opaque.begin()->second, ", which is not supported"));
  return Invalid("holds no value that is supported");
}

// Returns true for a scalar that the exporter derived, which must not be trained.
bool IsDerivedFactor(WeightOrigin::Kind kind, const HostTensor& tensor) {
  return kind == WeightOrigin::Kind::kConstant && tensor.size() == 1;
}

FixedWeight ReasonFixed(WeightOrigin::Kind kind) {
  switch (kind) {
    case WeightOrigin::Kind::kBuffer:
      return FixedWeight::kBuffer;
    case WeightOrigin::Kind::kConstant:
      return FixedWeight::kConstant;
    case WeightOrigin::Kind::kStandardizer:
      return FixedWeight::kStandardizer;
    default:
      return FixedWeight::kNo;
  }
}

}  // namespace

WeightTable::WeightTable(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types,
                         const ImportOptions& options, const ModelEdits& edits, Builder* builder)
    : graph_(graph), live_(live), types_(types), options_(options), edits_(edits), builder_(*builder) {
  for (std::string& name : ListStoredNumbers(graph)) stored_.insert(std::move(name));
}

bool IsConstantNode(const ParsedNode& node) { return node.domain.empty() && node.op_type == "Constant"; }

bool WeightTable::TakesNumber(const ParsedNode& node) const {
  if (GetOnnxTraits(node).takes_numbers) return true;
  // Matches x + ε before a square root.
  if (node.op_type != "Add" || node.outputs.empty()) return false;
  const auto& next = live_.Users(node.outputs[0]);
  return next.size() == 1 && next[0]->op_type == "Sqrt";
}

WeightOrigin WeightTable::FindOrigin(const std::string& name) const {
  const auto it = graph_.origins.find(name);
  return it == graph_.origins.end() ? WeightOrigin() : it->second;
}

bool WeightTable::IsConstant(const ParsedGraph& graph, const std::string& name, const HostTensor& tensor) const {
  if (&graph != &graph_ || graph.sparse.count(name) > 0) return true;
  if (!IsFloat(tensor.dtype()) || tensor.size() == 0) return true;
  const WeightOrigin::Kind kind = FindOrigin(name).kind;
  if (kind == WeightOrigin::Kind::kParameter) return false;
  if (tensor.shape().empty() || (IsDerivedFactor(kind, tensor) && options_.constant_factors)) return true;
  const auto& users = live_.Users(name);
  return tensor.size() == 1 && !users.empty() &&
         std::ranges::all_of(users, [&](const ParsedNode* user) { return TakesNumber(*user); });
}

Val WeightTable::Add(const std::string& name, HostTensor tensor, const ParsedNode& reader) {
  const auto& users = live_.Users(name);
  const auto computes = std::ranges::find_if(users, [](const ParsedNode* n) { return n->op_type != "Identity"; });
  const ParsedNode& consumer = computes == users.end() ? reader : **computes;
  const Val v = builder_.Input(InputKind::kParameter, name, tensor.type());
  index_[v.id()] = weights_.size();
  const WeightOrigin origin = FindOrigin(name);
  weights_.push_back({.value = v.id(),
                      .name = name,
                      .tensor = std::move(tensor),
                      .consumer = StrCat(consumer.op_type, " ", consumer.source),
                      .alias = origin.module_name == name ? "" : origin.module_name,
                      .fixed = ReasonFixed(origin.kind)});
  return v;
}

bool WeightTable::StaysHalf(const std::string& name, const HostTensor& tensor) const {
  const bool half = IsFloat(tensor.dtype()) && DTypeSize(tensor.dtype()) == 2;
  const bool stay = options_.half_weights || !edits_.low_rank.empty();
  return stay && !options_.conformance && half && !options_.float_weights.contains(name) &&
         (tensor.shape().size() == 2 ? OnlyFeedsWeightInputs(live_, name) : OnlyFeedsMixtures(live_, name));
}

Val WeightTable::AddStored(const std::string& name, const HostTensor& tensor, const ParsedNode& reader) {
  const Val v = Add(name, tensor, reader);
  weights_.back().stored = true;
  return v;
}

QuantizedOperands WeightTable::AddBlocks(const std::string& name, const StoredBlocks& blocks,
                                         const ParsedNode& reader) {
  const auto add = [&](const char* suffix, const HostTensor& tensor) {
    const Val v = AddStored(name + suffix, tensor, reader);
    weights_.back().alias = name;
    return v;
  };
  QuantizedOperands w{.q = add(".blocks", blocks.q), .scale = add(".scales", blocks.scale), .matrix = blocks.matrix};
  if (blocks.zero) w.zero = add(".zero_points", *blocks.zero);
  return w;
}

Val WeightTable::AddMapped(const std::string& name, const HostTensor& tensor, const ParsedNode& reader) {
  if (const auto blocks = edits_.blocks.find(name); blocks != edits_.blocks.end())
    return Dequantize(AddBlocks(name, *blocks->second, reader), types_.Map(tensor.dtype()));
  if (!StaysHalf(name, tensor)) return Add(name, types_.Map(tensor), reader);
  const Val stored = AddStored(name, tensor, reader);
  weights_.back().fixed = FixedWeight::kHalf;
  const Shape& shape = tensor.shape();
  if (shape.size() == 2) return Dequantize(FloatOperands(stored), types_.Map(tensor.dtype()));
  const Val rows = Reshape(stored, {shape[0] * shape[1], shape[2]});
  return Reshape(Dequantize(FloatOperands(rows), types_.Map(tensor.dtype())), shape);
}

Val WeightTable::ReadInitializer(const ImportScope& scope, const std::string& name, const HostTensor& tensor,
                                 const ParsedNode& reader) {
  if (scope.graph == &graph_ && IsStored(name)) return AddStored(name, tensor, reader);
  if (!IsConstant(*scope.graph, name, tensor)) return AddMapped(name, tensor, reader);
  Val& v = constants_[{scope.graph, name}];
  if (v.valid()) return v;
  if (scope.graph != &graph_ && IsFloat(tensor.dtype()) && tensor.size() > 1) ++body_tensors_;
  if (scope.graph == &graph_ && IsDerivedFactor(FindOrigin(name).kind, tensor) && !tensor.shape().empty())
    derived_factors_.push_back(name);
  v = builder_.Constant(Aligned(types_.Map(tensor)));
  if (v.valid()) builder_.graph().SetValueName(v.id(), scope.prefix + name);
  return v;
}

absl::StatusOr<Val> WeightTable::ReadConstantNode(const ImportScope& scope, const ParsedNode& node) {
  if (node.outputs.size() != 1 || node.outputs[0].empty())
    return Invalid("expected 1 output, got ", node.outputs.size());
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  ASSIGN_OR_RETURN(const HostTensor value, ConstantTensor(node, attrs));
  const bool weight = IsFloat(value.dtype()) && value.size() > 1 && scope.graph == &graph_;
  if (weight) return Add(node.outputs[0], types_.Map(value), node);
  const Val v = builder_.Constant(types_.Map(value));
  if (scope.graph == &graph_ && v.valid()) {
    constants_[{&graph_, node.outputs[0]}] = v;
    builder_.graph().SetValueName(v.id(), node.outputs[0]);
  }
  return v;
}

bool WeightTable::IsNameTaken(const std::string& name) const {
  auto defines = [&](const ParsedNode& node) { return std::ranges::count(node.outputs, name) > 0; };
  return graph_.initializers.count(name) > 0 || builder_.graph().FindInput(name) != nullptr ||
         std::ranges::any_of(graph_.nodes, defines);
}

Val WeightTable::AddFromAttribute(const ParsedNode& node, std::string_view attribute, const HostTensor& tensor) {
  const auto first = std::ranges::find_if(node.outputs, [](const std::string& name) { return !name.empty(); });
  const std::string name = StrCat(*first, ".", attribute);
  if (!IsNameTaken(name)) return Add(name, types_.Map(tensor), node);
  return builder_.Fail(Invalid("the weight in its attribute '", attribute, "' would be named '", Printable(name),
                               "' like another value"));
}

Val WeightTable::AddDequantized(Val integers, const HostTensor& value, const ParsedNode& reader) {
  const std::string name = *builder_.graph().value(integers.id()).name;
  const auto constant = constants_.find({&graph_, name});
  if (constant == constants_.end() || constant->second.id() != integers.id()) return Val();
  const auto known = std::ranges::find(weights_, name, &ImportWeight::name);
  if (known == weights_.end()) return Add(name, value, reader);
  return known->tensor.SameBytes(value) ? builder_.Wrap(known->value) : Val();
}

Val WeightTable::SplitMergedCopy(const ParsedNode& node) {
  if (!node.domain.empty() || node.op_type != "Identity") return Val();
  if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.outputs[0].empty()) return Val();
  const auto it = graph_.initializers.find(node.inputs[0]);
  if (it == graph_.initializers.end() || live_.Users(node.inputs[0]).size() < 2) return Val();
  if (IsConstant(graph_, node.outputs[0], it->second)) return Val();
  ++split_copies_;
  return AddMapped(node.outputs[0], it->second, node);
}

ImportWeight* WeightTable::Find(ValueId value) {
  const auto it = index_.find(value);
  return it == index_.end() ? nullptr : &weights_[it->second];
}

namespace {

constexpr size_t kMaxShown = 4;

std::vector<const ImportWeight*> FloatWeights(const WeightTable& table) {
  std::vector<const ImportWeight*> weights;
  for (const ImportWeight& weight : table.weights()) {
    if (!weight.state && !weight.stored && IsFloat(weight.tensor.dtype())) weights.push_back(&weight);
  }
  return weights;
}

// Returns a key that a matrix and its transpose share: extents, element type and diagonal.
std::string TransposeInvariant(const HostTensor& matrix) {
  constexpr int64_t kMaxElements = 16;
  const auto [rows, columns] = std::pair(matrix.shape()[0], matrix.shape()[1]);
  const size_t size = DTypeSize(matrix.dtype());
  std::string key = StrCat(std::min(rows, columns), "x", std::max(rows, columns), ToString(matrix.dtype()), ":");
  for (int64_t i = 0; i < std::min({rows, columns, kMaxElements}); ++i) {
    const std::byte* element = matrix.bytes().data() + size * (i * columns + i);
    key.append(reinterpret_cast<const char*>(element), size);
  }
  return key;
}

// Collects "'a' and 'b'" for each matrix b that equals an earlier matrix a, or its transpose. Ignores constant fills.
class EqualPairs {
 public:
  void Add(const ImportWeight& weight) {
    if (weight.tensor.shape().size() != 2 || IsSplat(weight.tensor)) return;
    std::vector<const ImportWeight*>& candidates = different_[TransposeInvariant(weight.tensor)];
    for (const ImportWeight* other : candidates) {
      const HostTensor &a = other->tensor, &b = weight.tensor;
      const bool transposed = IsTransposeOf(a, b);
      const bool equal = transposed || (a.type() == b.type() && a.SameBytes(b));
      ReleaseMappedPages(a.bytes());
      if (!equal) continue;
      pairs_.push_back(StrCat("'", Printable(other->name), "' and '", Printable(weight.name), "'",
                              transposed ? " (transposed)" : ""));
      return;
    }
    if (candidates.size() < kMaxCandidates) candidates.push_back(&weight);
  }

  std::vector<std::string> Take() && { return std::move(pairs_); }

 private:
  // Bounds the comparisons for files whose matrices have equal diagonals.
  static constexpr size_t kMaxCandidates = 16;

  std::map<std::string, std::vector<const ImportWeight*>> different_;
  std::vector<std::string> pairs_;
};

}  // namespace

void NoteTiedWeights(const WeightTable& weights, const LiveGraph& live, std::vector<std::string>* notes) {
  const std::vector<const ImportWeight*> floats = FloatWeights(weights);
  const auto tied = std::ranges::count_if(floats, [&](auto* w) { return live.Users(w->name).size() > 1; });
  if (tied > 0)
    notes->push_back(StrCat("weights with several readers: ", tied, ", each one weight (its gradients are summed)"));
  EqualPairs equal;
  for (const ImportWeight* weight : floats) {
    equal.Add(*weight);
    ReleaseMappedPages(weight->tensor.bytes());
  }
  std::vector<std::string> pairs = std::move(equal).Take();
  if (pairs.empty()) return;
  const std::string more = pairs.size() > kMaxShown ? StrCat(" and ", pairs.size() - kMaxShown, " more pairs") : "";
  pairs.resize(std::min(pairs.size(), kMaxShown));
  notes->push_back(StrCat("weights with equal values, possibly tied: ", absl::StrJoin(pairs, ", "), more,
                          "; each is trained separately (`tie` A=B trains two as one)"));
}

namespace {

constexpr size_t kMaxKnownBytes = size_t{1} << 20;  // of one evaluated value
constexpr size_t kConstantBudget = size_t{128} << 20;
constexpr size_t kFoldLimitBeyondBudget = 4096;

bool IsSmall(const Type& type) { return type.bytes() <= kMaxKnownBytes; }

}  // namespace

void KnownValues::Update() {
  const Graph& graph = builder_.graph();
  for (auto v = static_cast<ValueId>(depends_on_feed_.size()); v < static_cast<ValueId>(graph.values().size()); ++v) {
    const Node* node = graph.producer(v);
    const bool scalar = graph.type(v).rank() == 0;
    if (node == nullptr) {
      depends_on_feed_.push_back(graph.inputs()[graph.value(v).index].kind == InputKind::kFeed);
      may_hold_batch_.push_back(depends_on_feed_.back() && !scalar);
      continue;
    }
    const auto any = [&](const std::vector<bool>& of) {
      return std::ranges::any_of(node->inputs, [&](ValueId in) { return in != kNoValue && of[in]; });
    };
    depends_on_feed_.push_back(any(depends_on_feed_));
    may_hold_batch_.push_back(!scalar && any(may_hold_batch_));
    if (IsConstant(*node)) constant_bytes_ += graph.type(v).bytes();
  }
  // Bounds the memory of folded constants. Shapes still fold, tables remain nodes.
  if (constant_bytes_ > kConstantBudget && bound_folding_) builder_.set_fold_limit(kFoldLimitBeyondBudget);
}

bool KnownValues::MayHoldBatch(Val v) {
  Update();
  return v.valid() && may_hold_batch_[v.id()];
}

const HostTensor* KnownValues::Find(ValueId value) {
  Update();
  const Graph& graph = builder_.graph();
  if (const HostTensor* constant = graph.FindConstant(value)) return constant;
  if (const ImportWeight* weight = weights_.Find(value)) return weight->state ? nullptr : &weight->tensor;
  if (depends_on_feed_[value] || graph.IsInput(value)) return nullptr;
  auto [it, added] = evaluated_.emplace(value, std::nullopt);
  if (added) it->second = Evaluate(value);
  return it->second ? &*it->second : nullptr;
}

std::optional<HostTensor> KnownValues::Evaluate(ValueId value) {
  const Graph& graph = builder_.graph();
  const Node node = *graph.producer(value);
  const OpRow* row = FindOp(node.op);
  if (row == nullptr || row->evaluate == nullptr) return std::nullopt;
  std::vector<const HostTensor*> inputs;
  for (ValueId input : node.inputs) {
    const HostTensor* known = input == kNoValue ? nullptr : Find(input);
    if (input != kNoValue && (known == nullptr || !IsSmall(known->type()))) return std::nullopt;
    inputs.push_back(known);
  }
  std::vector<Type> types;
  for (ValueId output : node.outputs) types.push_back(graph.type(output));
  if (!std::ranges::all_of(types, IsSmall) || !budget_.Spend(graph, node)) return std::nullopt;
  return row->evaluate({node.attrs, inputs, types})[graph.value(value).index];
}

absl::StatusOr<int64_t> KnownValues::FindInt(const ImportValue& value, std::string_view what) {
  ASSIGN_OR_RETURN(const Val v, RequireTensor(value, what));
  const HostTensor* known = Find(v);
  if (known == nullptr)
    return absl::UnimplementedError(StrCat(what, " is known only at run time, which is not supported"));
  if (known->size() != 1) return Invalid(what, " has ", known->size(), " elements");
  return known->IntAt(0);
}

}  // namespace onnxtrain
