#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/ops/import/mixture.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/quantize.h"
#include "frontend/ops/quantize_blocks.h"

namespace onnxtrain {
namespace {

// Returns how the file quantizes the weight; no row if the table has no record of it.
QuantizedForm FindForm(const std::string& weight, const WeightRecords& records) {
  for (const WeightRecord& record : records) {
    const auto* form = std::get_if<QuantizedForm>(&record.form);
    if (form != nullptr && record.weight == weight) return *form;
  }
  return {};
}

absl::StatusOr<HostTensor> FindInitializer(const std::string& name, const ParsedGraph& graph) {
  const auto found = graph.initializers.find(name);
  if (found == graph.initializers.end()) return Invalid("is quantized with '", Printable(name), "', no initializer");
  return found->second;
}

// Returns the matrix of a MatMulNBits, [N, K] in blocks along K, without its size in bytes.
QuantizedMatrix MakeBlockProduct(const Attrs& attrs) {
  const int64_t bits = attrs.Int("bits", 4);
  return {.rows = attrs.Int("N"),
          .columns = attrs.Int("K"),
          .bits = bits,
          .block_columns = std::max<int64_t>(attrs.Int("block_size"), 1),
          .zero_bits = bits,
          .zero = static_cast<double>(int64_t{1} << (bits - 1))};
}

absl::StatusOr<QuantizedMatrix> FindMatrix(const QuantizedForm& form, const Shape& q, const Shape& scale) {
  for (const ExpertLayer& layer : FindExpertLayers(form.row->domain, form.row->op_type)) {
    if (layer.weight != form.row->tensor) continue;
    const auto stack = ReadExpertStack(layer, form.attrs, q);
    return stack ? ReadExpertMatrix(layer, form.attrs, *stack, scale) : Invalid("is no stack of experts");
  }
  if (form.row->packed) return MakeBlockProduct(form.attrs);
  const auto block = FindBlock(q, scale, ScaleAxis(*form.row, form.attrs), form.attrs.Int("block_size"));
  if (q.size() != 2 || !block) return Invalid("has scales ", ToString(scale), " beside numbers ", ToString(q));
  return QuantizedMatrix{.rows = q[0],
                         .columns = q[1],
                         .block_rows = std::max<int64_t>((*block)[0], 1),
                         .block_columns = std::max<int64_t>((*block)[1], 1)};
}

// Sets the zero points: packed as the numbers are, or one element for each block or for all.
absl::Status SetZero(const HostTensor& zero, StoredBlocks* blocks) {
  QuantizedMatrix& m = blocks->matrix;
  const int64_t count = m.scale_rows() * m.scale_columns();
  const bool packed = zero.dtype() == DType::kUInt8 && zero.size() == m.scale_rows() * m.zero_row_bytes();
  if (!packed) m.zero_bits = 8;
  if (packed || zero.size() == count) {
    blocks->zero = zero.Reshaped({m.scale_rows(), packed ? m.zero_row_bytes() : m.scale_columns()});
  } else if (zero.size() == 1) {
    m.zero = zero.At(0);
  } else {
    return Invalid("has zero points ", ToString(zero.type()), " beside scales ", ToString(blocks->scale.type()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredBlocks> ReadStoredBlocks(const std::string& weight, const ParsedGraph& graph) {
  const QuantizedForm form = FindForm(weight, graph.records);
  if (form.row == nullptr) return Invalid("has columns that name their blocks (g_idx), or scales that are computed");
  ASSIGN_OR_RETURN(const HostTensor q, FindInitializer(weight, graph));
  ASSIGN_OR_RETURN(const HostTensor scale, FindInitializer(form.scale, graph));
  ASSIGN_OR_RETURN(QuantizedMatrix m, FindMatrix(form, q.shape(), scale.shape()));
  const bool fits = m.rows > 0 && q.size() % m.rows == 0 && scale.size() == m.scale_rows() * m.scale_columns();
  if (!fits) return Invalid("has scales ", ToString(scale.type()), " beside numbers ", ToString(q.type()));
  StoredBlocks blocks{.matrix = m,
                      .q = q.Reshaped({m.rows, q.size() / m.rows}),
                      .scale = scale.Reshaped({m.scale_rows(), m.scale_columns()})};
  if (!form.zero.empty()) {
    ASSIGN_OR_RETURN(const HostTensor zero, FindInitializer(form.zero, graph));
    RETURN_IF_ERROR(SetZero(zero, &blocks));
  }
  const Type zero = blocks.zero ? blocks.zero->type() : Type();
  ASSIGN_OR_RETURN(blocks.matrix, ReadQuantizedMatrix(blocks.matrix.ToAttrs(), blocks.q.type(), blocks.scale.type(),
                                                      blocks.zero ? &zero : nullptr));
  return blocks;
}

namespace {

// Returns the name if only one node reads the initializer, else "".
std::string NameIfUnshared(const std::string& name, const WeightIndex& index) {
  return !name.empty() && index.Readers(name).size() == 1 ? name : "";
}

// Returns true if a bias is quantized with the scale of the weight: the operator's own, or the integers behind another
// DequantizeLinear, for which runtimes that fuse the nodes take the product of the scales of x and of the weight.
bool HasIntegerBias(const std::string& weight, const QuantizedForm& form, const WeightIndex& index) {
  constexpr size_t kBias = 2;
  if (ScalesBias(*form.row)) return true;
  for (const WeightReader& reader : index.Readers(weight)) {
    for (const WeightReader& product : index.Readers(reader.node->outputs[0])) {
      const std::vector<std::string>& inputs = product.node->inputs;
      const ParsedNode* bias = inputs.size() > kBias ? index.Producer(inputs[kBias]) : nullptr;
      if (bias != nullptr && bias->op_type == form.row->op_type) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status FindBlocks(const WeightIndex& index, LowRankUpdates* parts) {
  const LowRankUpdate& first = parts->front();
  const ModelEdits& edits = index.model().edits;
  const auto quantized = edits.blocks.find(first.weight);
  const bool sums = edits.requantize && IsQuantized(first);
  std::shared_ptr<const StoredBlocks> blocks;
  if (quantized != edits.blocks.end()) {
    blocks = quantized->second;
  } else if (IsQuantized(first) && (sums || first.has_magnitude())) {
    ASSIGN_OR_RETURN(StoredBlocks stored, ReadStoredBlocks(first.weight, index.graph()));
    blocks = std::make_shared<const StoredBlocks>(std::move(stored));
  }
  const QuantizedForm form = FindForm(first.weight, index.graph().records);
  for (LowRankUpdate& part : *parts) {
    part.blocks = blocks;
    if (!sums) continue;
    part.sum = {.scale = HasIntegerBias(first.weight, form, index) ? "" : NameIfUnshared(form.scale, index),
                .zero = NameIfUnshared(form.zero, index)};
  }
  return absl::OkStatus();
}

LazyTensor ReadFloats(std::shared_ptr<const StoredBlocks> blocks) {
  const Type type{DType::kFloat32, {blocks->matrix.rows, blocks->matrix.columns}};
  return {type, [blocks = std::move(blocks)](int64_t begin, int64_t count) {
            const int64_t columns = blocks->matrix.columns, row = begin / columns;
            const int64_t rows = (begin + count + columns - 1) / columns - row;
            HostTensor floats({DType::kFloat32, {rows * columns}});
            ReadBlocks(*blocks, row, rows, floats.mutable_data<float>());
            if (rows * columns == count) return floats;
            HostTensor part({DType::kFloat32, {count}});
            std::ranges::copy(floats.data<float>().subspan(begin - row * columns, count),
                              part.mutable_data<float>().begin());
            return part;
          }};
}

absl::Status WriteRequantized(const LowRankUpdate& update, const LazyTensor& sum, StoredWeights* weights) {
  if (weights->checks_only) return absl::OkStatus();
  StoredBlocks blocks = *update.blocks;
  blocks.q = blocks.q.Clone();
  blocks.scale = blocks.scale.Clone();
  if (blocks.zero) blocks.zero = blocks.zero->Clone();
  const int64_t columns = blocks.matrix.columns;
  const auto read = [&](int64_t row, int64_t count, std::span<float> out) {
    std::ranges::copy(sum.Read(row * columns, count * columns).data<float>(), out.begin());
  };
  const FreeEncodings free{.scale = !update.sum->scale.empty(), .zero = !update.sum->zero.empty()};
  RETURN_IF_ERROR(RequantizeBlocks(read, free, &blocks));
  weights->requantized.emplace_back(update.weight, blocks.error);
  const auto put = [&](const std::string& name, const HostTensor& tensor) -> absl::Status {
    ASSIGN_OR_RETURN(const HostTensor stored, weights->read(name));
    weights->tensors.insert_or_assign(name, tensor.Reshaped(stored.shape()));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(put(update.weight, blocks.q));
  if (free.scale) RETURN_IF_ERROR(put(update.sum->scale, blocks.scale));
  return free.zero && blocks.zero ? put(update.sum->zero, *blocks.zero) : absl::OkStatus();
}

}  // namespace onnxtrain
