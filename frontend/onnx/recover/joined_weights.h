// Takes apart what an exporter has concatenated.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Trains the parts of joined initializers instead of the whole, in files that keep the whole alone: heads of which a
// part is the transposed embedding (if `tie`), and biases of queries, keys and values of which the keys have none.
void TakeJoinedApart(bool tie, ParsedGraph* graph);

// Replaces the own parts among the weights by the initializers that hold them, which `read` returns as they are stored.
absl::Status JoinParts(const SharedWeights& shared,
                       const std::function<absl::StatusOr<HostTensor>(const JoinedWeight&)>& read,
                       std::map<std::string, LazyTensor>* weights);

// Returns the initializer as the file stores it, from the weights of the graph.
HostTensor JoinStored(const JoinedWeight& joined, const ParsedGraph& graph);

}  // namespace onnxtrain
