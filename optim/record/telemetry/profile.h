// Profiles a session's programs by operator, and measures its matrix products and convolutions in isolation.
#pragma once

#include <optional>
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

// A matrix product or convolution measured in isolation, on separate operands of zeros: the median of several runs. If
// its work depends on the values of integers, such as ranges of keys or rows of experts, only the step measures it.
struct ProductRate {
  std::string text;               // "MatMul f32[1024,768] f32[768,3072]"
  int64_t nodes = 0;              // nodes of this operator and these types in the programs
  double flops = 0;               // per node
  std::optional<double> seconds;  // per node, in isolation
  double in_step = 0;             // seconds per node within the programs
};

// Measures every distinct product of the programs that have run, for about `seconds` each.
absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                       double seconds);

// All products of an update.
struct ProductWork {
  double flops = 0;
  double seconds = 0;  // in programs without other nodes; the fastest of several runs

  double rate() const { return seconds > 0 ? flops / seconds : 0; }
};

// Measures, for each program that has run, a program of those products alone that can be measured in isolation, for
// about `seconds` each. Operands have the sizes and order of the step, and results share memory, so the time is a lower
// bound for a step.
absl::StatusOr<ProductWork> ProbeProductsTogether(Backend& backend, const std::vector<ProgramProfile>& programs,
                                                  int64_t updates, double seconds);

// Returns the bytes per second of a = b + s·c over large arrays (STREAM triad) on `threads` threads, the best of
// several runs.
double TriadBandwidth(int threads);

}  // namespace onnxtrain
