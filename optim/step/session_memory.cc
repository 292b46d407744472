// Counts the memory of a session, by kind.
#include <algorithm>
#include <set>

#include "optim/step/session_impl.h"

namespace onnxtrain {
namespace {

// Memory of the process besides tensors: code and tables of libraries, tables of the heap, and stacks.
constexpr int64_t kProcessBytes = int64_t{17} << 20;
// The session's graph, the import that it was made from, and the one that other batch sizes are made from.
constexpr int64_t kForwardGraphs = 3;
// Memory of the communication library (backends/comm): mostly the code of libtorch and its operator table, which is
// filled when it is loaded. Measured with Debian 12's libtorch.
constexpr int64_t kCommunicationBytes = int64_t{140} << 20;

}  // namespace

size_t SessionImpl::BytesBesidePrograms() const {
  const SessionMemory m = MemoryNow();
  return static_cast<size_t>(m.total() - m.packed - m.feeds - m.activations) - programs_.code_bytes();
}

// Returns the bytes of the outputs that a planned Predict copies for its caller.
int64_t SessionImpl::PredictedBytes() const {
  int64_t most = 0;
  for (const auto& ready : compiled_.ready) {
    if (ready->kind != ProgramKind::kPredict || options_.predicted_samples == 0) continue;
    int64_t bytes = 0;
    for (const auto& [name, region] : ready->compiled->outputs) bytes += static_cast<int64_t>(region.type.bytes());
    most = std::max(most, bytes);
  }
  return most;
}

// Returns the bytes of graphs, plans and pages of the model's file while a program is compiled.
int64_t SessionImpl::CompileBytes() const {
  constexpr int64_t kMostPages = int64_t{4} << 20;
  constexpr size_t kCalls = 7;  // compiling a call needs this multiple of the memory that the call keeps
  size_t largest = 0;
  for (const auto& ready : compiled_.ready) largest = std::max(largest, ready->compiled->code.call_bytes());
  return std::min(kMostPages, state_.parameter_bytes()) + static_cast<int64_t>(kCalls * largest);
}

// Returns the bytes of programs for other batch sizes; at most the rest of the budget, because programs are evicted.
int64_t SessionImpl::CodeToCome(int64_t planned) const {
  CodeEstimate of_a_size;
  std::set<VariableExtents> compiled;
  for (const auto& ready : compiled_.ready) {
    compiled.insert(ready->extents);
    if (ready->extents == GreatestExtents(options_)) of_a_size.Include(ready->compiled->code);
  }
  const int64_t missing = options_.variable_sizes - std::ssize(compiled), budget = options_.recompute.memory_budget;
  const int64_t bytes = std::max<int64_t>(0, missing) * static_cast<int64_t>(of_a_size.bytes());
  return budget == 0 ? bytes : std::clamp<int64_t>(PlannableBytes(budget) - planned, 0, bytes);
}

SessionMemory SessionImpl::memory() const {
  SessionMemory m = MemoryNow();
  if (compiled_.most_memory.total() > m.total()) m = compiled_.most_memory;  // programs have been evicted since
  m.compiling = on_host() ? CompileBytes() : 0;
  m.activations = std::max(m.activations, m.compiling);
  m.host += CodeToCome(m.total());
  m.reserved = options_.recompute.reserved;
  return m;
}

SessionMemory SessionImpl::MemoryNow() const {
  SessionMemory m = state_.memory();
  m.sums = reducer_->bytes();
  m.packed = static_cast<int64_t>(programs_.derived_bytes());
  m.activations = static_cast<int64_t>(programs_.arena_bytes());
  m.offloaded = static_cast<int64_t>(programs_.offloaded_bytes());
  m.feeds = static_cast<int64_t>(programs_.exchange_bytes());
  m.host = kProcessBytes + (options_.communicates() || reducer_->communicates() ? kCommunicationBytes : 0) +
           PredictedBytes() + kForwardGraphs * std::ssize(prepared_.model.graph.nodes()) * int64_t{kGraphNodeBytes} +
           static_cast<int64_t>(programs_.code_bytes() + models_->model()->HeapBytes()) + options_.caller_bytes +
           options_.micro_batch * options_.caller_bytes_per_sample;
  return m;
}

}  // namespace onnxtrain
