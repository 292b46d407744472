// Compiled graphs on the CPU, the prepared kernels that all compilations share, and the memory that they run in.
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

// Maps what a kernel is prepared from (see KernelContext) and the number of threads to the kernel. Planning
// under a memory budget compiles a program several times; repeated layers, micro-batch variants and recomputed nodes
// have equal signatures. Each is prepared once, and every node runs a copy with its own state.
// Thread-safe.
class KernelCache {
 public:
  // Returns the node's kernel, prepared now or earlier. It counts as in use while the caller, which runs a copy, keeps
  // the pointer. Returns an error that names the node if no kernel exists or oneDNN cannot make it.
  absl::StatusOr<std::shared_ptr<const Kernel>> Get(const Graph& graph, const Node& node);

  int64_t prepared() const;  // kernels prepared so far

  // Returns a handle. While any exists, kernels in use are kept; the cache must outlive all. Releasing the last handle
  // frees the kernels and oneDNN's: sizes that were only planned take as much memory as those that run.
  std::shared_ptr<void> Hold();

  // Drops the kernels that are not in use, and those in oneDNN's own cache.
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

// Before memory is touched for the first time. Huge pages save convolutions, which read many rows at a time, misses of
// the TLB (about 4 % of a ResNet-18's step); matrix products, which pack what they read, and passes over flat memory
// gain nothing. A system may take many times as long to find huge pages as small ones. `begin`: of a buffer. A failure
// is harmless.
void AdviseHugePages(void* begin, size_t bytes);

// Faults in the pages of memory that will be updated in place, without changing a byte. A fresh page that is read
// before it is written faults twice, and the second fault flushes every processor's TLB: the first update of an
// optimizer's moments would take ten times as long.
void PrefaultPages(void* begin, size_t bytes);

// Fuses and compiles a legalized graph. `threads` is the size of the thread pool during runs, 0: the environment's. The
// program does not refer to `cache`.
absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& legal, const CompileOptions& options, int threads,
                                                        KernelCache& cache);

// Implements Backend::Workspaces.
absl::StatusOr<std::vector<size_t>> NodeWorkspaces(const Graph& graph, int threads, KernelCache& cache);

}  // namespace onnxtrain::cpu
