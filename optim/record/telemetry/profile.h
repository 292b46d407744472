// Profiles a session's programs by operator, and measures its matrix products and convolutions in isolation.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/session.h"

namespace onnxtrain {

// All nodes of one operator in a set of programs.
struct OperatorTime {
  std::string op;
  int64_t nodes = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

// Returns the time per update by operator: sums over all runs of all programs, divided by `updates`; the slowest
// operator first. The session must have been created with time_nodes.
std::vector<OperatorTime> OperatorTimes(const std::vector<ProgramProfile>& programs, int64_t updates);

// A product measured in isolation, with operands of its own: the median of several runs.
struct ProductRate {
  std::string text;    // "MatMul f32[1024,768] f32[768,3072]"
  int64_t nodes = 0;   // nodes of this operator and these types in the programs
  double flops = 0;    // of one node
  double seconds = 0;  // of one node, in isolation
  double in_step = 0;  // of one node, within the programs
};

// Measures every distinct product of the programs that have run, for about `seconds` each.
absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                       double seconds);

// All products of an update.
struct ProductWork {
  double flops = 0;
  double seconds = 0;  // in programs that do nothing else: the fastest of several runs

  double rate() const { return seconds > 0 ? flops / seconds : 0; }
};

// Measures the products of each program that has run as one program, for about `seconds` each. They do the work that
// they do in the step, on operands of the same sizes and in the same order, and their results share memory, so a step
// cannot be faster.
absl::StatusOr<ProductWork> ProbeProductsTogether(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                  int64_t updates, double seconds);

// Measures bytes per second of a = b + s·c over large arrays (STREAM triad) with this many threads: best of several
// runs.
double TriadBandwidth(int threads);

}  // namespace onnxtrain
