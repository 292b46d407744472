// Where the time of a session's programs went, against what the backend reaches on the same products alone.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/session.h"

namespace onnxtrain {

// All nodes of one operator within a set of programs, for one run of each.
struct OperatorTime {
  std::string op;
  int64_t nodes = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

// The programs that have run, node by node, as seconds per update: sums of all runs ÷ `updates`, the operator that took
// longest first. The session must have been made with time_nodes.
std::vector<OperatorTime> OperatorTimes(const std::vector<ProgramProfile>& programs, int64_t updates);

// A product node alone, its operands in memory of their own: the median of several runs.
struct ProductRate {
  std::string text;        // "MatMul f32[1024,768] f32[768,3072]"
  int64_t nodes = 0;       // of that operator and these types in the programs
  double flops = 0;        // of one
  double seconds = 0;      // of one, alone
  double in_step = 0;      // of one, within the programs
};

// Every distinct product of the programs that have run. Takes about `seconds` for each.
absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                       double seconds);

// FLOP/s of the products if each ran at the rate that it reaches alone: the peak that a step is measured against.
double ProbedRate(const std::vector<ProductRate>& products);

// Bytes per second of a = b + s·c over large arrays with this many threads, best of several runs.
double TriadBandwidth(int threads);

}  // namespace onnxtrain
