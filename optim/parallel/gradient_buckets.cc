#include "optim/parallel/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "frontend/base/log.h"
#include "optim/step/layers.h"
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
    for (const auto& [weight, shape] : group.members) {
      const Region& region = state.bindings().at(weight);  // laid out like its gradient
      slices.push_back({GradName(weight), region.view.offset, region.type.bytes(), first_readers.at(weight)});
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

}  // namespace onnxtrain
