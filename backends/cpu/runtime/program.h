// Compiles graphs to programs, caches the kernels that compilations share, and allocates memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// Caches kernels by signature: the parts of a KernelContext and the number of threads. Planning under a memory budget
// compiles a program several times; repeated layers, micro-batch variants and recomputed nodes have equal signatures.
// Each is prepared once, and every node runs a copy with its own state. Thread-safe.
class KernelCache {
 public:
  // Returns the node's kernel, of which the caller runs a copy. The kernel is in use as long as the caller holds the
  // pointer. Returns an error that names the node if no kernel exists or oneDNN cannot create it.
  absl::StatusOr<std::shared_ptr<const Kernel>> Get(const Graph& graph, const Node& node);

  int64_t prepared() const;  // kernels prepared so far

  // Returns a handle; the cache must outlive it. Releasing the last handle frees all kernels and oneDNN's primitives:
  // sizes that were only planned take as much memory as those that run.
  std::shared_ptr<void> Hold();

  // Drops the kernels that are not in use, and the primitives in oneDNN's cache.
  void DropUnused();

 private:
  struct Signature {
    std::string op;
    Attrs attrs;
    std::vector<std::optional<Type>> inputs;  // nullopt: absent
    std::vector<Type> outputs;
    std::vector<std::pair<size_t, HostTensor>> constants;  // by input: constant operands of one element
    int threads;

    bool operator==(const Signature&) const = default;
  };
  struct Hash {
    size_t operator()(const Signature& signature) const;
  };
  static Signature MakeSignature(const Graph& graph, const Node& node);
  void Release();
  size_t EraseUnused();

  mutable std::mutex mutex_;
  std::unordered_map<Signature, std::shared_ptr<const Kernel>, Hash> kernels_;
  size_t used_ = 0;  // kernels that the last EraseUnused has left
  int64_t prepared_ = 0;
  int64_t held_ = 0;
};

// Allocates zeroed host memory. Returns an error, instead of ending the process, if the system has none left.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);
// Implements Backend::Borrow.
std::unique_ptr<Buffer> BorrowTensor(const HostTensor& tensor);

// Requests huge pages for a buffer at `begin` that was not yet touched. Ignores failures. Huge pages save convolutions,
// which read many rows at a time, TLB misses (about 4 % of a ResNet-18's step); matrix products, which pack their
// operands, and passes over flat memory gain nothing. Allocating them may take many times as long as small pages.
void AdviseHugePages(void* begin, size_t bytes);

// Faults in the pages of memory that will be updated in place, without changing a byte. A new page that is read before
// it is written faults twice, and the second fault flushes every processor's TLB: the first update of an optimizer's
// moments would take ten times as long.
void PrefaultPages(void* begin, size_t bytes);

// Fuses and compiles a legalized graph. `threads` is the size of the thread pool during runs; 0: the environment's. The
// program does not refer to `cache`.
absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& legal, const CompileOptions& options, int threads,
                                                        KernelCache& cache);

// Implements Backend::Workspaces.
absl::StatusOr<std::vector<size_t>> NodeWorkspaces(const Graph& graph, int threads, KernelCache& cache);

}  // namespace onnxtrain::cpu
