// Splits products into the modules, such as queries, keys and values, that an exporter packed into them.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {

class PackedParts {
 public:
  using Readers = std::unordered_map<std::string, std::vector<const ParsedNode*>>;  // readers of values, by name

  // The arguments must outlive it.
  PackedParts(const WeightTracer& tracer, const Readers& readers);

  // Returns a target for each module that the exporter packed into the product, in the order of their outputs; the
  // target itself if it is not packed, or if nothing gives the outputs of each module: an Attention that holds the
  // product, or a reader of it, GroupQueryAttention by its head counts and Split by its sizes, perhaps after a bias.
  std::vector<LowRankTarget> Split(const LowRankTarget& target) const;

 private:
  std::vector<int64_t> FindWidths(const std::string& value, int64_t outputs, size_t count) const;
  std::vector<int64_t> ReadWidths(const ParsedNode& reader, int64_t outputs, size_t count) const;

  const WeightTracer& tracer_;
  const Readers& readers_;
};

}  // namespace onnxtrain
