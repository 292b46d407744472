#include "backends/reachability.h"

namespace onnxtrain {
namespace {

// Enumerates the readers of a node's outputs.
struct Cursor {
  int32_t node;
  size_t output = 0, user = 0;
};

}  // namespace

SpanningForest::SpanningForest(const Graph& graph, const std::vector<std::vector<int32_t>>& users)
    : begin_(graph.nodes().size(), -1), end_(begin_) {
  int32_t next = 0;
  std::vector<Cursor> stack;
  const auto enter = [&](int32_t node) {
    begin_[node] = next++;
    stack.push_back({node});
  };
  for (int32_t root = 0; root < std::ssize(begin_); ++root) {
    if (begin_[root] < 0) enter(root);
    while (!stack.empty()) {
      Cursor& at = stack.back();
      const std::vector<ValueId>& outputs = graph.nodes()[at.node].outputs;
      if (at.output == outputs.size()) {
        end_[at.node] = next;
        stack.pop_back();
      } else if (const auto& readers = users[outputs[at.output]]; at.user == readers.size()) {
        ++at.output;
        at.user = 0;
      } else if (const int32_t reader = readers[at.user++]; begin_[reader] < 0) {
        enter(reader);
      }
    }
  }
}

}  // namespace onnxtrain
