#include "backends/cpu/kernels/attention_heads.h"

#include <algorithm>

namespace onnxtrain::cpu {
Heads MakeHeads(const StridedType& t) {
  const size_t r = t.shape.size();
  return {Shape(t.strides.begin(), t.strides.end() - 2), t.shape[r - 2], t.shape[r - 1], t.strides[r - 2],
          t.strides[r - 1]};
}

AttentionGeometry MakeAttentionGeometry(const KernelContext& c, size_t first, bool tiles) {
  std::vector<StridedType> operands = GetHeadOperands(c);
  AttentionGeometry g{.q = MakeHeads(operands[first]),
                      .k = MakeHeads(operands[first + 1]),
                      .v = MakeHeads(operands[first + 2]),
                      .inputs = {},
                      .heads = {},
                      .scale = static_cast<float>(c.attrs().Float("scale")),
                      .softcap = static_cast<float>(c.attrs().Float("softcap")),
                      .dropout = {},
                      .has_mask = c.has(first + 3),
                      .tiles = tiles};
  for (size_t i = 0; i < first + 3; ++i) g.inputs.push_back(MakeHeads(operands[i]));
  const Shape& q = operands[first].shape;
  StridedType& mask = operands[first + 3];
  Shape scores = q;
  scores.back() = g.keys();
  if (c.has(first + 4)) g.dropout.emplace(c.attrs(), Type{DType::kFloat32, scores}.elements());
  mask = {scores, BroadcastStrides(mask.shape, scores)};
  if (g.has_mask) {
    g.mask_row = MakeHeads(mask).row;
    g.mask_column = MakeHeads(mask).column;
    if (c.has(first + 5)) g.masks = c.in(first + 5).shape[0] / g.q.rows;
  }
  const Shape batch(q.begin(), q.end() - 2);
  if (batch.size() > 2 && g.k.batch_strides.back() == 0) g.repeats = batch.back();
  std::vector<Shape> strides = {Strides(batch)};
  for (const StridedType& t : operands) strides.push_back(MakeHeads(t).batch_strides);
  g.heads = MakeLoop(batch, strides);
  return g;
}

void DropRows(const AttentionGeometry& g, const ScoreBlock& b, float* rows) {
  for (int64_t i = 0; i < b.rows.rows; ++i) {
    const int64_t element = (b.head.number * g.q.rows + b.query + i) * g.keys() + b.key;
    g.dropout->Run(b.head.random_key, element, rows + i * b.rows.ld, b.rows.keys, rows + i * b.rows.ld);
  }
}

}  // namespace onnxtrain::cpu
