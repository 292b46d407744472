// The whole contract between the trainer and a backend: Backend, Program, Buffer.
//
// A backend runs canonical graphs (frontend/ops/README.md). It is a shared library, libonnxtrain_backend_NAME.so, that
// registry.h loads. A Program is compiled once for static shapes, bound once to the memory it reads and writes, and then
// run any number of times without allocating, looking up or parsing anything.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/machine.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Device memory, 64-byte aligned (512 on a GPU), zeroed when allocated. Freed when destroyed.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t size() const = 0;  // bytes
  virtual void* data() = 0;         // device address
  // Synchronous with respect to the host; ordered after all runs that were started before.
  virtual absl::Status Write(size_t offset, std::span<const std::byte> bytes) = 0;
  virtual absl::Status Read(size_t offset, std::span<std::byte> bytes) const = 0;
};

// A dense row-major tensor's place in a Buffer, which must outlive the binding.
struct BufferView {
  Buffer* buffer = nullptr;
  size_t offset = 0;  // bytes, a multiple of 64
};

struct MemoryUse {
  size_t arena = 0;       // planned activations and workspaces, bytes
  size_t lower_bound = 0;  // most bytes live at one time in the chosen order: no placement can be smaller
  size_t scratch = 0;     // the kernels' own memory beyond the plan (0 on cpu)
};

struct CompileOptions {
  // Every value keeps a place of its own and can be fetched with Program::Fetch: for compare and tests.
  bool keep_values = false;
  // The time of every node is summed up: for profiles. A device then finishes each node before the next one starts.
  bool time_nodes = false;
};

class Program {
 public:
  virtual ~Program() = default;

  virtual const Graph& graph() const = 0;  // the legalized graph that was compiled
  virtual MemoryUse memory() const = 0;

  // Binds a graph input to memory of its type. All inputs must be bound before the first Run. An output that goes
  // `into` an input lives where that input lives.
  virtual absl::Status BindInput(std::string_view name, BufferView view) = 0;
  // Binds an output that goes into no input. All of them must be bound before the first Run.
  virtual absl::Status BindOutput(std::string_view name, BufferView view) = 0;
  // Where the activations live; one arena of at least memory().arena bytes may serve all programs of a session, as long
  // as they do not run at the same time.
  virtual absl::Status BindArena(BufferView view) = 0;

  // Starts a run. On a CPU it is finished on return; on a device it is queued. Not thread-safe.
  virtual absl::Status Run() = 0;

  // Seconds spent in each node over all runs, by node index of graph(). Empty without time_nodes.
  virtual std::span<const double> NodeSeconds() const = 0;

  // The value after the last run. Only with keep_values.
  virtual absl::StatusOr<HostTensor> Fetch(ValueId value) const = 0;
};

struct BackendOptions {
  std::string device = "cpu";  // "cpu" or "cuda:N"
  int threads = 0;             // 0: what the caller's environment says
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu", "torch"
  virtual std::string device() const = 0;       // "cpu", "cuda:0"
  virtual std::string description() const = 0;  // one line for people: library versions, instruction set, threads

  // Can it run the node as it is, with these element types?
  virtual bool Supports(const Graph& graph, const Node& node) const = 0;
  // Decomposes what is not supported, fuses what can be, adds packing nodes of derived values. Fails naming all nodes
  // that remain unsupported.
  virtual absl::StatusOr<Graph> Legalize(const Graph& graph) const = 0;
  // Bytes of planned scratch that each node of a legalized graph needs while it runs, by node index: what Compile will plan.
  virtual absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const {
    return std::vector<size_t>(graph.nodes().size(), 0);
  }
  // Of a legalized graph.
  virtual absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const CompileOptions& options) = 0;

  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;
  // Bytes that Allocate may still give, as far as that is known.
  virtual size_t FreeMemory() const { return device() == "cpu" ? AvailableMemory() : std::numeric_limits<size_t>::max(); }
  // Waits until everything queued has finished.
  virtual absl::Status Synchronize() = 0;
};

// What each backend library exports with C linkage under the name "onnxtrain_create_backend". The error, if any, is
// stored in *status.
using CreateBackendFn = Backend* (*)(const BackendOptions& options, absl::Status* status);

}  // namespace onnxtrain
