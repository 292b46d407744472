#include <algorithm>
#include <memory>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

// Fails if the graph lacks the weight or a product, or has the names of A and B already.
absl::Status Check(const LowRankUpdate& update, const WeightIndex& index) {
  for (const std::string& node : update.nodes) {
    if (index.Producer(node) == nullptr) return Invalid("there is no product '", Printable(node), "' to adapt");
  }
  if (index.FindTensor(update.weight) == nullptr)
    return Invalid("there is no weight '", Printable(update.weight), "' to adapt");
  for (const std::string& name : {update.a_name(), update.b_name()}) {
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

// Computes W + scale·B·A, or its transpose where W is stored [inputs, outputs], in float32 and blocks of elements.
class UpdatedWeight {
 public:
  UpdatedWeight(LazyTensor weight, const HostTensor& a, const HostTensor& b, const LowRankUpdate& update)
      : weight_(std::move(weight)), rank_(a.shape()[0]), columns_(weight_.shape()[1]) {
    // Rows of the stored weight are rows of B·A, or its columns.
    rows_ = update.outputs_first ? ToFloats(b, false) : ToFloats(a, true);
    along_ = update.outputs_first ? ToFloats(a, false) : ToFloats(b, true);
    for (float& value : rows_) value = static_cast<float>(value * update.scale);
  }

  HostTensor Read(int64_t begin, int64_t count) const {
    const HostTensor stored = weight_.Read(begin, count);
    HostTensor sum({DType::kFloat32, {count}});
    auto* out = reinterpret_cast<float*>(sum.mutable_bytes().data());
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(stored.At(i));
    for (int64_t at = begin; at < begin + count;) {
      const int64_t row = at / columns_, first = at % columns_, last = std::min(columns_, first + begin + count - at);
      AddRow(row, first, last, out + (at - begin) - first);
      at += last - first;
    }
    return sum.CastTo(weight_.dtype());
  }

 private:
  // The elements in row-major order, or those of the transpose.
  static std::vector<float> ToFloats(const HostTensor& matrix, bool transposed) {
    const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
    std::vector<float> values(static_cast<size_t>(matrix.size()));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        values[static_cast<size_t>(transposed ? c * rows + r : r * columns + c)] =
            static_cast<float>(matrix.At(r * columns + c));
    }
    return values;
  }

  void AddRow(int64_t row, int64_t first, int64_t last, float* out) const {
    for (int64_t r = 0; r < rank_; ++r) {
      const float factor = rows_[static_cast<size_t>(row * rank_ + r)];
      const float* along = along_.data() + r * columns_;
      for (int64_t c = first; c < last; ++c) out[c] += factor * along[c];
    }
  }

  LazyTensor weight_;
  int64_t rank_, columns_;
  std::vector<float> rows_;   // [rows of the weight, rank], times the scale
  std::vector<float> along_;  // [rank, columns of the weight]
};

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

// Adds scale·(x·Aᵀ)·Bᵀ to the result of a product.
void BuildBeside(const std::string& node, const LowRankUpdate& update, const std::string& scale, WeightIndex* index) {
  ParsedNode* product = index->Producer(node);
  const auto at = static_cast<size_t>(product - index->graph().nodes.data());
  const std::string y = product->outputs[0], x = product->inputs[0];
  const std::string base = y + "/base", prefix = y + "/low_rank";
  const auto make = [](std::string op, std::vector<std::string> inputs, const std::string& output, Attrs attrs = {}) {
    return MakeRowNode("adapter", std::move(op), std::move(inputs), output, std::move(attrs));
  };
  const Attrs swap = {{"perm", std::vector<int64_t>{1, 0}}};
  product->outputs[0] = base;
  index->copies[at] = {make("Transpose", {update.a_name()}, prefix + "/a", swap),
                       make("Transpose", {update.b_name()}, prefix + "/b", swap),
                       make("MatMul", {x, prefix + "/a"}, prefix + "/down"),
                       make("Mul", {prefix + "/down", scale}, prefix + "/scaled"),
                       make("MatMul", {prefix + "/scaled", prefix + "/b"}, prefix + "/up"),
                       make("Add", {base, prefix + "/up"}, y)};
}

}  // namespace

// y = x·W becomes y = x·W + scale·(x·Aᵀ)·Bᵀ: neither the sum of the weights nor its gradient is formed.
void BuildLowRank(const WeightRecord& record, WeightIndex* index) {
  const auto& update = std::get<LowRankUpdate>(record.form);
  AddInitializer(update.a_name(), update.a, WeightOrigin::Kind::kParameter, index);
  AddInitializer(update.b_name(), update.b, WeightOrigin::Kind::kParameter, index);
  HostTensor scale({update.a.dtype(), {}});
  scale.Set(0, update.scale);
  const std::string scale_name = update.module + ".lora_scale";
  AddInitializer(scale_name, std::move(scale), WeightOrigin::Kind::kConstant, index);
  for (const std::string& node : update.nodes) BuildBeside(node, update, scale_name, index);
}

namespace {

// Beside a quantized weight, the file stores A and B in the order of its products.
void TransposeTrained(const LowRankUpdate& update, StoredWeights* weights) {
  for (const std::string& name : {update.a_name(), update.b_name()}) {
    const auto trained = weights->tensors.find(name);
    if (trained != weights->tensors.end()) trained->second = LazyTensor(TransposeMatrix(trained->second.Whole()));
  }
}

}  // namespace

// The integers have too few bits for the sum.
bool IsQuantized(const LowRankUpdate& update) { return !IsFloat(update.frozen.dtype()); }

HostTensor TransposeMatrix(const HostTensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HostTensor transposed({matrix.dtype(), {columns, rows}});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) transposed.Set(c * rows + r, matrix.At(r * columns + c));
  }
  return transposed;
}

absl::Status WriteLowRank(const WeightRecord& record, StoredWeights* weights) {
  const auto& update = std::get<LowRankUpdate>(record.form);
  if (IsQuantized(update)) {
    TransposeTrained(update, weights);
    return absl::OkStatus();
  }
  const auto find = [&](const std::string& name, const HostTensor& initial) -> LazyTensor {
    const auto trained = weights->tensors.find(name);
    return trained == weights->tensors.end() ? LazyTensor(initial) : trained->second;
  };
  const HostTensor a = find(update.a_name(), update.a).Whole(), b = find(update.b_name(), update.b).Whole();
  LazyTensor weight = find(update.weight, update.frozen);
  const Type type = weight.type();
  auto merged = std::make_shared<UpdatedWeight>(std::move(weight), a, b, update);
  weights->tensors.erase(update.a_name());
  weights->tensors.erase(update.b_name());
  weights->tensors.insert_or_assign(
      update.weight, LazyTensor(type, [merged](int64_t begin, int64_t count) { return merged->Read(begin, count); }));
  return absl::OkStatus();
}

}  // namespace onnxtrain
