#include "optim/hoist_rule.h"

#include <vector>

#include "frontend/ops/row.h"
#include "optim/node_seconds.h"

namespace onnxtrain {
namespace {

// Of the time of its readers, by the model: what packing costs a product of 720 rows in float32, or of 540 in bf16. Up to there
// the product wins it back by reading the packed weight from the caches (four micro-batches of 1024 rows, an encoder in bf16: the
// same time either way).
constexpr double kShare = 1.0 / 16;

class Rule {
 public:
  explicit Rule(const Graph& graph) : readers_(Readers(graph)), costs_(graph.nodes().size()) {
    for (size_t n = 0; n < costs_.size(); ++n) CountInputs(graph, n);
    for (size_t n = costs_.size(); n-- > 0;) CountReaders(graph, n);
  }

  bool operator()(const Graph& graph, const Node& node) const {
    if (!FindOp(node.op)->derive) return false;
    const Costs& c = costs_[graph.value(node.outputs[0]).node];
    return c.frozen || readers_[node.outputs[0]].size() > 1 || c.make > kShare * c.read;
  }

 private:
  struct Costs {
    bool frozen = true;  // made of frozen weights and constants alone
    double make = 0;     // seconds, with all that it is made of
    double read = 0;     // seconds of its readers, with those of what they only cast, transpose or show
  };

  void CountInputs(const Graph& graph, size_t n) {
    Costs& c = costs_[n];
    c.make = MoveSeconds(graph, graph.nodes()[n]);
    for (ValueId v : graph.nodes()[n].inputs) {
      if (v == kNoValue) continue;
      const bool is_input = graph.IsInput(v);
      const Costs* of = is_input ? nullptr : &costs_[graph.value(v).node];
      c.frozen &= is_input ? graph.inputs()[graph.value(v).index].kind == InputKind::kFrozen : of->frozen;
      c.make += is_input ? 0 : of->make;
    }
  }

  void CountReaders(const Graph& graph, size_t n) {
    for (int32_t r : readers_[graph.nodes()[n].outputs[0]]) {
      const OpRow* row = FindOp(graph.nodes()[r].op);
      costs_[n].read += NodeSeconds(graph, graph.nodes()[r]) + (row->derive || row->view ? costs_[r].read : 0);
    }
  }

  const std::vector<std::vector<int32_t>> readers_;  // by value
  std::vector<Costs> costs_;                         // by node
};

}  // namespace

std::function<bool(const Graph&, const Node&)> WorthHoisting(const Graph& graph) { return Rule(graph); }

}  // namespace onnxtrain
