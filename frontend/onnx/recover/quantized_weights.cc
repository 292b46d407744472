#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

constexpr int kMaxSteps = 4;  // nodes between a product and its scale
constexpr size_t kWeightInput = 1;

// Returns null for operators that have a scale.
const QuantizedWeight* FindProductRow(const ParsedNode& node) {
  const QuantizedWeight* row = FindQuantizedWeight(node.domain, node.op_type, kWeightInput);
  return row != nullptr && row->scale_behind ? row : nullptr;
}

bool IsMul(const ParsedNode& node) { return node.op_type == "Mul" && node.inputs.size() == 2; }

// Returns the factor if it is stored, or else the stored one of its two factors; the activations' scale comes first.
std::string StoredFactor(const WeightIndex& index, const std::string& factor) {
  const auto is_stored = [&](const std::string& name) { return index.FindTensor(name) != nullptr; };
  if (is_stored(factor)) return factor;
  const ParsedNode* producer = index.Producer(factor);
  if (producer == nullptr || !IsMul(*producer)) return "";
  const auto stored = std::find_if(producer->inputs.rbegin(), producer->inputs.rend(), is_stored);
  return stored == producer->inputs.rend() ? "" : *stored;
}

// Returns the weight's scale after a product, or "". Tools that quantize activations at run time write MatMulInteger or
// ConvInteger, optionally Add of a rounded bias, then Cast, then Mul by the product of both scales.
std::string FindScaleBehind(const WeightIndex& index, const ParsedNode& product) {
  const ParsedNode* node = &product;
  for (int step = 0; step < kMaxSteps; ++step) {
    if (node->outputs.empty() || index.Readers(node->outputs[0]).size() != 1) return "";
    const auto [next, input] = index.Readers(node->outputs[0])[0];
    const bool adds_bias = step == 0 && next->op_type == "Add";  // the bias is quantized like the products
    if (!adds_bias && !IsMul(*next) && next->op_type != "Cast") return "";
    std::string scale = IsMul(*next) ? StoredFactor(index, next->inputs[1 - input]) : "";
    if (!scale.empty()) return scale;
    node = next;
  }
  return "";
}

}  // namespace

absl::StatusOr<WeightRecords> MatchProductScales(WeightIndex* index) {
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    const QuantizedWeight* row = FindProductRow(node);
    if (row == nullptr || node.inputs.size() <= kWeightInput || node.inputs.size() > row->scale) continue;
    if (index->FindTensor(node.inputs[kWeightInput]) == nullptr) continue;
    const std::string scale = FindScaleBehind(*index, node);
    if (scale.empty()) continue;
    records.push_back({.weight = scale,
                       .why = "it scales integer products",
                       .form = AddedInput{.node = MakeFileReader(node, 0).node, .input = row->scale}});
  }
  return records;
}

// Adds the scale as an input that is not trained.
void BuildProductScale(const WeightRecord& record, WeightIndex* index) {
  const auto& [node, input] = std::get<AddedInput>(record.form);
  if (ParsedNode* product = index->Producer(node)) {
    product->inputs.resize(input);
    product->inputs.push_back(record.weight);
  }
  index->mutable_graph().origins[record.weight].kind = WeightOrigin::Kind::kConstant;
}

namespace {

// Returns the name in the file of a value: resolves Identity nodes and splits of merged weights.
std::string FileName(const WeightIndex& index, std::string name) {
  for (const ParsedNode* node = index.Producer(name); node != nullptr && IsOp(*node, {"Identity"});
       node = index.Producer(name))
    name = node->inputs[0];
  for (const SplitWeight* split : ListForms<SplitWeight>(index.graph().records)) {
    if (split->name == name) return split->merged;
  }
  return name;
}

bool IsStored(const WeightIndex& index, const std::string& name) {
  const ParsedNode* node = index.Producer(name);
  return node == nullptr ? index.FindTensor(name) != nullptr : IsOp(*node, {"Constant"});
}

}  // namespace

namespace {

// Returns true if low-rank updates train in place of the weight, and all nodes that read it can read its integers.
bool IsReplacedByUpdates(const WeightIndex& index, const std::string& weight) {
  const HostTensor* tensor = index.FindTensor(weight);
  if (index.model().edits.low_rank.empty() || tensor == nullptr || tensor->shape().size() != 2) return false;
  if (DTypeSize(tensor->dtype()) != 1 || IsSmallFloat(tensor->dtype())) return false;
  return std::ranges::all_of(index.Readers(weight), [](const WeightReader& reader) {
    const QuantizedWeight* row = FindQuantizedWeight(reader.node->domain, reader.node->op_type, reader.input);
    return row != nullptr && row->in_place;
  });
}

// Returns true unless columns name their blocks (g_idx), for which the import has to unpack the numbers.
bool ReadsPacked(const ParsedNode& node) {
  constexpr size_t kColumnBlocks = 4;
  return node.op_type != "MatMulNBits" || node.inputs.size() <= kColumnBlocks || node.inputs[kColumnBlocks].empty();
}

}  // namespace

absl::StatusOr<WeightRecords> MatchStoredNumbers(WeightIndex* index) {
  WeightRecords records;
  std::unordered_set<std::string> found;
  for (const ParsedNode& node : index->graph().nodes) {
    const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : ""; };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const QuantizedWeight* row = FindQuantizedWeight(node.domain, node.op_type, i);
      const std::string& weight = node.inputs[i];
      if (row == nullptr || index->FindTensor(weight) == nullptr) continue;
      const bool stays = row->packed ? ReadsPacked(node) : IsReplacedByUpdates(*index, weight);
      if (!stays || !found.insert(weight).second) continue;
      records.push_back({.weight = weight,
                         .why = StrCat("'", Printable(node.source), "' reads its numbers"),
                         .form = QuantizedForm{
                             .row = row, .attrs = node.attrs, .scale = input(row->scale), .zero = input(row->zero)}});
    }
  }
  return records;
}

std::vector<std::string> ListStoredNumbers(const ParsedGraph& graph) {
  std::vector<std::string> names;
  for (const WeightRecord& record : graph.records) {
    if (record.row->matches != MatchStoredNumbers) continue;
    const auto& form = std::get<QuantizedForm>(record.form);
    names.insert(names.end(), {record.weight, form.scale, form.zero});
  }
  return names;
}

absl::StatusOr<WeightRecords> MatchQuantizedWeights(WeightIndex* index) {
  WeightRecords records;
  const std::vector<std::string> stored = ListStoredNumbers(index->graph());
  std::unordered_set<std::string> found(stored.begin(), stored.end());
  for (const ParsedNode& node : index->graph().nodes) {
    const auto input = [&](size_t i) { return i < node.inputs.size() ? FileName(*index, node.inputs[i]) : ""; };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const QuantizedWeight* row = FindQuantizedWeight(node.domain, node.op_type, i);
      if (row == nullptr || row->packed || input(row->scale).empty()) continue;
      const std::string weight = input(i);
      if (!IsStored(*index, weight) || !found.insert(weight).second) continue;
      records.push_back({.weight = weight,
                         .why = StrCat("'", Printable(node.source), "' scales its integers"),
                         .form = QuantizedForm{.row = row,
                                               .attrs = node.attrs,
                                               .scale = input(row->scale),
                                               .factor = input(row->factor),
                                               .zero = input(row->zero)}});
    }
  }
  return records;
}

namespace {

absl::StatusOr<HostTensor> ReadConstant(const std::string& name, const StoredWeights& weights) {
  auto value = weights.read(name);
  if (!value.ok()) return Invalid("is quantized with '", Printable(name), "', which is not a constant");
  return value;
}

absl::StatusOr<HostTensor> Quantize(const QuantizedForm& form, const HostTensor& value, const HostTensor& stored,
                                    const StoredWeights& weights) {
  if (value.shape() != stored.shape())
    return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape()));
  ASSIGN_OR_RETURN(HostTensor scale, ReadConstant(form.scale, weights));
  if (!form.factor.empty()) {
    ASSIGN_OR_RETURN(const HostTensor other, ReadConstant(form.factor, weights));
    scale = ProductOfScales(scale, other);
  }
  HostTensor zero;
  if (!form.zero.empty()) {
    ASSIGN_OR_RETURN(zero, ReadConstant(form.zero, weights));
  }
  ASSIGN_OR_RETURN(const ScaleLayout layout, WeightScaleLayout(*form.row, form.attrs, stored.shape(), scale.shape()));
  if (!form.zero.empty() && !layout.Fits(zero.shape()))
    return Invalid("has a zero point ", ToString(zero.type()), " beside scales ", ToString(scale.type()));
  return Requantized(value, stored, scale, form.zero.empty() ? nullptr : &zero, layout);
}

}  // namespace

// Keeps the stored numbers of elements that training did not change.
absl::Status WriteQuantized(const WeightRecord& record, StoredWeights* weights) {
  const auto trained = weights->tensors.find(record.weight);
  if (trained == weights->tensors.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensor stored, weights->read(record.weight));
  if (!FindGrid(stored.dtype()) || IsFloat(stored.dtype())) return absl::OkStatus();
  const HostTensor value = trained->second.Whole();
  auto quantized = Quantize(std::get<QuantizedForm>(record.form), value, stored, *weights);
  for (const HostTensor* read : {&value, &stored}) ReleaseMappedPages(read->bytes());
  if (!quantized.ok()) return Annotate(quantized.status(), StrCat("weight '", Printable(record.weight), "' "));
  trained->second = *std::move(quantized);
  return absl::OkStatus();
}

}  // namespace onnxtrain
