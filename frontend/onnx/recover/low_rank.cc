#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/fused_projection.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

FindNode ReadsParts(const WeightIndex& index) {
  return [&index](const std::string& value) { return PartsOf(index.Producer(value)); };
}

FindProducer ReadsNodes(const WeightIndex& index) {
  return [&index](const std::string& value) { return index.Producer(value); };
}

FindTensor ReadsTensors(const WeightIndex& index) {
  return [&index](const std::string& value) { return index.FindTensor(value); };
}

bool MultipliesByStack(const ParsedNode& node, const std::string& weight, const WeightIndex& index) {
  return FindMixtureLayer(node, weight) != nullptr ||
         FindExpertProduct(node, ReadsNodes(index), ReadsTensors(index)).has_value();
}

// Fails if the graph lacks the weight or a product, or already uses the names of the trained tensors.
absl::Status Check(const LowRankUpdate& update, const WeightIndex& index) {
  for (const std::string& node : update.nodes) {
    if (index.Producer(node) == nullptr) return Invalid("there is no product '", Printable(node), "' to adapt");
    if (update.experts > 0 && !MultipliesByStack(*index.Producer(node), update.weight, index))
      return Invalid("'", Printable(node), "' is no product with matrices of a stack");
    if (update.has_magnitude() && FindIntegerProduct(node, ReadsParts(index)))
      return Invalid("'", Printable(update.module),
                     "' multiplies integers: magnitudes (DoRA) need a product of floats");
  }
  if (index.FindTensor(update.weight) == nullptr)
    return Invalid("there is no weight '", Printable(update.weight), "' to adapt");
  for (const auto& [name, initial] : update.Trained()) {
    if (index.IsNameTaken(name)) return Invalid("'", Printable(name), "' is in the model already");
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const LowRankUpdates& parts, const WeightIndex& index) {
  for (const LowRankUpdate& part : parts) {
    RETURN_IF_ERROR(Check(part, index));
    if (part.has_magnitude() != parts[0].has_magnitude())
      return Invalid("only some of '", Printable(parts[0].module), "' and '", Printable(part.module),
                     "', which share a weight, have magnitudes (DoRA)");
  }
  return absl::OkStatus();
}

std::string Explain(const LowRankUpdates& parts) {
  if (!parts[0].is_part()) return StrCat("an adapter of rank ", parts[0].rank(), " is trained beside it");
  std::string text = "adapters are trained beside parts of it:";
  for (const LowRankUpdate& part : parts)
    StrAppend(&text, " ", part.module.substr(part.module.rfind('.') + 1), " of rank ", part.rank());
  return text;
}

void AddInitializer(const std::string& name, HostTensor value, WeightOrigin::Kind kind, WeightIndex* index) {
  ParsedGraph& graph = index->mutable_graph();
  graph.initializers.emplace(name, std::move(value));
  graph.initializer_order.push_back(name);
  graph.origins[name] = {.kind = kind, .module_name = name};
}

}  // namespace

size_t FindBiasInput(std::string_view op_type) { return op_type == "MatMulNBits" ? 5 : 2; }

absl::StatusOr<WeightRecords> MatchLowRank(WeightIndex* index) {
  WeightRecords records;
  for (LowRankUpdates& parts : GroupByWeight(index->model().edits.low_rank)) {
    RETURN_IF_ERROR(CheckGroup(parts, *index));
    for (LowRankUpdate& part : parts) part.frozen = *index->FindTensor(part.weight);
    RETURN_IF_ERROR(Annotate(FindBlocks(*index, &parts), StrCat("weight '", Printable(parts[0].weight), "' ")));
    records.push_back({.weight = parts[0].weight, .why = Explain(parts), .form = parts});
  }
  return records;
}

namespace {

HostTensor Negated(const HostTensor& value) {
  std::vector<double> values = value.ToDoubles();
  for (double& v : values) v = -v;
  return HostTensor::FromDoubles(value.type(), values);
}

// Returns the numbers rounded to the type and the rounding errors, as [2, n], since the graph may compute in float64.
HostTensor InTwoParts(const HostTensor& exact, DType dtype) {
  HostTensor parts({dtype, {2, exact.size()}});
  for (int64_t i = 0; i < exact.size(); ++i) {
    parts.Set(i, exact.At(i));
    parts.Set(exact.size() + i, exact.At(i) - parts.At(i));
  }
  return parts;
}

// Returns the scale of each row of the stacked A, or a scalar for a single update.
HostTensor MakeScale(const LowRankUpdates& parts) {
  if (parts.size() == 1) return HostTensor::Scalar(parts[0].a.dtype(), parts[0].scale);
  std::vector<double> scales;
  for (const LowRankUpdate& part : parts)
    scales.insert(scales.end(), static_cast<size_t>(part.whole_rank()), part.scale);
  return HostTensor::FromDoubles({parts[0].a.dtype(), {std::ssize(scales)}}, scales);
}

// Adds the updates of one weight to the products that read it. Updates of several parts become one update, whose A is
// stacked and whose B has a block of outputs and ranks for each part.
class UpdateBuilder {
 public:
  UpdateBuilder(const LowRankUpdates& parts, WeightIndex* index)
      : parts_(parts), update_(parts[0]), index_(*index), dtype_(update_.a.dtype()) {
    for (const LowRankUpdate& part : parts) AddTensors(part);
    scale_ = AddConstant("lora_scale", MakeScale(parts));
    if (!update_.has_magnitude()) return;
    const HostTensor squares =
        SumSquares(update_.blocks ? ReadFloats(update_.blocks) : update_.frozen, update_.outputs_first);
    squares_ = AddConstant("lora_squares", InTwoParts(squares, dtype_));
    one_ = AddConstant("lora_one", HostTensor::Scalar(dtype_, 1));
    AddMagnitudes(squares);
  }

  void Build() {
    for (const std::string& node : update_.nodes) {
      if (FindMixtureLayer(*index_.Producer(node), update_.weight) != nullptr) {
        BuildInMixture(index_.Producer(node));
      } else {
        update_.experts > 0 ? BuildExperts(node) : BuildBeside(node);
      }
    }
  }

 private:
  using Names = std::vector<std::string>;

  std::string AddConstant(const std::string& what, HostTensor value) {
    std::string name = StrCat(update_.module, ".", what);
    AddInitializer(name, std::move(value), WeightOrigin::Kind::kConstant, &index_);
    return name;
  }

  // Adds the trained tensors and constants of a part, and lists the blocks of the stacked A and B.
  void AddTensors(const LowRankUpdate& part) {
    for (const auto& [name, initial] : part.Trained())
      AddInitializer(name, initial, WeightOrigin::Kind::kParameter, &index_);
    const std::string tag = StrCat("part", blocks_.size(), ".");
    Block block{.b = {part.b_name()}};
    a_.push_back(part.a_name());
    if (part.has_first()) {
      a_.push_back(AddConstant(tag + "lora_first_A", part.first_a));
      block.b.push_back(AddConstant(tag + "lora_first_B", Negated(part.first_b)));
    }
    const auto zeros = [&](const char* what, int64_t outputs) {
      return outputs == 0 ? "" : AddConstant(tag + what, HostTensor({dtype_, {outputs, part.whole_rank()}}));
    };
    block.before = zeros("lora_before", part.outputs_before);
    block.after = zeros("lora_after", part.outputs_after);
    blocks_.push_back(std::move(block));
  }

  // Lists the magnitudes of all outputs. Outputs that no part updates have the length of the weight's row.
  void AddMagnitudes(const HostTensor& squares) {
    int64_t end = 0;
    const auto fill_to = [&](int64_t begin) {
      std::vector<double> lengths;
      for (; end < begin; ++end) lengths.push_back(std::sqrt(squares.At(end)));
      if (lengths.empty()) return;
      const HostTensor constant = HostTensor::FromDoubles({dtype_, {std::ssize(lengths)}}, lengths);
      magnitudes_.push_back(AddConstant(StrCat("lora_lengths", begin), constant));
    };
    for (const LowRankUpdate& part : parts_) {
      fill_to(part.outputs_before);
      magnitudes_.push_back(part.magnitude_name());
      end += part.b.shape()[0];
    }
    fill_to(squares.size());
  }

  // Adds a node after the product; returns its output.
  std::string Add(std::string op, Names inputs, Attrs attrs = {}) {
    std::string output = StrCat(prefix_, added_.size());
    added_.push_back(MakeRowNode("adapter", std::move(op), std::move(inputs), output, std::move(attrs)));
    return output;
  }
  std::string Transpose(const std::string& matrix, const std::vector<int64_t>& perm = {1, 0}) {
    return Add("Transpose", {matrix}, {{"perm", perm}});
  }
  std::string Reshape(const std::string& value, const Shape& shape) {
    const std::string name = StrCat(update_.module, ".shape", index_.graph().initializers.size());
    AddInitializer(name, HostTensor::FromInts(shape), WeightOrigin::Kind::kConstant, &index_);
    return Add("Reshape", {value, name});
  }
  // Returns the floats that a value stands for.
  std::string Floats(const std::string& value, const Encoding& form) {
    return form.scale.empty() ? value : Add("DequantizeLinear", {value, form.scale, form.zero});
  }
  // Adds the product of another x with W, without a bias.
  std::string Repeat(const std::string& x) {
    ParsedNode node = product_;
    node.inputs[0] = x;
    node.outputs = {StrCat(prefix_, added_.size())};
    node.name = node.source = "adapter/" + node.outputs[0];
    added_.push_back(node);
    return node.outputs[0];
  }

  bool is_conv() const { return update_.a.shape().size() > 2; }
  std::string Join(const Names& values, int64_t axis) {
    return values.size() == 1 ? values[0] : Add("Concat", values, {{"axis", axis}});
  }
  // Stacks B, [outputs of the weight, ranks of all parts].
  std::string JoinBlocks() {
    Names columns;
    for (const Block& block : blocks_) {
      Names rows = {block.before, Join(block.b, 1), block.after};
      std::erase(rows, "");
      columns.push_back(Join(rows, 0));
    }
    return Join(columns, 1);
  }

  // Adds scale·(x·Aᵀ)·Bᵀ.
  std::string AddUpdate(const std::string& x, const std::string& a, const std::string& b) {
    if (!is_conv()) {
      const std::string down = Add("MatMul", {x, Transpose(a)});
      return Add("MatMul", {Add("Mul", {down, scale_}), Transpose(b)});
    }
    const std::string down = Add("Conv", {x, a}, product_.attrs);
    const Shape ones(update_.b.shape().begin() + 2, update_.b.shape().end());
    return Add("Conv", {Add("Mul", {down, scale_}), b}, {{"kernel_shape", ones}});
  }

  // Adds the factor f: the trained lengths divided by those of W + scale·B·A.
  std::string AddMagnitudeFactor(const std::string& a, const std::string& b) {
    const std::string products = is_conv() ? product_.inputs[1] : Repeat(a), scaled = Add("Mul", {b, scale_});
    const std::string factor =
        Add(std::string(kMagnitudeFactor), {Join(magnitudes_, 0), squares_, a, scaled, products});
    added_.back().domain = kRowDomain;
    return factor;
  }

  // Applies to a stack of factors what the product's operand is computed from the weight by.
  std::string Select(std::string stack, const ExpertProduct& product) {
    for (auto node = product.path.rbegin(); node != product.path.rend(); ++node) {
      ParsedNode copy = **node;
      copy.inputs[0] = stack;
      copy.outputs = {StrCat(prefix_, added_.size())};
      copy.name = copy.source = "adapter/" + copy.outputs[0];
      added_.push_back(copy);
      stack = copy.outputs[0];
    }
    return stack;
  }

  // Adds the update of products with selected matrices of a stack, y = x·W[e]: base + (x·A[e]ᵀ·scale)·B[e]ᵀ, or of
  // y = W[e]·x.
  void BuildExperts(const std::string& node) {
    ParsedNode* product = index_.Producer(node);
    const auto at = static_cast<size_t>(product - index_.graph().nodes.data());
    const auto found = FindExpertProduct(*product, ReadsNodes(index_), ReadsTensors(index_));
    const std::string y = product->outputs[0], x = product->inputs[1 - found->operand];
    const int64_t rank = update_.rank(), inputs = update_.a.shape()[1], outputs = update_.b.shape()[0];
    prefix_ = y + "/low_rank";
    product->outputs[0] = y + "/base";
    std::string a = Reshape(a_[0], {update_.experts, rank, inputs});
    std::string b = Transpose(Reshape(blocks_[0].b[0], {outputs, rank, update_.experts}), {2, 0, 1});
    if (!update_.outputs_first) {
      a = Transpose(a, {0, 2, 1});
      b = Transpose(b, {0, 2, 1});
    }
    a = Select(a, *found);
    b = Select(b, *found);
    const auto multiply = [&](const std::string& data, const std::string& matrices) {
      return Add("MatMul", found->operand == 1 ? Names{data, matrices} : Names{matrices, data});
    };
    Add("Add", {y + "/base", multiply(Add("Mul", {multiply(x, a), scale_}), b)});
    added_.back().outputs[0] = y;
    index_.copies[at] = std::exchange(added_, {});
  }

  // Adds A, B and the scale as inputs of a node that computes all experts.
  void BuildInMixture(ParsedNode* node) {
    const size_t at = FindMixtureLayer(*node, update_.weight)->update;
    const Names factors = {a_[0], blocks_[0].b[0], scale_};
    node->inputs.resize(std::max(node->inputs.size(), at + factors.size()));
    std::ranges::copy(factors, node->inputs.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void BuildBeside(const std::string& node) {
    ParsedNode* product = index_.Producer(node);
    const auto at = static_cast<size_t>(product - index_.graph().nodes.data());
    const std::vector<ParsedNode> readers =
        HoldsProjection(*product) ? SplitProjection(product) : std::vector<ParsedNode>();
    const std::string y = product->outputs[0];
    const auto integers = FindIntegerProduct(y, ReadsParts(index_));
    prefix_ = y + "/low_rank";
    const std::string base = y + "/base";
    product->outputs[0] = base;
    std::string bias;
    if (const size_t at_bias = FindBiasInput(product->op_type);
        update_.has_magnitude() && product->inputs.size() > at_bias) {
      bias = product->inputs[at_bias];
      product->inputs.resize(at_bias);
    }
    product_ = *product;
    std::string x = integers ? Floats(integers->x, integers->x_form) : product->inputs[0];
    const Encoding rounded = integers ? integers->y_form : Encoding();
    if (update_.dropout > 0) x = Add("Dropout", {x}, {{kOwnRatio, update_.dropout}});
    const std::string a = Join(a_, 0), b = JoinBlocks(), up = AddUpdate(x, a, b);
    const std::string factor = update_.has_magnitude() ? AddMagnitudeFactor(a, b) : "";
    Finish(Floats(base, rounded), up, factor, x, bias);
    if (!rounded.scale.empty()) Add("QuantizeLinear", {added_.back().outputs[0], rounded.scale, rounded.zero});
    added_.back().outputs[0] = y;
    std::ranges::copy(readers, std::back_inserter(added_));
    index_.copies[at] = std::exchange(added_, {});
  }

  // Adds base + up or, with magnitudes, base + (f − 1)·x·W + f·up + bias: f·(base + up) + bias without dropout.
  void Finish(const std::string& base, const std::string& up, const std::string& factor, const std::string& x,
              const std::string& bias) {
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
  }

  // The initializers of a part's B: its columns, and rows of zeros before and after them, or "".
  struct Block {
    Names b;
    std::string before, after;
  };

  const LowRankUpdates& parts_;
  const LowRankUpdate& update_;  // the first part
  WeightIndex& index_;
  const DType dtype_;
  Names a_, magnitudes_;  // names of the parts' tensors, in order
  std::vector<Block> blocks_;
  std::string scale_, squares_, one_;
  // The following members belong to the product that BuildBeside works on.
  ParsedNode product_;
  std::string prefix_;
  std::vector<ParsedNode> added_;
};

}  // namespace

void BuildLowRank(const WeightRecord& record, WeightIndex* index) {
  UpdateBuilder(std::get<LowRankUpdates>(record.form), index).Build();
}

namespace {

// Returns the tensors of the update by name: trained, or initial if the loss does not depend on it.
std::map<std::string, HostTensor> FindTrained(const LowRankUpdate& update, const StoredWeights& weights) {
  std::map<std::string, HostTensor> trained;
  for (const auto& [name, initial] : update.Trained()) {
    const auto found = weights.tensors.find(name);
    trained[name] = found == weights.tensors.end() ? initial : found->second.Whole();
  }
  return trained;
}

// Replaces the magnitudes by what the written nodes multiply each output with: the magnitude over the length of the
// sum.
void WriteFactors(const LowRankUpdates& parts, StoredWeights* weights) {
  std::vector<double> factors;
  for (const LowRankUpdate& part : parts) {
    const std::map<std::string, HostTensor> trained = FindTrained(part, *weights);
    weights->tensors.erase(part.magnitude_name());
    if (weights->checks_only) continue;
    const UpdatedWeight sum(ReadFloats(part.blocks), part, trained);
    factors.resize(sum.factors().size(), 1);
    for (size_t i = 0; i < factors.size(); ++i) factors[i] *= sum.factors()[i];
  }
  if (factors.empty()) return;
  const Type type{parts[0].a.dtype(), {std::ssize(factors)}};
  weights->tensors.insert_or_assign(parts[0].factor_name(), HostTensor::FromDoubles(type, factors));
}

// Writes the update as the nodes beside a quantized weight read it: A and B transposed.
void WriteBeside(const LowRankUpdates& parts, StoredWeights* weights) {
  if (parts[0].has_magnitude()) WriteFactors(parts, weights);
  for (const LowRankUpdate& part : parts) {
    for (const std::string& name : {part.a_name(), part.b_name()}) {
      const auto trained = weights->tensors.find(name);
      if (trained != weights->tensors.end()) trained->second = Transpose(trained->second.Whole());
    }
  }
}

}  // namespace

// Returns true if the weight is stored as integers, which have too few bits for the sum.
bool IsQuantized(const LowRankUpdate& update) { return !IsFloat(update.frozen.dtype()); }

namespace {

// Adds the update to the weight, and removes the trained tensors.
LazyTensor AddUpdate(const LazyTensor& weight, const LowRankUpdate& update, StoredWeights* weights) {
  const std::map<std::string, HostTensor> trained = FindTrained(update, *weights);
  for (const auto& [name, tensor] : trained) weights->tensors.erase(name);
  const auto merged = std::make_shared<UpdatedWeight>(weight, update, trained);
  return {weight.type(), [merged](int64_t begin, int64_t count) { return merged->Read(begin, count); }};
}

absl::Status Merge(const LowRankUpdates& parts, StoredWeights* weights) {
  const LowRankUpdate& first = parts[0];
  const auto stored = weights->tensors.find(first.weight);
  LazyTensor sum = stored != weights->tensors.end() ? stored->second
                   : first.sum                      ? ReadFloats(first.blocks)
                                                    : LazyTensor(first.frozen);
  for (const LowRankUpdate& part : parts) sum = AddUpdate(sum, part, weights);
  if (first.sum)
    return Annotate(WriteRequantized(first, sum, weights), StrCat("weight '", Printable(first.weight), "' "));
  weights->tensors.insert_or_assign(first.weight, std::move(sum));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteLowRank(const WeightRecord& record, StoredWeights* weights) {
  const auto& parts = std::get<LowRankUpdates>(record.form);
  if (!IsQuantized(parts[0]) || parts[0].sum) return Merge(parts, weights);
  WriteBeside(parts, weights);
  return absl::OkStatus();
}

}  // namespace onnxtrain
