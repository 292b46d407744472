// Minimum cut between a source and a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace onnxtrain {

// Dinic's algorithm (Soviet Math. Dokl. 11, 1970), over integers: exact, and the same on every machine.
class MinCut {
 public:
  static constexpr int64_t kUncuttable = std::numeric_limits<int64_t>::max() / 4;

  explicit MinCut(int32_t vertices) : edges_(vertices) {}

  void AddEdge(int32_t from, int32_t to, int64_t capacity);
  // Returns by vertex whether it is on the source side of the minimum cut with the fewest source-side vertices. May be
  // called once.
  std::vector<bool> SourceSide(int32_t source, int32_t sink);

 private:
  struct Edge {
    int32_t to;
    int32_t back;  // index of the reverse edge among the edges of `to`
    int64_t left;  // residual capacity
  };

  bool FindLevels(int32_t source, int32_t sink);
  int64_t Push(int32_t source, int32_t sink);

  std::vector<std::vector<Edge>> edges_;
  std::vector<int32_t> level_;
  std::vector<size_t> next_;
};

}  // namespace onnxtrain
