#include "optim/parallel/gradient_pieces.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/step/groups.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

struct Ordered {
  int64_t first_reader = std::numeric_limits<int64_t>::max();  // of all slices
  GradientBucket bucket;
};

void AddSlice(const GradientSlice& slice, Ordered* to) {
  if (to->bucket.outputs.empty()) to->bucket.offset = slice.offset;
  to->bucket.bytes = slice.offset + slice.bytes - to->bucket.offset;
  to->bucket.outputs.push_back(slice.name);
  to->first_reader = std::min(to->first_reader, slice.first_reader);
}

}  // namespace

std::vector<std::vector<GradientSlice>> ListSlices(const TrainingState& state, const Graph& forward) {
  const std::map<std::string, int32_t> first_readers = FindFirstReaders(forward);
  std::vector<std::vector<GradientSlice>> groups;
  for (const FlatGroup& group : state.groups()) {
    std::vector<GradientSlice>& slices = groups.emplace_back();
    size_t offset = state.gradient_offset(group);
    for (const auto& [weight, shape] : group.members) {
      const size_t bytes = Type{state.dtype(), shape}.bytes();
      slices.push_back({GradName(weight), offset, bytes, first_readers.at(weight)});
      offset += state.padded_elements(shape) * DTypeSize(state.dtype());
    }
  }
  return groups;
}

std::vector<GradientBucket> CutBuckets(const std::vector<std::vector<GradientSlice>>& groups, size_t target) {
  std::vector<Ordered> all;
  for (const std::vector<GradientSlice>& group : groups) {
    const size_t first = all.size();
    for (const GradientSlice& slice : group) {
      const bool fits = all.size() > first && slice.offset + slice.bytes - all.back().bucket.offset <= target;
      if (!fits) all.emplace_back();
      AddSlice(slice, &all.back());
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), &Ordered::first_reader);
  std::vector<GradientBucket> buckets;
  for (Ordered& ordered : all) buckets.push_back(std::move(ordered.bucket));
  return buckets;
}

std::vector<std::vector<std::string>> ListOutputs(const std::vector<GradientBucket>& buckets) {
  std::vector<std::vector<std::string>> outputs;
  for (const GradientBucket& bucket : buckets) outputs.push_back(bucket.outputs);
  return outputs;
}

std::vector<std::vector<size_t>> FindOutputs(const std::vector<GradientBucket>& buckets, const Graph& graph) {
  std::vector<std::vector<size_t>> outputs(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const std::string& name : buckets[b].outputs) {
      const GraphOutput* output = graph.FindOutput(name);
      CHECK(output != nullptr) << "the program has no output " << name;
      outputs[b].push_back(output - graph.outputs().data());
    }
  }
  return outputs;
}

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
  return static_cast<size_t>(SliceElements(pieces[piece].unit, ranks)) * DTypeSize(dtype);
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

namespace {

// Divides a weight into about `wanted` rows; prefers a number of rows whose slices are equal without padding. Slices
// are multiples of `multiple` elements.
DividedWeight ChooseRows(int64_t elements, int ranks, int64_t wanted, int64_t multiple) {
  const auto is_exact = [&](int64_t rows) { return rows > 0 && elements % (rows * ranks * multiple) == 0; };
  for (int64_t rows = wanted; rows <= 4 * wanted; ++rows) {
    if (is_exact(rows)) return {rows, elements / (rows * ranks)};
  }
  for (int64_t rows = wanted - 1; rows >= wanted / 4; --rows) {
    if (is_exact(rows)) return {rows, elements / (rows * ranks)};
  }
  const int64_t slice = SliceElements(elements, static_cast<int>(wanted) * ranks, multiple);
  return {(elements + slice * ranks - 1) / (slice * ranks), slice};
}

// Puts each slice of a divided weight into a separate group.
std::vector<std::vector<GradientSlice>> SetApart(const std::vector<std::vector<GradientSlice>>& groups,
                                                 const std::map<std::string, std::string>& divided) {
  std::vector<std::vector<GradientSlice>> apart;
  for (const auto& group : groups) {
    bool joins = false;
    for (const GradientSlice& slice : group) {
      const bool alone = divided.contains(slice.name);
      if (alone || !joins) apart.emplace_back();
      apart.back().push_back(slice);
      joins = !alone;
    }
  }
  return apart;
}

}  // namespace

DividedWeights ListDividedWeights(const TrainingState& state, int ranks, size_t target) {
  constexpr size_t kSmall = size_t{64} << 10;  // bytes
  DividedWeights divided;
  for (const auto& [name, rule] : state.rules()) {
    const Type& type = state.bindings().at(name).type;
    const size_t bytes = type.bytes();
    if (bytes == 0 || bytes < std::min(kSmall, target)) continue;
    const size_t row = std::max<size_t>(target, state.slice_multiple() * ranks * DTypeSize(type.dtype));
    constexpr int64_t kMultiple = 16;  // elements: 64 bytes of float32
    divided[name] = ChooseRows(type.elements(), ranks, static_cast<int64_t>((bytes + row - 1) / row),
                               state.updates_blocks() ? state.slice_multiple() : kMultiple);
  }
  return divided;
}

GradientPieces CutPieces(const TrainingState& state, const Graph& forward, DType dtype, size_t target,
                         const DividedWeights& divided, int ranks) {
  const auto groups = ListSlices(state, forward);
  std::map<std::string, GradientSlice> slices;
  for (const auto& group : groups) {
    for (const GradientSlice& slice : group) slices.emplace(slice.name, slice);
  }
  std::map<std::string, std::string> weights;  // by gradient
  for (const auto& [name, rows] : divided) weights.emplace(GradName(name), name);
  const size_t element = DTypeSize(dtype), multiple = state.slice_multiple() * element;
  const size_t most = std::max<size_t>(1, target / multiple) * multiple;
  GradientPieces cut{
      .buckets = CutBuckets(SetApart(groups, weights), target), .pieces = {}, .outputs = {}, .dtype = dtype};
  for (size_t b = 0; b < cut.buckets.size(); ++b) {
    const GradientBucket& bucket = cut.buckets[b];
    const GroupPlace group = FindGroup(state, bucket.offset);
    const auto weight = weights.find(bucket.outputs.front());
    const bool in_rows = weight != weights.end();
    const int64_t slice = in_rows ? divided.at(weight->second).slice : 0;
    // Weights that stay whole are never cut where others are divided: TrainingState keeps them piece by piece.
    const size_t step = in_rows ? slice * ranks * element : divided.empty() ? most : bucket.bytes;
    for (size_t at = 0; at < bucket.bytes; at += step) {
      const size_t begin = bucket.offset + at, end = begin + std::min(step, bucket.bytes - at);
      GradientPiece& piece = cut.pieces.emplace_back(GradientPiece{b, {}, {}});
      piece.unit = {.name = StrCat(state.groups()[group.index].name, "#", cut.pieces.size() - 1),
                    .group = group.index,
                    .begin = static_cast<int64_t>((begin - group.offset) / element),
                    .elements = static_cast<int64_t>((end - begin) / element),
                    .slice = in_rows ? slice : SliceElements((end - begin) / element, ranks, state.slice_multiple()),
                    .weight = in_rows ? weight->second : "",
                    .row = static_cast<int64_t>(at / step)};
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
