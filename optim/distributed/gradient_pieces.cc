#include "optim/distributed/gradient_pieces.h"

#include <algorithm>
#include <map>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/training_graph.h"

namespace onnxtrain {
namespace {

struct GroupPlace {
  size_t index = 0, offset = 0;  // in bytes of the flat gradient
};

GroupPlace FindGroup(const TrainingState& state, size_t offset) {
  GroupPlace found;
  for (size_t g = 0; g < state.groups().size(); ++g) {
    const size_t begin = state.bindings().at(ParamName(state.groups()[g].name)).view.offset;
    if (begin <= offset && begin >= found.offset) found = {g, begin};
  }
  return found;
}

// Adds what a piece, bytes [begin, end) of the flat gradient, has of an output.
void AddPart(size_t output, const GradientSlice& slice, size_t begin, size_t end, GradientPiece* piece) {
  const size_t from = std::max(begin, slice.offset), to = std::min(end, slice.offset + slice.bytes);
  if (from < to) piece->parts.push_back({output, from - slice.offset, from - begin, to - from});
}

}  // namespace

std::vector<ShardUnit> GradientPieces::units() const {
  std::vector<ShardUnit> units;
  for (const GradientPiece& piece : pieces) units.push_back(piece.unit);
  return units;
}

size_t GradientPieces::SliceBytes(size_t piece, int ranks) const {
  return static_cast<size_t>(SliceElements(pieces[piece].unit.elements, ranks)) * DTypeSize(dtype);
}

size_t GradientPieces::LargestBytes(int ranks) const {
  size_t largest = 0;
  for (size_t p = 0; p < pieces.size(); ++p) largest = std::max(largest, SliceBytes(p, ranks) * ranks);
  return largest;
}

int64_t GradientPieces::ScatteredBytes(int ranks) const {
  int64_t bytes = 0;
  for (size_t p = 0; p < pieces.size(); ++p) bytes += static_cast<int64_t>(SliceBytes(p, ranks)) * (ranks - 1);
  return bytes;
}

GradientPieces CutPieces(const TrainingState& state, const Graph& forward, DType dtype, size_t target) {
  const auto groups = ListSlices(state, forward);
  std::map<std::string, GradientSlice> slices;
  for (const auto& group : groups) {
    for (const GradientSlice& slice : group) slices.emplace(slice.name, slice);
  }
  const size_t element = DTypeSize(dtype), step = std::max<size_t>(1, target / (64 * element)) * 64 * element;
  GradientPieces cut{.buckets = CutBuckets(groups, target), .pieces = {}, .outputs = {}, .dtype = dtype};
  for (size_t b = 0; b < cut.buckets.size(); ++b) {
    const GradientBucket& bucket = cut.buckets[b];
    const GroupPlace group = FindGroup(state, bucket.offset);
    for (size_t at = 0; at < bucket.bytes; at += step) {
      const size_t begin = bucket.offset + at, end = begin + std::min(step, bucket.bytes - at);
      GradientPiece& piece = cut.pieces.emplace_back(GradientPiece{b, {}, {}});
      piece.unit = {.name = StrCat(state.groups()[group.index].name, "#", cut.pieces.size() - 1),
                    .group = group.index,
                    .begin = static_cast<int64_t>((begin - group.offset) / element),
                    .elements = static_cast<int64_t>((end - begin) / element)};
      for (size_t i = 0; i < bucket.outputs.size(); ++i)
        AddPart(cut.outputs.size() + i, slices.at(bucket.outputs[i]), begin, end, &piece);
    }
    cut.outputs.insert(cut.outputs.end(), bucket.outputs.begin(), bucket.outputs.end());
  }
  return cut;
}

std::vector<std::vector<size_t>> FindOutputsUpTo(const GradientPieces& pieces, const Graph& graph) {
  std::vector<std::vector<size_t>> outputs = FindOutputs(pieces.buckets, graph);
  for (size_t b = 1; b < outputs.size(); ++b)
    outputs[b].insert(outputs[b].end(), outputs[b - 1].begin(), outputs[b - 1].end());
  return outputs;
}

}  // namespace onnxtrain
