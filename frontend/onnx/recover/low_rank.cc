#include <map>
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// Fails if the graph lacks the weight or a product, or has the names of the trained tensors already.
absl::Status Check(const LowRankUpdate& update, const WeightIndex& index) {
  for (const std::string& node : update.nodes) {
    if (index.Producer(node) == nullptr) return Invalid("there is no product '", Printable(node), "' to adapt");
  }
  if (index.FindTensor(update.weight) == nullptr)
    return Invalid("there is no weight '", Printable(update.weight), "' to adapt");
  for (const auto& [name, initial] : update.Trained()) {
    if (index.IsNameTaken(name)) return Invalid("'", Printable(name), "' is in the model already");
  }
  return absl::OkStatus();
}

void AddInitializer(const std::string& name, HostTensor value, WeightOrigin::Kind kind, WeightIndex* index) {
  ParsedGraph& graph = index->mutable_graph();
  graph.initializers.emplace(name, std::move(value));
  graph.initializer_order.push_back(name);
  graph.origins[name] = {.kind = kind, .module_name = name};
}

}  // namespace

absl::StatusOr<WeightRecords> MatchLowRank(WeightIndex* index) {
  WeightRecords records;
  for (LowRankUpdate update : index->model().edits.low_rank) {
    RETURN_IF_ERROR(Check(update, *index));
    update.frozen = *index->FindTensor(update.weight);
    records.push_back({.weight = update.weight,
                       .why = StrCat("an adapter of rank ", update.rank(), " is trained beside it"),
                       .form = update});
  }
  return records;
}

namespace {

HostTensor Negated(const HostTensor& value) {
  std::vector<double> values = value.ToDoubles();
  for (double& v : values) v = -v;
  return HostTensor::FromDoubles(value.type(), values);
}

// Numbers and what rounding to the type leaves of them, as [2, n]: the graph may compute in float64.
HostTensor InTwoParts(const HostTensor& exact, DType dtype) {
  HostTensor parts({dtype, {2, exact.size()}});
  for (int64_t i = 0; i < exact.size(); ++i) {
    parts.Set(i, exact.At(i));
    parts.Set(exact.size() + i, exact.At(i) - parts.At(i));
  }
  return parts;
}

// Adds the update of one weight to the products that read it.
class UpdateBuilder {
 public:
  UpdateBuilder(const LowRankUpdate& update, WeightIndex* index) : update_(update), index_(*index) {
    const DType dtype = update.a.dtype();
    for (const auto& [name, initial] : update.Trained())
      AddInitializer(name, initial, WeightOrigin::Kind::kParameter, index);
    scale_ = AddConstant("lora_scale", HostTensor::Scalar(dtype, update.scale));
    if (update.has_first()) {
      first_a_ = AddConstant("lora_first_A", update.first_a);
      first_b_ = AddConstant("lora_first_B", Negated(update.first_b));
    }
    if (!update.has_magnitude()) return;
    squares_ = AddConstant("lora_squares", InTwoParts(SumSquares(update.frozen, update.outputs_first), dtype));
    one_ = AddConstant("lora_one", HostTensor::Scalar(dtype, 1));
  }

  void Build() {
    for (const std::string& node : update_.nodes) BuildBeside(node);
  }

 private:
  using Names = std::vector<std::string>;

  std::string AddConstant(const std::string& what, HostTensor value) {
    std::string name = StrCat(update_.module, ".", what);
    AddInitializer(name, std::move(value), WeightOrigin::Kind::kConstant, &index_);
    return name;
  }

  // Adds a node behind the product; returns its output.
  std::string Add(std::string op, Names inputs, Attrs attrs = {}) {
    std::string output = StrCat(prefix_, added_.size());
    added_.push_back(MakeRowNode("adapter", std::move(op), std::move(inputs), output, std::move(attrs)));
    return output;
  }
  std::string Transpose(const std::string& matrix) {
    return Add("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 0}}});
  }
  std::string Reshape(const std::string& value, const Shape& shape) {
    const std::string name = StrCat(update_.module, ".shape", index_.graph().initializers.size());
    AddInitializer(name, HostTensor::FromInts(shape), WeightOrigin::Kind::kConstant, &index_);
    return Add("Reshape", {value, name});
  }
  // The product of another x with W, without a bias.
  std::string Repeat(const std::string& x) {
    ParsedNode node = product_;
    node.inputs = {x, node.inputs[1]};
    node.outputs = {StrCat(prefix_, added_.size())};
    node.name = node.source = "adapter/" + node.outputs[0];
    added_.push_back(node);
    return node.outputs[0];
  }

  bool is_conv() const { return update_.a.shape().size() > 2; }
  // A and B with the columns of PiSSA's first values.
  std::string WholeA() {
    return update_.has_first() ? Add("Concat", {update_.a_name(), first_a_}, {{"axis", int64_t{0}}}) : update_.a_name();
  }
  std::string WholeB() {
    return update_.has_first() ? Add("Concat", {update_.b_name(), first_b_}, {{"axis", int64_t{1}}}) : update_.b_name();
  }

  // scale·(x·Aᵀ)·Bᵀ
  std::string AddUpdate(const std::string& x, const std::string& a, const std::string& b) {
    if (!is_conv()) {
      const std::string down = Add("MatMul", {x, Transpose(a)});
      return Add("MatMul", {Add("Mul", {down, scale_}), Transpose(b)});
    }
    const std::string down = Add("Conv", {x, a}, product_.attrs);
    const Shape ones(update_.b.shape().begin() + 2, update_.b.shape().end());
    return Add("Conv", {Add("Mul", {down, scale_}), b}, {{"kernel_shape", ones}});
  }

  // The trained lengths over those of W + scale·B·A.
  std::string AddMagnitudeFactor(const std::string& a, const std::string& b) {
    const std::string products = is_conv() ? product_.inputs[1] : Repeat(a);
    const std::string factor = Add(std::string(kMagnitudeFactor), {update_.magnitude_name(), squares_, a, b, products},
                                   {{"scale", update_.scale}});
    added_.back().domain = kRowDomain;
    return factor;
  }

  void BuildBeside(const std::string& node) {
    ParsedNode* product = index_.Producer(node);
    const auto at = static_cast<size_t>(product - index_.graph().nodes.data());
    const std::string y = product->outputs[0];
    prefix_ = y + "/low_rank";
    const std::string base = y + "/base";
    product->outputs[0] = base;
    std::string bias;
    if (update_.has_magnitude() && product->inputs.size() > 2) {
      bias = product->inputs[2];
      product->inputs.resize(2);
    }
    product_ = *product;
    std::string x = product->inputs[0];
    if (update_.dropout > 0) x = Add("Dropout", {x}, {{kOwnRatio, update_.dropout}});
    const std::string a = WholeA(), b = WholeB(), up = AddUpdate(x, a, b);
    Finish(base, up, update_.has_magnitude() ? AddMagnitudeFactor(a, b) : "", x, bias, y);
    index_.copies[at] = std::exchange(added_, {});
  }

  // y = base + up; with magnitudes base + (f − 1)·x·W + f·up + bias, of which the first two are f·base without dropout.
  void Finish(const std::string& base, const std::string& up, const std::string& factor, const std::string& x,
              const std::string& bias, const std::string& y) {
    if (factor.empty()) {
      Add("Add", {base, up});
    } else if (update_.dropout == 0) {
      Add("Mul", {Add("Add", {base, up}), factor});
    } else {
      const std::string turned = Add("Mul", {Repeat(x), Add("Sub", {factor, one_})});
      Add("Add", {Add("Add", {base, turned}), Add("Mul", {up, factor})});
    }
    if (!bias.empty()) {
      const std::string sum = added_.back().outputs[0];
      Add("Add", {sum, is_conv() ? Reshape(bias, update_.magnitude.shape()) : bias});
    }
    added_.back().outputs[0] = y;
  }

  const LowRankUpdate& update_;
  WeightIndex& index_;
  std::string scale_, first_a_, first_b_, squares_, one_;
  // These belong to the product that BuildBeside works on.
  ParsedNode product_;
  std::string prefix_;
  std::vector<ParsedNode> added_;
};

}  // namespace

void BuildLowRank(const WeightRecord& record, WeightIndex* index) {
  UpdateBuilder(std::get<LowRankUpdate>(record.form), index).Build();
}

namespace {

// Beside a quantized weight, the file stores A and B in the order of its products.
void TransposeTrained(const LowRankUpdate& update, StoredWeights* weights) {
  for (const std::string& name : {update.a_name(), update.b_name()}) {
    const auto trained = weights->tensors.find(name);
    if (trained != weights->tensors.end()) trained->second = Transpose(trained->second.Whole());
  }
}

}  // namespace

// The integers have too few bits for the sum.
bool IsQuantized(const LowRankUpdate& update) { return !IsFloat(update.frozen.dtype()); }

absl::Status WriteLowRank(const WeightRecord& record, StoredWeights* weights) {
  const auto& update = std::get<LowRankUpdate>(record.form);
  if (IsQuantized(update)) {
    TransposeTrained(update, weights);
    return absl::OkStatus();
  }
  std::map<std::string, HostTensor> trained;
  for (const auto& [name, initial] : update.Trained()) {
    const auto found = weights->tensors.find(name);
    trained[name] = found == weights->tensors.end() ? initial : found->second.Whole();
    if (found != weights->tensors.end()) weights->tensors.erase(found);
  }
  const auto stored = weights->tensors.find(update.weight);
  LazyTensor weight = stored == weights->tensors.end() ? LazyTensor(update.frozen) : stored->second;
  const Type type = weight.type();
  auto merged = std::make_shared<UpdatedWeight>(std::move(weight), update, trained);
  weights->tensors.insert_or_assign(
      update.weight, LazyTensor(type, [merged](int64_t begin, int64_t count) { return merged->Read(begin, count); }));
  return absl::OkStatus();
}

}  // namespace onnxtrain
