// The contract between the trainer and a backend: Backend, Program, Buffer.
//
// A backend runs canonical graphs (frontend/ops/README.md). It is a shared library, libonnxtrain_backend_NAME.so, that
// registry.h loads. It lowers a graph in two stages: Legalize settles element types, layouts and decompositions; fusion
// is part of Compile and comes last, after rematerialization. A Program is compiled once for static shapes, bound once
// to the memory that it reads and writes, and then run any number of times without allocation, look-up or parsing.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "frontend/base/machine.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct MemoryPlan;

// Device memory, 64-byte aligned (512 on a GPU), zeroed when allocated. Freed when destroyed.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t size() const = 0;  // bytes
  virtual void* data() = 0;         // device address
  // Copy synchronously: the host may reuse or read `bytes` on return. Ordered after all runs that were started before.
  virtual absl::Status Write(size_t offset, std::span<const std::byte> bytes) = 0;
  virtual absl::Status Read(size_t offset, std::span<std::byte> bytes) const = 0;
};

// A dense row-major tensor in a Buffer. The Buffer must outlive the binding.
struct BufferView {
  Buffer* buffer = nullptr;
  size_t offset = 0;  // bytes, a multiple of 64
};

struct MemoryUse {
  size_t arena = 0;        // planned activations and workspaces, bytes, with those of `offloaded` in memory at a time
  size_t lower_bound = 0;  // peak live bytes in the chosen order: no placement can be smaller
  size_t scratch = 0;      // memory that kernels allocate beyond the plan (0 on cpu)
  size_t offloaded = 0;    // bytes of all values that a file holds for a while
};

struct CompileOptions {
  // Gives every value separate memory, so that Program::Fetch can return it. For comparisons and tests.
  bool keep_values = false;
  // Sums up the time of every node, for profiles. A device then finishes each node before the next one starts.
  bool time_nodes = false;
  // The program keeps values that are not used for a while in a file in ScratchFolder() as far as its arena would be
  // larger. Requires Backend::Offloads.
  size_t memory_limit = std::numeric_limits<size_t>::max();
};

// One execution of a node, by its index in Program::graph().
struct NodeRun {
  int32_t node = 0;
  std::chrono::steady_clock::time_point begin, end;
};

// Gets a call during a run for each group of outputs that is complete.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  // Called when the outputs of a group have their values and the rest of the run neither writes nor reads their memory.
  // Runs on the thread of Program::Run, between two nodes.
  virtual void OnComplete(size_t group) = 0;
};

// The nodes before which CheckCancelled() (frontend/base/cancellation.h) may end a run with its error.
enum class Interruption : uint8_t {
  kNever,
  kBeforeUpdate,  // up to the first node whose output goes `into` an input
  kAnywhere
};

inline constexpr size_t kFeedAlignment = 64;  // bytes; required of host memory by Program::ReadInPlace

class Program {
 public:
  virtual ~Program() = default;

  virtual const Graph& graph() const = 0;  // the fused graph that runs
  virtual MemoryUse memory() const = 0;
  // Returns the order of the nodes and the places of the values of graph(); null if the backend does not plan memory.
  virtual const MemoryPlan* plan() const { return nullptr; }

  // Binds a graph input to memory of its type. All inputs must be bound before the first Run. An output that goes
  // `into` an input is written there.
  virtual absl::Status BindInput(std::string_view name, BufferView view) = 0;
  // Reads a graph input (by its index) from host memory, without a copy, until the next call for this input. Returns
  // false, and reads the bound buffer again, if the device has separate memory or `data` is not aligned to
  // kFeedAlignment. The memory must not change during a run.
  virtual bool ReadInPlace(size_t input, const std::byte* data) { return false; }
  // Binds an output that goes into no input. All such outputs must be bound before the first Run.
  virtual absl::Status BindOutput(std::string_view name, BufferView view) = 0;
  // Binds the memory of activations, at least memory().arena bytes. Programs that never run at the same time may share
  // it.
  virtual absl::Status BindArena(BufferView view) = 0;

  // Binds the group of ranks that collective operators name in their attribute `group`; its size must be the one that
  // they state. It must outlive the runs and must not be used by others during a run. It may work on host or device
  // memory. Groups of one rank need not be bound. All ranks of a group run programs with the same collective operators,
  // in the same order.
  virtual absl::Status BindGroup(std::string_view name, Collectives* ranks) { return absl::OkStatus(); }

  // Makes each of the following runs call `listener` once per group of outputs (indices into the outputs of graph())
  // when the group is complete. The listener must outlive the runs; null ends the notices. Different outputs must be
  // bound to different memory. Returns false, and never calls the listener, if Run only queues its work.
  virtual bool NotifyWhenComplete(std::span<const std::vector<size_t>> groups, OutputListener* listener) {
    return false;
  }

  // Sets where the following runs may be interrupted; initially kNever. Has no effect if Run only queues its work.
  virtual void SetInterruption(Interruption where) {}

  // Starts a run. On a CPU, the run has finished on return; on a device, it is queued. Not thread-safe.
  virtual absl::Status Run() = 0;

  // Seconds spent in each node over all runs, by node index of graph(). Empty without time_nodes.
  virtual std::span<const double> NodeSeconds() const = 0;

  // Appends every node that runs from now on to *runs, which must outlive the recording; null ends it. A device then
  // finishes each node before the next one starts. By default, nothing is recorded.
  virtual void RecordNodes(std::vector<NodeRun>* runs) {}

  // Returns the value after the last run. Requires CompileOptions::keep_values.
  virtual absl::StatusOr<HostTensor> Fetch(ValueId value) const = 0;
};

struct BackendOptions {
  std::string device = "cpu";  // "cpu" or "cuda:N"
  int threads = 0;             // 0: set by the environment of the process
  bool tf32 = false;           // CUDA: float32 matrix products and convolutions round their operands to TF32
};

// A legalized graph after fusion.
struct FusedGraph {
  Graph graph;
  std::vector<ValueId> values;  // by value of the legalized graph; kNoValue if it exists only within a kernel
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu", "torch"
  virtual std::string device() const = 0;       // "cpu", "cuda:0"
  virtual std::string description() const = 0;  // one line: library versions, instruction set, threads

  // Returns true if there is a kernel for the node and its element types.
  virtual bool Supports(const Graph& graph, const Node& node) const = 0;
  // Chooses element types, layouts and kernels; decomposes nodes without a kernel; packs weights. The error names all
  // nodes that remain unsupported.
  virtual absl::StatusOr<Graph> Legalize(const Graph& graph) const = 0;
  // Fuses a legalized graph into the units that rematerialization keeps or clones as a whole. Compile fuses at least as
  // much. By default, nothing is fused.
  virtual absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const {
    FusedGraph same{legal, std::vector<ValueId>(legal.values().size())};
    std::iota(same.values.begin(), same.values.end(), 0);
    return same;
  }
  // Returns the bytes of planned scratch memory by node of a legalized or fused graph.
  virtual absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const {
    return std::vector<size_t>(graph.nodes().size(), 0);
  }
  // Returns how many kernels Workspaces and Compile have prepared; a kernel shared with an earlier graph counts once.
  virtual int64_t PreparedKernels() const { return 0; }
  // Frees the prepared kernels that no program uses. Without this call they are cached for later programs.
  virtual void DropUnusedKernels() {}
  // Returns true if chains of elementwise operators are one kernel, whose inner values take no memory.
  virtual bool FusesElementwise() const { return false; }
  // Returns true if programs can keep values in a file (CompileOptions::memory_limit).
  virtual bool Offloads() const { return false; }
  // Fuses and compiles a legalized graph.
  virtual absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) = 0;

  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;
  // Returns a buffer over the bytes of a tensor, which it keeps alive; its Write fails. Returns null where programs
  // cannot read the tensor in place: it is empty, unaligned for its element type, or the device has separate memory.
  virtual std::unique_ptr<Buffer> Borrow(const HostTensor& tensor) { return nullptr; }
  // Returns true if programs read aligned feeds in place (Program::ReadInPlace).
  virtual bool ReadsHostMemory() const { return false; }
  // Returns the bytes that Allocate can still provide, or the maximum if that is unknown.
  virtual size_t FreeMemory() const {
    return device() == "cpu" ? AvailableMemory() : std::numeric_limits<size_t>::max();
  }
  // Waits until everything queued has finished.
  virtual absl::Status Synchronize() = 0;

  // Creates a group of the ranks of `host` whose operations take memory of this device, for example over NCCL. All
  // ranks of `host` must call it. An error that ends the group also closes `host`, which must outlive it. Returns null
  // on all ranks, and logs the reason, if any rank lacks the library or cannot connect to the others.
  virtual absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(Collectives& host) { return nullptr; }
};

// Type of the function "onnxtrain_create_backend" that each backend library exports with C linkage. Stores an error in
// *status.
using CreateBackendFn = Backend* (*)(const BackendOptions& options, absl::Status* status);

// Fails with kResourceExhausted if the backend knows that fewer bytes are free, so that the process reports an error
// instead of being killed later. `what` names the use of the memory in the message, in the plural: "activations".
absl::Status CheckFits(const Backend& backend, size_t bytes, std::string_view what);

// Allocates memory if CheckFits succeeds.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateChecked(Backend& backend, size_t bytes, std::string_view what);

}  // namespace onnxtrain
