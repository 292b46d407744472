#include <algorithm>
#include <cstring>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// A model may not make import fill more than this by saying so in a few bytes. VGG19's largest layer has 411 MB.
constexpr int64_t kMaxFilledBytes = int64_t{1} << 30;

// Where operators take weights: bit i stands for input i.
struct WeightSlots {
  std::string_view op;
  unsigned inputs;
};
constexpr WeightSlots kWeightSlots[] = {
    {"Conv", 0b110}, {"ConvTranspose", 0b110}, {"Gemm", 0b110}, {"MatMul", 0b11}, {"BatchNormalization", 0b11110},
    {"InstanceNormalization", 0b110}, {"GroupNormalization", 0b110}, {"LayerNormalization", 0b110},
    {"RMSNormalization", 0b10}, {"PRelu", 0b10}, {"Mul", 0b11}, {"Add", 0b11}, {"Gather", 0b1},
    {"LSTM", 0b10001110}, {"GRU", 0b1110}, {"RNN", 0b1110},
};

// A weight seen in another shape is still that weight.
constexpr std::string_view kViews[] = {"Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Identity"};

bool TakesWeight(const ParsedNode& node, const std::string& name) {
  for (const WeightSlots& slots : kWeightSlots) {
    if (node.op_type != slots.op || !node.domain.empty()) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == name && (i >= 32 || (slots.inputs >> i & 1) == 0)) return false;
    }
    return true;
  }
  return false;
}

bool IsView(const ParsedNode& node) {
  return node.domain.empty() && std::ranges::find(kViews, node.op_type) != std::end(kViews);
}

bool IsSplat(const HostTensor& t) {
  const auto bytes = t.bytes();
  const size_t size = SizeOf(t.dtype());
  return bytes.empty() || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

bool SameTransposed(const HostTensor& a, const HostTensor& b) {
  const int64_t rows = a.shape()[0], columns = a.shape()[1];
  if (b.shape() != Shape{columns, rows} || a.dtype() != b.dtype()) return false;
  const size_t size = SizeOf(a.dtype());
  const std::byte *p = a.bytes().data(), *q = b.bytes().data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (std::memcmp(p + (i * columns + j) * size, q + (j * rows + i) * size, size) != 0) return false;
    }
  }
  return true;
}

}  // namespace

// Does everything that reads the name use it as a weight?
bool Importer::OnlyFeedsWeightSlots(const std::string& name, int depth) const {
  auto readers = readers_.find(name);
  if (readers == readers_.end() || depth > 4) return false;
  return std::ranges::all_of(readers->second, [&](const ParsedNode* node) {
    if (TakesWeight(*node, name)) return true;
    return IsView(*node) && node->inputs[0] == name && !node->outputs.empty() && OnlyFeedsWeightSlots(node->outputs[0], depth + 1);
  });
}

// Models without their weights (the ONNX project's own, stripped for size) fill them by ConstantOfShape nodes whose shape
// the file gives. A shape that is computed, and masks, states and paddings, which are filled the same way, are no weights.
bool Importer::IsFilledWeight(const ImportScope& scope, const ParsedNode& node) const {
  if (options_.conformance || scope.graph != &model_.graph) return false;
  if (!node.domain.empty() || node.op_type != "ConstantOfShape") return false;
  if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.outputs[0].empty()) return false;
  const std::string& shape = node.inputs[0];
  auto producer = producers_.find(shape);
  const bool given = model_.graph.initializers.count(shape) > 0 ||
                     (producer != producers_.end() && producer->second->domain.empty() && producer->second->op_type == "Constant");
  return given && OnlyFeedsWeightSlots(node.outputs[0], 0);
}

absl::StatusOr<bool> Importer::ImportFilledWeight(ImportScope& scope, const ParsedNode& node) {
  if (!IsFilledWeight(scope, node)) return false;
  ASSIGN_OR_RETURN(const Attrs attrs, ResolveAttrs(scope, node));
  const HostTensor* value = attrs.Tensor("value");
  const DType stored = value != nullptr ? value->dtype() : DType::kFloat32;
  const std::optional<Val> shape = Lookup(scope, node.inputs[0], node);
  const HostTensor* extents = shape && shape->valid() ? KnownValue(shape->id()) : nullptr;
  if (extents == nullptr || extents->dtype() != DType::kInt64 || !IsFloat(stored) || (value != nullptr && value->size() != 1)) return false;
  const Type type{MappedType(stored), extents->ToInts()};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (type.elements() <= 1) return false;
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (bytes > kMaxFilledBytes || (filled_bytes_ += bytes) > 2 * kMaxFilledBytes) {
    return Invalid("fills ", ToString(type), ": weights of that size belong into the file");
  }
  HostTensor filled = HostTensor::Filled(type, value != nullptr ? value->At(0) : 0);
  Bind(scope, node, {AddWeight(node.outputs[0], std::move(filled), node)});
  ++filled_;
  return true;
}

// A constant that is repeated for each sample of the fixed batch.
bool Importer::RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead) const {
  if (node.op_type == "Reshape" || IsFed(data) || frozen_batch_ == 1 || lead != frozen_batch_) return false;
  return data.rank() == 0 || data.dim(0) == 1;
}

void Importer::NoteWeightForms() {
  notes_.insert(notes_.begin(), model_.notes.begin(), model_.notes.end());
  const auto sparse = std::ranges::count_if(model_.graph.sparse, [&](const std::string& name) { return needed_names_.count(name) > 0; });
  if (sparse > 0) notes_.push_back(StrCat("sparse initializers: ", sparse, ", not trained and left as they are"));
  if (filled_ > 0) notes_.push_back(StrCat("weights that ConstantOfShape nodes fill: ", filled_, "; the export stores them as initializers"));
  std::map<std::string, int> halves;
  for (const Weight& weight : weights_) {
    const HostTensor* stored = file_.Initializer(weight.name);
    const bool half = stored != nullptr && (stored->dtype() == DType::kFloat16 || stored->dtype() == DType::kBFloat16);
    if (half) ++halves[stored->dtype() == DType::kFloat16 ? "float16" : "bfloat16"];
  }
  for (const auto& [name, count] : halves) {
    notes_.push_back(StrCat(name, " weights: ", count, ", trained as ", NameOf(options_.float_type), " masters and rounded back on export"));
  }
}

// One initializer with several readers is one weight: its gradients are summed. Two initializers that hold the same
// numbers (exporters fold the transpose of a tied embedding into a second one) are two weights: equal bytes do not prove
// that they were meant to stay equal, so this is said, and nothing is done about it.
void Importer::NoteTies() {
  constexpr size_t kMostShown = 4;
  int tied = 0;
  std::vector<const Weight*> tables;
  for (const Weight& weight : weights_) {
    if (weight.state || !IsFloat(weight.tensor.dtype())) continue;
    auto readers = readers_.find(weight.name);
    tied += readers != readers_.end() && readers->second.size() > 1;
    if (weight.tensor.shape().size() == 2 && !IsSplat(weight.tensor)) tables.push_back(&weight);
  }
  if (tied > 0) notes_.push_back(StrCat("weights with several readers: ", tied, ", trained as one each (their gradients are summed)"));
  std::vector<std::string> pairs;
  std::stable_sort(tables.begin(), tables.end(), [](auto* a, auto* b) { return a->tensor.size() < b->tensor.size(); });
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t k = i + 1; k < tables.size() && tables[k]->tensor.size() == tables[i]->tensor.size(); ++k) {
      const HostTensor &a = tables[i]->tensor, &b = tables[k]->tensor;
      const bool transposed = SameTransposed(a, b);
      if (!transposed && !(a.type() == b.type() && a.SameBytes(b))) continue;
      pairs.push_back(StrCat("'", Printable(tables[i]->name), "' and '", Printable(tables[k]->name), "'", transposed ? " (transposed)" : ""));
    }
  }
  if (pairs.empty()) return;
  const std::string more = pairs.size() > kMostShown ? StrCat(" and ", pairs.size() - kMostShown, " more pairs") : "";
  pairs.resize(std::min(pairs.size(), kMostShown));
  notes_.push_back(StrCat("weights that hold the same numbers, perhaps tied once: ", absl::StrJoin(pairs, ", "), more, "; each is trained by itself"));
}

}  // namespace onnxtrain
