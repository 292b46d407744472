#include "optim/step/verify_batch_size.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "frontend/base/status.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

using Tensors = std::map<std::string, HostTensor>;

HostTensor RandomTensor(const Type& type, std::mt19937& random) {
  std::normal_distribution<double> normal;
  HostTensor t(type);
  for (int64_t i = 0; i < t.size(); ++i) {
    if (IsFloat(type.dtype)) {
      t.Set(i, normal(random));
    } else {
      t.SetInt(i, static_cast<int64_t>(random() % 2));  // 0 and 1 are valid indices of any table of two rows
    }
  }
  return t;
}

// Elements `begin` … `begin` + `count` of an axis.
HostTensor SliceAxis(const HostTensor& all, size_t axis, int64_t begin, int64_t count) {
  Type type = all.type();
  const int64_t extent = std::exchange(type.shape[axis], count);
  HostTensor part(type);
  if (type.bytes() == 0) return part;
  const auto first = type.shape.begin(), split = first + static_cast<std::ptrdiff_t>(axis);
  const size_t outer = NumElements(Shape(first, split)), row = type.bytes() / count / outer;
  for (size_t i = 0; i < outer; ++i) {
    std::memcpy(part.mutable_bytes().data() + i * count * row, all.bytes().data() + (i * extent + begin) * row,
                count * row);
  }
  return part;
}

HostTensor Rows(const HostTensor& all, int64_t begin, int64_t count) { return SliceAxis(all, 0, begin, count); }

// Relative to the largest number of the tensor: kernels round differently for other batch sizes.
bool ResultsAgree(const HostTensor& a, const HostTensor& b) {
  constexpr double kTolerance = 1e-3;
  if (!(a.type() == b.type())) return false;
  double largest = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    if (const double v = std::abs(b.At(i)); std::isfinite(v)) largest = std::max(largest, v);
  }
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.At(i), y = b.At(i);
    const bool same = x == y || (std::isnan(x) && std::isnan(y));
    if (!same && !(std::abs(x - y) <= kTolerance * largest)) return false;
  }
  return true;
}

bool FollowsBatch(const Type& type, int64_t batch) { return type.rank() > 0 && type.shape[0] == batch; }

class BatchSizeVerifier {
 public:
  BatchSizeVerifier(PreparedModels& models, const PrepareOptions& options, int64_t frozen, Backend& backend,
                    const Bindings& weights)
      : models_(models), options_(options), frozen_(frozen), batch_(frozen + 1), backend_(backend), weights_(weights) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const bool same, Compare(false));
    if (same) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool inside, Compare(true));
    return Invalid(inside || where_.empty() ? "" : where_,
                   "does not follow the batch: the model was exported for a batch of ", frozen_, ", and with ", batch_,
                   " samples it gives others than with ", frozen_, " (export it with a free batch dimension)");
  }

 private:
  // `inside`: compares every float value whose axis 0 is the batch, in graph order; otherwise the outputs.
  absl::StatusOr<bool> Compare(bool inside) {
    ASSIGN_OR_RETURN(const Graph free, GraphFor(batch_, inside));
    ASSIGN_OR_RETURN(const Graph fixed, GraphFor(frozen_, inside));
    std::mt19937 random(20);
    Tensors feeds, first, last;
    for (const GraphInput& input : free.inputs()) {
      if (input.kind != InputKind::kFeed) continue;
      const HostTensor& all = feeds[input.name] = RandomTensor(free.type(input.value), random);
      const bool batched = FollowsBatch(all.type(), batch_);
      first[input.name] = batched ? Rows(all, 0, frozen_) : all;
      last[input.name] = batched ? Rows(all, 1, frozen_) : all;
    }
    ASSIGN_OR_RETURN(const Tensors together, Evaluate(free, feeds));
    ASSIGN_OR_RETURN(const Tensors begin, Evaluate(fixed, first));
    ASSIGN_OR_RETURN(const Tensors end, Evaluate(fixed, last));
    for (const GraphOutput& output : free.outputs()) {
      auto a = begin.find(output.name), b = end.find(output.name);
      if (a == begin.end() || b == end.end()) continue;
      if (Matches(together.at(output.name), a->second, b->second)) continue;
      const Node* node = free.producer(output.value);
      where_ = node == nullptr ? StrCat("'", output.name, "' ") : NodeTag(*node);
      return false;
    }
    return true;
  }

  bool Matches(const HostTensor& all, const HostTensor& begin, const HostTensor& end) const {
    if (!FollowsBatch(begin.type(), frozen_)) return true;  // rows are not samples
    if (!FollowsBatch(all.type(), batch_) || all.type().rank() != begin.type().rank()) return false;
    return ResultsAgree(Block(all, 0, begin.shape()), begin) && ResultsAgree(Block(all, 1, end.shape()), end);
  }

  // Returns the block of shape `shape` of a result for more samples, starting at sample `begin`. Scores between
  // samples, such as CLIP's, have the batch on two axes.
  HostTensor Block(const HostTensor& all, int64_t begin, const Shape& shape) const {
    HostTensor block = all;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (all.shape()[axis] == batch_ && shape[axis] == frozen_) block = SliceAxis(block, axis, begin, frozen_);
    }
    return block;
  }

  absl::StatusOr<Graph> GraphFor(int64_t batch, bool inside) {
    if (!inside) {
      ASSIGN_OR_RETURN(const auto imported, models_.ImportForward(options_, batch, false, false));
      return BuildPredict(*imported);
    }
    ASSIGN_OR_RETURN(ImportedModel imported, ImportAsWritten(*models_.model(), options_, batch, false));
    Graph graph = BuildPredict(imported);
    std::vector<std::pair<std::string, ValueId>> named;
    for (const Node& node : graph.nodes()) {
      for (ValueId v : node.outputs) {
        const std::string& name = graph.value(v).name;
        if (!name.empty() && FollowsBatch(graph.type(v), batch) && IsFloat(graph.type(v).dtype))
          named.emplace_back(name, v);
      }
    }
    graph.ClearOutputs();
    for (const auto& [name, v] : named) {
      if (graph.FindOutput(name) == nullptr) graph.AddOutput(name, v);
    }
    return graph;
  }

  absl::StatusOr<Tensors> Evaluate(const Graph& graph, const Tensors& feeds) {
    Programs programs(&backend_, DType::kFloat32, false);
    ASSIGN_OR_RETURN(const auto program, programs.Compile(graph, {}, weights_));
    for (const auto& [name, region] : program->feeds) {
      auto it = feeds.find(name);
      if (it != feeds.end() && it->second.type() == region.type) RETURN_IF_ERROR(WriteRegion(region, it->second));
    }
    RETURN_IF_ERROR(programs.Run(*program));
    RETURN_IF_ERROR(backend_.Synchronize());
    Tensors results;
    for (const auto& [name, region] : program->outputs) {
      ASSIGN_OR_RETURN(results[name], ReadRegion(region));
    }
    return results;
  }

  PreparedModels& models_;
  const PrepareOptions& options_;
  const int64_t frozen_, batch_;
  Backend& backend_;
  const Bindings& weights_;
  std::string where_;
};

}  // namespace

absl::Status VerifyBatchSize(PreparedModels& models, const PrepareOptions& options, int64_t frozen_batch,
                             Backend& backend, const Bindings& weights) {
  return Annotate(BatchSizeVerifier(models, options, frozen_batch, backend, weights).Run(),
                  StrCat(models.model()->path(), ": "));
}

}  // namespace onnxtrain
