#include "backends/plugin/plugin_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "backends/backend.h"
#include "backends/bindings.h"
#include "backends/dataflow.h"
#include "backends/memory_plan.h"
#include "backends/plugin/host_node.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"
#include "frontend/plugin/library.h"

namespace onnxtrain {
namespace {

// Owns a prepared kernel of the library and releases it.
class PluginKernel {
 public:
  explicit PluginKernel(OnnxtrainKernel kernel) : kernel_(kernel) {}
  ~PluginKernel() {
    if (kernel_.release != nullptr) kernel_.release(kernel_.state);
  }
  PluginKernel(const PluginKernel&) = delete;
  PluginKernel& operator=(const PluginKernel&) = delete;

  size_t workspace() const { return kernel_.workspace; }
  absl::Status Run(void* const* inputs, void* const* outputs, void* workspace) const;

 private:
  OnnxtrainKernel kernel_;
};

// Returns true if the library runs the node.
bool LibraryRuns(const PluginLibrary& library, const Graph& graph, const Node& node) {
  return library.Supports(PluginNode(graph, node).Get());
}

// The kernel of a node, from the library or on the host; a view has neither.
struct PreparedNode {
  std::unique_ptr<PluginKernel> kernel;
  std::unique_ptr<HostNode> host;

  // Returns the bytes that the plan reserves. Host nodes of a library with device memory use no planned memory.
  size_t workspace(bool has_memory) const {
    if (host != nullptr) return has_memory ? 0 : host->workspace();
    return kernel == nullptr ? 0 : kernel->workspace();
  }
};

// Finds the outputs of nodes that have users or are graph outputs.
class ReadOutputs {
 public:
  explicit ReadOutputs(const Graph& graph) : users_(ComputeUsers(graph)), is_output_(graph.values().size()) {
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
  }
  std::vector<bool> Get(const Node& node) const {
    std::vector<bool> read;
    for (const ValueId v : node.outputs) read.push_back(is_output_[v] || !users_[v].empty());
    return read;
  }

 private:
  const Users users_;
  std::vector<bool> is_output_;
};

absl::Status PluginKernel::Run(void* const* inputs, void* const* outputs, void* workspace) const {
  const OnnxtrainKernelArgs args{.inputs = inputs, .outputs = outputs, .workspace = workspace};
  PluginMessage message;
  const int code = kernel_.run(kernel_.state, &args, message.get());
  return code == 0 ? absl::OkStatus() : message.ToStatus(code, "the backend failed");
}

// Prepares the live nodes of a graph. The result is indexed by node; dead nodes and views have no kernel.
absl::StatusOr<std::vector<PreparedNode>> PrepareNodes(const PluginLibrary& library, Backend& host, const Graph& graph,
                                                       const PluginGraph& view) {
  const std::vector<bool> running = FindLiveNodes(graph);
  const ReadOutputs read(graph);
  std::vector<PreparedNode> prepared(graph.nodes().size());
  for (size_t n = 0; n < prepared.size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!running[n] || FindOp(node.op)->view) continue;
    RETURN_IF_ERROR(CheckCancelled());
    if (LibraryRuns(library, graph, node)) {
      auto kernel = library.Prepare(*view.get(), n);
      if (!kernel.ok()) return Annotate(kernel.status(), NodeTag(node));
      prepared[n].kernel = std::make_unique<PluginKernel>(*kernel);
    } else {
      auto on_host = HostNode::Make(host, graph, node, read.Get(node));
      if (!on_host.ok()) return Annotate(on_host.status(), NodeTag(node));
      prepared[n].host = *std::move(on_host);
    }
  }
  return prepared;
}

using Where = Place::Where;

constexpr size_t kAlignment = 64;

// A compiled graph over the kernels of a library and planned memory. A step is a kernel of the library, a node on the
// host, or a copy of a view.
class PluginProgram : public Program {
 public:
  PluginProgram(std::shared_ptr<PluginLibrary> library, Graph graph, const CompileOptions& options)
      : library_(std::move(library)),
        graph_(std::move(graph)),
        view_(graph_),
        options_(options),
        bindings_(graph_, plan_) {}

  absl::Status Compile(Backend& host) {
    ASSIGN_OR_RETURN(nodes_, PrepareNodes(*library_, host, graph_, view_));
    std::vector<size_t> workspaces;
    for (const PreparedNode& node : nodes_) workspaces.push_back(node.workspace(library_->has_memory()));
    plan_ = PlanMemory(graph_, {.reuse = !options_.keep_values, .workspace_bytes = std::move(workspaces)});
    if (options_.time_nodes) seconds_.resize(graph_.nodes().size());
    MakeSteps();
    return library_->has_memory() ? UseDevice(host) : absl::OkStatus();
  }

  const Graph& graph() const override { return graph_; }
  const MemoryPlan* plan() const override { return &plan_; }
  MemoryUse memory() const override {
    return {.arena = plan_.arena_bytes,
            .lower_bound = plan_.lower_bound,
            .scratch = staging_ == nullptr ? 0 : staging_->size()};
  }

  absl::Status BindInput(std::string_view name, BufferView view) override {
    resolved_ = false;
    return bindings_.BindInput(name, view);
  }
  bool ReadInPlace(size_t input, const std::byte* data) override {
    if (library_->has_memory()) return false;
    const bool in_place = reinterpret_cast<uintptr_t>(data) % kFeedAlignment == 0;
    if (bindings_.MoveInput(input, in_place ? const_cast<std::byte*>(data) : nullptr) && resolved_) SetPointers();
    return in_place;
  }
  absl::Status BindOutput(std::string_view name, BufferView view) override {
    resolved_ = false;
    return bindings_.BindOutput(name, view);
  }
  absl::Status BindArena(BufferView view) override {
    resolved_ = false;
    return bindings_.BindArena(view);
  }

  absl::Status Run() override {
    if (!resolved_) {
      RETURN_IF_ERROR(bindings_.CheckAllBound());
      SetPointers();
      resolved_ = true;
    }
    const bool timed = recorded_ != nullptr || !seconds_.empty();
    for (const Step& step : steps_) {
      const absl::Status status = timed ? RunTimed(step) : RunStep(step);
      if (!status.ok()) return Annotate(status, NodeTag(graph_.nodes()[step.node]));
    }
    for (const Copy& copy : plan_.copies) RETURN_IF_ERROR(CopyBytes(At(copy.to), At(copy.from), copy.bytes));
    return absl::OkStatus();
  }

  std::span<const double> NodeSeconds() const override { return seconds_; }
  void RecordNodes(std::vector<NodeRun>* runs) override { recorded_ = runs; }

  absl::StatusOr<HostTensor> Fetch(ValueId value) const override {
    return FetchValue(
        graph_, options_, value,
        {.find = [this](ValueId v) { return resolved_ ? At(plan_.places[v]) : nullptr; },
         .copy = [this](std::byte* to, const std::byte* from, size_t bytes) { return CopyToHost(to, from, bytes); }});
  }

 private:
  struct Step {
    int32_t node;
    size_t first_pointer;  // index in pointers_; inputs, then outputs
    std::byte* workspace = nullptr;
  };
  // The place in staging_ to which an operand of a host node is copied. Absent operands and those never computed have
  // none.
  struct Staged {
    size_t pointer, offset, bytes;
  };

  // Returns true for a view whose input and output have the same place, which needs no step.
  bool IsNothing(const Node& node) const {
    return FindOp(node.op)->view && plan_.places[node.inputs[0]] == plan_.places[node.outputs[0]];
  }

  void MakeSteps() {
    size_t pointers = 0;
    for (const int32_t n : plan_.order) {
      const Node& node = graph_.nodes()[n];
      if (IsNothing(node)) continue;
      steps_.push_back({.node = n, .first_pointer = pointers});
      pointers += node.inputs.size() + node.outputs.size();
    }
    pointers_.resize(pointers);
    staged_pointers_.resize(pointers);
  }

  // Uploads the constants and allocates the host memory in which host nodes work.
  absl::Status UseDevice(Backend& host) {
    for (const Node& node : graph_.nodes()) {
      const HostTensor* value = IsConstant(node) ? node.attrs.Tensor("value") : nullptr;
      if (value == nullptr) continue;
      ASSIGN_OR_RETURN(auto& buffer = constants_[node.outputs[0]], library_->Allocate(library_, value->bytes().size()));
      RETURN_IF_ERROR(buffer->Write(0, value->bytes()));
    }
    size_t bytes = 0;
    for (const Step& step : steps_) bytes = std::max(bytes, Stage(step));
    ASSIGN_OR_RETURN(staging_, host.Allocate(bytes));
    auto* base = static_cast<std::byte*>(staging_->data());
    for (auto& [node, operands] : staged_) {
      for (const Staged& operand : operands) staged_pointers_[operand.pointer] = base + operand.offset;
    }
    return absl::OkStatus();
  }

  // Places the operands of a host node in staging_, after its workspace. Returns the bytes used.
  size_t Stage(const Step& step) {
    const HostNode* host = nodes_[step.node].host.get();
    if (host == nullptr) return 0;
    const Node& node = graph_.nodes()[step.node];
    size_t end = host->workspace(), pointer = step.first_pointer;
    for (const ValueIds* values : {&node.inputs, &node.outputs}) {
      for (const ValueId v : *values) {
        const size_t bytes = v == kNoValue || plan_.places[v].where == Where::kNone ? 0 : graph_.type(v).bytes();
        if (bytes > 0) staged_[step.node].push_back({.pointer = pointer, .offset = end, .bytes = bytes});
        end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
        ++pointer;
      }
    }
    return end;
  }

  std::byte* At(const Place& place) const {
    if (place.where != Where::kConstant) return bindings_.At(place);
    if (library_->has_memory()) return static_cast<std::byte*>(constants_.at(place.index)->data());
    return const_cast<std::byte*>(graph_.FindConstant(place.index)->bytes().data());
  }

  void SetPointers() {
    for (Step& step : steps_) {
      const Node& node = graph_.nodes()[step.node];
      void** pointer = &pointers_[step.first_pointer];
      step.workspace = bindings_.arena() + plan_.workspace_offset[step.node];
      for (const ValueId v : node.inputs) *pointer++ = v == kNoValue ? nullptr : At(plan_.places[v]);
      for (const ValueId v : node.outputs) *pointer++ = At(plan_.places[v]);
    }
  }

  absl::Status CopyBytes(void* to, const void* from, size_t bytes) const {
    if (library_->has_memory()) return library_->Copy(to, from, bytes, ONNXTRAIN_COPY_ON_DEVICE);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) const {
    if (library_->has_memory()) return library_->Copy(to, from, bytes, ONNXTRAIN_COPY_TO_HOST);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  absl::Status RunStep(const Step& step) {
    const Node& node = graph_.nodes()[step.node];
    const PreparedNode& prepared = nodes_[step.node];
    void* const* inputs = &pointers_[step.first_pointer];
    void* const* outputs = inputs + node.inputs.size();
    if (prepared.kernel != nullptr) return prepared.kernel->Run(inputs, outputs, step.workspace);
    if (prepared.host == nullptr) return CopyBytes(outputs[0], inputs[0], graph_.type(node.outputs[0]).bytes());
    if (!library_->has_memory()) return prepared.host->Run(inputs, outputs, step.workspace);
    return RunStaged(step, node, *prepared.host);
  }

  absl::Status RunStaged(const Step& step, const Node& node, HostNode& host) {
    const std::vector<Staged>& operands = staged_[step.node];
    const size_t first_output = step.first_pointer + node.inputs.size();
    for (const Staged& x : operands) {
      if (x.pointer < first_output)
        RETURN_IF_ERROR(CopyToHost(staged_pointers_[x.pointer], pointers_[x.pointer], x.bytes));
    }
    void* const* inputs = &staged_pointers_[step.first_pointer];
    RETURN_IF_ERROR(host.Run(inputs, inputs + node.inputs.size(), staging_->data()));
    for (const Staged& y : operands) {
      if (y.pointer < first_output) continue;
      RETURN_IF_ERROR(
          library_->Copy(pointers_[y.pointer], staged_pointers_[y.pointer], y.bytes, ONNXTRAIN_COPY_TO_DEVICE));
    }
    return absl::OkStatus();
  }

  absl::Status RunTimed(const Step& step) {
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(RunStep(step));
    if (library_->has_memory()) RETURN_IF_ERROR(library_->Synchronize());
    const auto end = std::chrono::steady_clock::now();
    if (!seconds_.empty()) seconds_[step.node] += std::chrono::duration<double>(end - begin).count();
    if (recorded_ != nullptr) recorded_->push_back({step.node, begin, end});
    return absl::OkStatus();
  }

  const std::shared_ptr<PluginLibrary> library_;
  const Graph graph_;
  const PluginGraph view_;  // kernels may refer to it
  const CompileOptions options_;
  MemoryPlan plan_;
  Bindings bindings_;
  std::vector<PreparedNode> nodes_;
  std::vector<Step> steps_;
  std::vector<void*> pointers_;
  std::vector<double> seconds_;  // by node, summed over runs; empty unless timed
  std::vector<NodeRun>* recorded_ = nullptr;
  bool resolved_ = false;

  // These are set only if the library has device memory.
  std::map<ValueId, std::unique_ptr<Buffer>> constants_;
  std::unique_ptr<Buffer> staging_;                // host memory: workspace and operands of one node at a time
  std::map<int32_t, std::vector<Staged>> staged_;  // by node
  std::vector<void*> staged_pointers_;             // indexed like pointers_; null if not staged
};

// Compiles a legalized graph. `host`, the backend `cpu`, runs nodes without a kernel in the library, and must outlive
// the program.
absl::StatusOr<std::unique_ptr<Program>> MakePluginProgram(std::shared_ptr<PluginLibrary> library, Backend& host,
                                                           const Graph& graph, const CompileOptions& options) {
  auto program = std::make_unique<PluginProgram>(std::move(library), graph, options);
  RETURN_IF_ERROR(program->Compile(host));
  return program;
}

// Returns the bytes of scratch memory that the memory plan has to reserve, by node.
absl::StatusOr<std::vector<size_t>> PluginWorkspaces(const PluginLibrary& library, Backend& host, const Graph& graph) {
  const PluginGraph view(graph);
  ASSIGN_OR_RETURN(const auto nodes, PrepareNodes(library, host, graph, view));
  std::vector<size_t> bytes;
  for (const PreparedNode& node : nodes) bytes.push_back(node.workspace(library.has_memory()));
  return bytes;
}

class PluginBackend : public Backend {
 public:
  PluginBackend(std::shared_ptr<PluginLibrary> library, std::unique_ptr<Backend> host, std::string device)
      : library_(std::move(library)), host_(std::move(host)), device_(std::move(device)) {}

  std::string name() const override { return library_->api().name; }
  std::string device() const override { return device_; }
  std::string description() const override { return StrCat(name(), ": ", library_->Describe()); }

  bool Supports(const Graph& graph, const Node& node) const override {
    return RunsAlone(graph, node) || host_->Supports(graph, node);
  }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override {
    const auto lacks = [this](const Graph& g, const Node& n) { return !RunsAlone(g, n); };
    const std::vector<Pass> passes = {
        {"decompose", [&](const Graph& g) { return DecomposeNodes(g, lacks); }, AnyNode(lacks)}, DcePass()};
    ASSIGN_OR_RETURN(const Graph legal, RunPasses(graph, passes));
    std::vector<std::string> lacking;
    for (const Node& node : legal.nodes()) {
      if (lacks(legal, node) && !HostRuns(*host_, legal, node)) lacking.push_back(NodeTag(node));
    }
    if (lacking.empty()) return legal;
    return absl::UnimplementedError(StrCat("backend ", name(), " cannot run ", absl::StrJoin(lacking, ", ")));
  }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override {
    return PluginWorkspaces(*library_, *host_, graph);
  }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    return MakePluginProgram(library_, *host_, legal, options);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return library_->has_memory() ? library_->Allocate(library_, bytes) : host_->Allocate(bytes);
  }
  bool ReadsHostMemory() const override { return !library_->has_memory(); }
  size_t FreeMemory() const override { return library_->has_memory() ? library_->FreeMemory() : host_->FreeMemory(); }
  absl::Status Synchronize() override { return library_->has_memory() ? library_->Synchronize() : absl::OkStatus(); }

 private:
  // Returns true if the node runs without `host`. Constants and views need no kernel.
  bool RunsAlone(const Graph& graph, const Node& node) const {
    return IsConstant(node) || FindOp(node.op)->view || LibraryRuns(*library_, graph, node);
  }

  std::shared_ptr<PluginLibrary> library_;
  std::unique_ptr<Backend> host_;
  std::string device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreatePluginBackend(const std::string& path, const BackendOptions& options,
                                                             std::unique_ptr<Backend> host) {
  ASSIGN_OR_RETURN(const OnnxtrainBackendApi* api, LoadBackendApi(path));
  if (api == nullptr) return Invalid(path, ": exports no OnnxtrainGetBackend");
  auto library = PluginLibrary::Create(*api, {.device = options.device.c_str(), .threads = options.threads});
  if (!library.ok()) return Annotate(library.status(), StrCat(path, ": "));
  std::string device = "cpu";
  if ((*library)->has_memory())
    device = options.device == "auto" || options.device == "cpu" ? std::string(api->name) : options.device;
  return std::make_unique<PluginBackend>(*std::move(library), std::move(host), std::move(device));
}

}  // namespace onnxtrain
