#include "backends/torch/fuse/generate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "absl/strings/str_replace.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/fuse/kernel_plan.h"
#include "backends/torch/kernels/element_functions.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/passes/match.h"

namespace onnxtrain::aten {
namespace {

constexpr const char* kPlaceholder = "ONNXTRAIN_KERNEL";
constexpr int64_t kMapThreads = 256;  // threads of a block without reductions
constexpr int64_t kWarp = 32;
constexpr int64_t kWarpsOfRows = 4;  // warps of a block in which each warp computes a row
constexpr int64_t kRowsPerColumnTeam = 8;
constexpr int64_t kMostColumnThreads = 1 << 17;  // threads that sum columns: about as many as a GPU runs at once
constexpr int64_t kMostColumnBlocks = 1024;      // maximum number of partial sums per column
constexpr int64_t kColumnBlock = 1024;           // threads that add the partial sums of 32 columns
constexpr int64_t kUnrolledRows = 4;             // rows whose operands are loaded together if no row is reduced
constexpr size_t kMostUnrolledNodes = 16;

// Defines BatchEntry as in generate.h, and a function that finds the entry of a block.
constexpr std::string_view kBatchEntry = R"(
struct BatchEntry {
  Pointers pointers;
  long long elements, first_block;
};

DEVICE const BatchEntry& FindEntry(const Pointers& batch) {
  const BatchEntry* entries = static_cast<const BatchEntry*>(batch.at[0]);
  unsigned low = 0, high = static_cast<unsigned>(reinterpret_cast<unsigned long long>(batch.at[1]));
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (entries[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  return entries[low];
}
)";

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the C++ name of an element type in memory.
std::string_view MemoryType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "double";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "f16";
    case DType::kBool:
      return "bool";
    default:
      return "float";
  }
}

// The distribution of elements over threads. A team computes a row: a warp, a part of one, or a whole block.
struct Tiling {
  int64_t vector = 1;  // elements per access of a thread
  int64_t team = 1;    // threads of a team
  int64_t copies = 1;  // vectors per thread and row
  int64_t block = 1;   // threads of a block
  int64_t teams = 1;   // teams of the launch
  int64_t blocks = 1;
};

class Generator {
 public:
  Generator(KernelPlan plan, size_t alignment, bool batched = false)
      : plan_(std::move(plan)), graph_(plan_.graph), pattern_(graph_), alignment_(alignment), batched_(batched) {
    CountPointers();
    ChooseTiling();
    PlanPasses(&plan_, tiling_.copies * tiling_.vector);
  }

  GeneratedKernel Run(std::string_view name) {
    kernel_.source = MakePrelude({.wide = plan_.wide, .long_index = has_long_index()});
    batched_ ? EmitBatchKernel(name) : plan_.by_row ? EmitRowKernel(name) : EmitMapKernel(name);
    kernel_.launches.push_back(
        {.function = std::string(name), .blocks = tiling_.blocks, .threads = static_cast<int>(tiling_.block)});
    if (!plan_.column_sums.empty()) EmitColumnKernel(StrCat(name, "_columns"));
    return std::move(kernel_);
  }

  size_t pointers() const { return pointers_; }
  int64_t elements() const { return plan_.space.elements(); }
  // Returns true if the source of a batched kernel does not depend on extents.
  bool CanBatch() const {
    return !plan_.by_row && stream_pointers_.empty() && std::ranges::all_of(plan_.loads, [](const OperandLoad& load) {
      return load.index.offset == (load.index.same ? "0" : "c");
    });
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes()[n]; }
  ValueId output(int32_t n) const { return graph_.nodes()[n].outputs[0]; }
  bool has_long_index() const { return plan_.space.elements() > std::numeric_limits<int32_t>::max() / 2; }

  // Numbers the pointers: inputs, outputs, workspace, streams.
  void CountPointers() {
    workspace_pointer_ = graph_.inputs().size() + graph_.outputs().size();
    pointers_ = workspace_pointer_ + 1;
    for (const Node& n : graph_.nodes()) {
      if (n.op != "Dropout") continue;
      kernel_.streams.push_back(n.attrs.Int("stream"));
      stream_pointers_[n.outputs[0]] = pointers_++;
    }
  }

  size_t InputPointer(ValueId v) const { return static_cast<size_t>(graph_.value(v).index); }
  size_t OutputPointer(size_t output) const { return graph_.inputs().size() + output; }

  // Returns the largest number of consecutive elements, up to 16 bytes, that a thread can access at once in all
  // operands.
  int64_t ChooseVector() const {
    int64_t smallest = 16, vector = 8;
    for (const auto* list : {&load_dtypes(), &output_dtypes()}) {
      for (DType dtype : *list)
        if (dtype != DType::kBool) smallest = std::min<int64_t>(smallest, static_cast<int64_t>(DTypeSize(dtype)));
    }
    while (vector > 1 && (vector * smallest > 16 || !FitsVector(vector))) vector /= 2;
    return vector;
  }

  bool FitsVector(int64_t vector) const {
    const bool has_tail = batched_ || (!plan_.by_row && plan_.space.elements() % vector != 0);
    if (plan_.by_row && plan_.space.columns % vector != 0) return false;
    for (const OperandLoad& load : plan_.loads) {
      const bool any = load.index.run == OperandIndex::kAnyRun ||
                       (has_tail && !load.index.same && load.index.run == plan_.space.elements());
      if (!any && load.index.run % vector != 0) return false;
    }
    const auto is_aligned = [&](DType dtype) {
      return alignment_ % std::min<size_t>(16, static_cast<size_t>(vector) * DTypeSize(dtype)) == 0;
    };
    return std::ranges::all_of(load_dtypes(), is_aligned) && std::ranges::all_of(output_dtypes(), is_aligned);
  }

  const std::vector<DType>& load_dtypes() const {
    if (load_dtypes_.empty()) {
      for (const OperandLoad& load : plan_.loads)
        if (!load.index.same) load_dtypes_.push_back(graph_.type(load.input).dtype);
    }
    return load_dtypes_;
  }
  const std::vector<DType>& output_dtypes() const {
    if (output_dtypes_.empty()) {
      for (const GraphOutput& out : graph_.outputs())
        if (plan_.level[SkipViews(plan_, out.value)] == Level::kElement)
          output_dtypes_.push_back(graph_.type(out.value).dtype);
    }
    return output_dtypes_;
  }

  void ChooseTiling() {
    tiling_.vector = ChooseVector();
    if (!plan_.by_row) {
      const int64_t elements = plan_.space.elements();
      const int64_t threads = elements / tiling_.vector + elements % tiling_.vector;
      tiling_.block = kMapThreads;
      tiling_.blocks = Ceil(threads, kMapThreads);
      return;
    }
    const int64_t vectors = plan_.space.columns / tiling_.vector, rows = plan_.space.rows;
    // A warp, which needs no barriers, computes rows of up to 16 elements per thread.
    const bool is_short = vectors * tiling_.vector <= 16 * kWarp;
    const int64_t most = vectors * tiling_.vector > 8192 ? 1024 : 512;
    tiling_.team = is_short ? kWarp : std::min(most, Ceil(vectors, kWarp) * kWarp);
    // If no row is reduced, a part of a warp can compute a row.
    while (!ReducesRows() && tiling_.team > 1 && tiling_.team / 2 >= vectors) tiling_.team /= 2;
    tiling_.copies = Ceil(vectors, tiling_.team);
    tiling_.block = is_short ? kWarpsOfRows * kWarp : tiling_.team;
    const int64_t per_block = teams_per_block();
    if (plan_.column_sums.empty()) {
      tiling_.teams = rows;
      tiling_.blocks = Ceil(rows, per_block);
      return;
    }
    const int64_t most_blocks = std::min(kMostColumnBlocks, kMostColumnThreads / tiling_.block);
    tiling_.blocks = std::clamp(Ceil(rows / kRowsPerColumnTeam, per_block), int64_t{1}, most_blocks);
    tiling_.teams = tiling_.blocks * per_block;
  }

  int64_t teams_per_block() const { return tiling_.block / tiling_.team; }
  // Returns true if rows are reduced.
  bool ReducesRows() const {
    return plan_.column_sums.empty() || std::ranges::find(plan_.level, Level::kRow) != plan_.level.end();
  }

  template <typename... Args>
  void Line(const Args&... args) {
    StrAppend(&kernel_.source, std::string(2 * static_cast<size_t>(indent_), ' '), args..., "\n");
  }
  template <typename... Args>
  void Open(const Args&... args) {
    Line(args..., " {");
    ++indent_;
  }
  void Close() {
    --indent_;
    Line("}");
  }

  std::string_view GetCppType(ValueId v) const { return graph_.type(v).dtype == DType::kBool ? "bool" : "real"; }

  void EmitHead(std::string_view name, int64_t threads) {
    Open("extern \"C\" __global__ void __launch_bounds__(", threads, ") ", name, "(const Pointers p)");
  }

  void EmitRandoms() {
    for (const auto& [v, pointer] : stream_pointers_) {
      Line("const Random g", v, " = MakeRandom(p.at[", InputPointer(graph_.producer(v)->inputs[1]),
           "], static_cast<unsigned>(reinterpret_cast<uint64>(p.at[", pointer, "])), ", plan_.space.elements(),
           "ull);");
    }
  }

  std::string LoadAt(const OperandLoad& load, int64_t vector) const {
    return StrCat("Load<", vector, ", ", MemoryType(graph_.type(load.input).dtype), ">(p.at[", InputPointer(load.input),
                  "], ", load.index.offset, ")");
  }

  std::string Read(const Operand& operand) const {
    if (operand.load >= 0) return StrCat("x", operand.load);
    const ValueId v = operand.value;
    if (plan_.level[v] != Level::kConstant) return StrCat("v", v);
    const double value = *pattern_.Splat(v);
    return graph_.type(v).dtype == DType::kBool ? (value != 0 ? "true" : "false") : Literal(value, plan_.wide);
  }

  // Emits an elementwise node, for one element.
  void EmitNode(int32_t n) {
    const Node& node = graph_.nodes()[n];
    const ValueId out = node.outputs[0];
    if (node.op == "Cast") {
      Line("const ", GetCppType(out), " v", out, " = ", CastExpression(node, Read(plan_.operands[n][0])), ";");
    } else if (node.op == "Dropout") {
      const double ratio = node.attrs.Float("ratio");
      Line("const real v", out, " = ", Read(plan_.operands[n][0]), " * ", Literal(1 / (1 - ratio), plan_.wide),
           " * (Uniform(w", out, ".at[j]) >= ", Literal(ratio, false), " ? real(1) : real(0));");
    } else {
      const ElementFunction& function = *FindElementFunction(node);
      Line(GetCppType(out), " v", out, ";");
      std::string operands;
      for (size_t i = 0; i < plan_.operands[n].size(); ++i) {
        StrAppend(&operands, "const ", GetCppType(node.inputs[i]), " ", std::string(1, static_cast<char>('a' + i)),
                  " = ", Read(plan_.operands[n][i]), "; ");
      }
      Line("{ ", operands, DefineNumbers(function, node, plan_.wide), "v", out, " = ", function.expression, "; }");
    }
  }

  std::string CastExpression(const Node& cast, const std::string& x) const {
    const DType from = graph_.type(cast.inputs[0]).dtype, to = graph_.type(cast.outputs[0]).dtype;
    if (to == from) return x;
    if (to == DType::kBFloat16) return StrCat("Widen(ToBf16(", CastFromBool(from, x), "))");
    if (to == DType::kFloat16) return StrCat("Widen(ToF16(", CastFromBool(from, x), "))");
    return to == DType::kBool ? StrCat(x, " != 0") : CastFromBool(from, x);
  }
  static std::string CastFromBool(DType from, const std::string& x) {
    return from == DType::kBool ? StrCat("(", x, " ? real(1) : real(0))") : x;
  }

  // Emits the loads and computations of a pass for `vector` elements at column c.
  void EmitElements(int pass, int64_t vector) {
    const KernelPass& work = plan_.passes[pass];
    const bool last = pass + 1 == static_cast<int>(plan_.passes.size());
    if (uses_element_index())
      Line("const Index e = ", plan_.by_row ? StrCat("r * ", plan_.space.columns, " + c") : "c", ";");
    for (int l : work.loads) EmitLoad(l, vector);
    for (int32_t n : work.nodes) {
      if (node(n).op == "Dropout")
        Line("const WordsOf<", vector, "> w", output(n), " = RandomWords<", vector, ">(g", output(n), ", e);");
    }
    if (last)
      ForElementOutputs([&](size_t o, ValueId v) {
        Line("Pack<", MemoryType(graph_.type(graph_.outputs()[o].value).dtype), ", ", vector, "> y", o, ";");
      });
    Line("#pragma unroll");
    Open("for (int j = 0; j < ", vector, "; ++j)");
    for (int l : work.loads) {
      if (!plan_.loads[l].index.same)
        Line("const ", GetCppType(plan_.loads[l].input), " x", l, " = Widen(l", l, ".at[j]);");
      if (IsKept(plan_.kept_loads, l)) Line("kx", l, "[k * ", vector, " + j] = x", l, ";");
    }
    if (pass > 0) EmitKept(work, vector);
    for (int32_t n : work.nodes) {
      EmitNode(n);
      if (IsKept(plan_.kept_values, output(n))) Line("kv", output(n), "[k * ", vector, " + j] = v", output(n), ";");
    }
    for (int32_t n : work.reductions)
      Line("m", output(n), " = ", Reducer(node(n)), "::Join(m", output(n), ", ", Read(plan_.operands[n][0]), ");");
    if (last) {
      for (int32_t n : plan_.column_sums)
        Line("s", output(n), "[k * ", vector, " + j] += ", Read(plan_.operands[n][0]), ";");
      ForElementOutputs([&](size_t o, ValueId v) {
        Line("y", o, ".at[j] = Narrow<", MemoryType(graph_.type(graph_.outputs()[o].value).dtype), ">(v", v, ");");
      });
    }
    Close();
    if (last)
      ForElementOutputs([&](size_t o, ValueId v) {
        Line("Store(y", o, ", p.at[", OutputPointer(o), "], ",
             plan_.by_row ? StrCat("r * ", plan_.space.columns, " + c") : "c", ");");
      });
  }

  bool uses_element_index() const {
    return !stream_pointers_.empty() || std::ranges::any_of(plan_.loads, [](const OperandLoad& load) {
      return load.index.offset.find('e') != std::string::npos;
    });
  }

  void EmitLoad(int l, int64_t vector) {
    const OperandLoad& load = plan_.loads[l];
    if (load.index.same) {
      Line("const ", GetCppType(load.input), " x", l, " = Widen(", LoadAt(load, 1), ".at[0]);");
    } else {
      Line("const Pack<", MemoryType(graph_.type(load.input).dtype), ", ", vector, "> l", l, " = ",
           LoadAt(load, vector), ";");
    }
  }

  // Emits reads of the registers that hold values and loads of earlier passes.
  void EmitKept(const KernelPass& work, int64_t vector) {
    for (int l : plan_.kept_loads) {
      if (std::ranges::find(work.loads, l) == work.loads.end())
        Line("const ", GetCppType(plan_.loads[l].input), " x", l, " = kx", l, "[k * ", vector, " + j];");
    }
    for (ValueId v : plan_.kept_values) {
      const bool computes = std::ranges::find(work.nodes, graph_.value(v).node) != work.nodes.end();
      if (!computes) Line("const ", GetCppType(v), " v", v, " = kv", v, "[k * ", vector, " + j];");
    }
  }

  template <typename T>
  static bool IsKept(const std::vector<T>& kept, T id) {
    return std::ranges::find(kept, id) != kept.end();
  }

  template <typename F>
  void ForElementOutputs(F&& f) const {
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const ValueId v = SkipViews(plan_, graph_.outputs()[o].value);
      if (plan_.level[v] == Level::kElement) f(o, v);
    }
  }

  static std::string_view Reducer(const Node& node) { return FindReductionFunction(node)->reducer; }

  // Emits a kernel without reductions. Each thread computes one vector or, in the remainder, one element.
  void EmitMapKernel(std::string_view name) {
    const int64_t vectors = plan_.space.elements() / tiling_.vector, tail = plan_.space.elements() % tiling_.vector;
    EmitHead(name, tiling_.block);
    EmitRandoms();
    EmitRowLoads();
    Line("const Index v = static_cast<Index>(blockIdx.x) * ", tiling_.block, " + threadIdx.x;");
    if (vectors > 0) {
      Open("if (v < ", vectors, ")");
      Line("const Index c = v * ", tiling_.vector, ";");
      EmitElements(0, tiling_.vector);
      Close();
    }
    if (tail > 0) {
      Open(vectors > 0 ? "else " : "", "if (v < ", vectors + tail, ")");
      Line("const Index c = v + ", vectors * (tiling_.vector - 1), ";");
      EmitElements(0, 1);
      Close();
    }
    Close();
  }

  void EmitBatchKernel(std::string_view name) {
    kernel_.source += kBatchEntry;
    Open("extern \"C\" __global__ void __launch_bounds__(", tiling_.block, ") ", name, "(const Pointers batch)");
    Line("const BatchEntry& entry = FindEntry(batch);");
    Line("const Pointers p = entry.pointers;");
    Line("const Index vectors = static_cast<Index>(entry.elements / ", tiling_.vector, ");");
    Line("const Index tail = static_cast<Index>(entry.elements % ", tiling_.vector, ");");
    EmitRowLoads();
    Line("const Index v = static_cast<Index>(blockIdx.x - entry.first_block) * ", tiling_.block, " + threadIdx.x;");
    Open("if (v < vectors)");
    Line("const Index c = v * ", tiling_.vector, ";");
    EmitElements(0, tiling_.vector);
    Close();
    Open("else if (v < vectors + tail)");
    Line("const Index c = v + vectors * ", tiling_.vector - 1, ";");
    EmitElements(0, 1);
    Close();
    Close();
  }

  void EmitRowLoads() {
    for (size_t l = 0; l < plan_.loads.size(); ++l) {
      if (plan_.loads[l].index.of_row) EmitLoad(static_cast<int>(l), 1);
    }
  }

  void EmitRowKernel(std::string_view name) {
    EmitHead(name, tiling_.block);
    EmitRandoms();
    Line("const int t = threadIdx.x % ", tiling_.team, ", of_block = threadIdx.x / ", tiling_.team, ";");
    Line("const Index team = static_cast<Index>(blockIdx.x) * ", teams_per_block(), " + of_block;");
    for (int32_t n : plan_.column_sums) Line("real s", output(n), "[", tiling_.copies * tiling_.vector, "] = {};");
    if (!ReducesRows() && graph_.nodes().size() <= kMostUnrolledNodes) Line("#pragma unroll ", kUnrolledRows);
    Open("for (Index r = team; r < ", plan_.space.rows, "; r += ", tiling_.teams, ")");
    EmitRow();
    Close();
    EmitPartialSums();
    Close();
  }

  void EmitRow() {
    EmitRowLoads();
    const int64_t kept = tiling_.copies * tiling_.vector;
    for (int l : plan_.kept_loads) Line(GetCppType(plan_.loads[l].input), " kx", l, "[", kept, "];");
    for (ValueId v : plan_.kept_values) Line(GetCppType(v), " kv", v, "[", kept, "];");
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) EmitPass(static_cast<int>(pass));
    for (int32_t n : plan_.last_row_nodes) EmitNode(n);
    EmitRowOutputs();
  }

  void EmitPass(int pass) {
    const KernelPass& work = plan_.passes[pass];
    for (int32_t n : work.row_nodes) EmitNode(n);
    for (int32_t n : work.reductions) Line("real m", output(n), " = ", Reducer(node(n)), "::Start();");
    EmitColumnLoop([&] { EmitElements(pass, tiling_.vector); });
    for (int32_t n : work.reductions) {
      Line("const real v", output(n), " = Reduce<", Reducer(node(n)), ", ", tiling_.team, ">(m", output(n), ")",
           FindReductionFunction(node(n))->averages ? StrCat(" / ", plan_.space.columns) : "", ";");
    }
  }

  // Emits the loop over the vectors of a thread: vector k starts at column c.
  template <typename F>
  void EmitColumnLoop(F&& emit) {
    if (!plan_.recompute || !plan_.column_sums.empty()) Line("#pragma unroll");
    Open("for (int k = 0; k < ", tiling_.copies, "; ++k)");
    Line("const Index c = (k * ", tiling_.team, " + t) * ", tiling_.vector, ";");
    const bool ends = tiling_.copies * tiling_.team * tiling_.vector != plan_.space.columns;
    if (ends) Line("if (c >= ", plan_.space.columns, ") break;");
    emit();
    Close();
  }

  void EmitRowOutputs() {
    bool waits = false;
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const ValueId out = graph_.outputs()[o].value, v = SkipViews(plan_, out);
      if (plan_.level[v] != Level::kRow) continue;
      if (!waits) Line("WaitForTeam<", tiling_.team, ">();");
      waits = true;
      const std::string_view type = MemoryType(graph_.type(out).dtype);
      Line("if (t == 0) static_cast<", type, "*>(p.at[", OutputPointer(o), "])[r] = Narrow<", type, ">(v", v, ");");
    }
  }

  // Emits the stores of the column sums of each block, which a second kernel adds.
  void EmitPartialSums() {
    if (!plan_.column_sums.empty() && teams_per_block() > 1)
      Line("__shared__ real of_teams[", teams_per_block() * plan_.space.columns, "];");
    int64_t sums = 0;
    for (int32_t n : plan_.column_sums) {
      const std::string partial =
          StrCat("static_cast<real*>(p.at[", workspace_pointer_, "])[", sums++ * tiling_.blocks * plan_.space.columns,
                 " + blockIdx.x * ", plan_.space.columns, " + ");
      if (teams_per_block() == 1) {
        EmitColumnSums(n, StrCat(partial, "c + j]"));
      } else {
        Line("__syncthreads();");
        EmitColumnSums(n, StrCat("of_teams[of_block * ", plan_.space.columns, " + c + j]"));
        Line("__syncthreads();");
        Open("for (int c = threadIdx.x; c < ", plan_.space.columns, "; c += ", tiling_.block, ")");
        Line("real sum = 0;");
        Line("for (int i = 0; i < ", teams_per_block(), "; ++i) sum += of_teams[i * ", plan_.space.columns, " + c];");
        Line(partial, "c] = sum;");
        Close();
      }
    }
    kernel_.workspace = sums * tiling_.blocks * plan_.space.columns * (plan_.wide ? 8 : 4);
  }

  // Emits the stores of a thread's sums of columns c + j.
  void EmitColumnSums(int32_t n, const std::string& to) {
    EmitColumnLoop([&] {
      Line("for (int j = 0; j < ", tiling_.vector, "; ++j) ", to, " = s", output(n), "[k * ", tiling_.vector, " + j];");
    });
  }

  // Emits the kernel that adds the partial sums: 32 columns per block, 32 threads per column.
  void EmitColumnKernel(const std::string& name) {
    EmitHead(name, kColumnBlock);
    Line("const Index c = static_cast<Index>(blockIdx.x) * 32 + threadIdx.x % 32;");
    int64_t sums = 0;
    for (int32_t n : plan_.column_sums) {
      const ValueId v = output(n);
      Line("real m", v, " = 0;");
      Open("if (c < ", plan_.space.columns, ")");
      Line("const real* partial = static_cast<const real*>(p.at[", workspace_pointer_, "]) + ",
           sums++ * tiling_.blocks * plan_.space.columns, ";");
      Line("for (int b = threadIdx.x / 32; b < ", tiling_.blocks, "; b += ", kColumnBlock / 32, ") m", v,
           " += partial[b * ", plan_.space.columns, " + c];");
      Close();
      Line("const real v", v, " = ReduceSlices(m", v, ")",
           FindReductionFunction(node(n))->averages ? StrCat(" / ", plan_.space.rows) : "", ";");
    }
    for (int32_t n = 0; n < static_cast<int32_t>(graph_.nodes().size()); ++n) {
      if (node(n).op == "Cast" && plan_.level[output(n)] == Level::kColumnSum)
        Line("const real v", output(n), " = ",
             CastExpression(node(n), StrCat("v", SkipViews(plan_, node(n).inputs[0]))), ";");
    }
    Open("if (c < ", plan_.space.columns, " && threadIdx.x < 32)");
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const ValueId out = graph_.outputs()[o].value, v = SkipViews(plan_, out);
      if (plan_.level[v] != Level::kColumnSum) continue;
      const std::string_view type = MemoryType(graph_.type(out).dtype);
      Line("static_cast<", type, "*>(p.at[", OutputPointer(o), "])[c] = Narrow<", type, ">(v", v, ");");
    }
    Close();
    Close();
    kernel_.launches.push_back({.function = name, .blocks = Ceil(plan_.space.columns, 32), .threads = kColumnBlock});
  }

  KernelPlan plan_;
  const Graph& graph_;
  const Pattern pattern_;
  const size_t alignment_;
  const bool batched_;
  GeneratedKernel kernel_;
  Tiling tiling_;
  size_t workspace_pointer_ = 0, pointers_ = 0;
  std::map<ValueId, size_t> stream_pointers_;
  mutable std::vector<DType> load_dtypes_, output_dtypes_;
  int indent_ = 0;
};

// Names the kernel after the digest of its source, so that equal bodies share a kernel.
GeneratedKernel Generate(Generator& generator) {
  GeneratedKernel kernel = generator.Run(kPlaceholder);
  const std::string name =
      StrCat("fused_", Sha256Hex(std::as_bytes(std::span<const char>(kernel.source))).substr(0, 16));
  const auto rename = [&](std::string* text) { absl::StrReplaceAll({{kPlaceholder, name}}, text); };
  rename(&kernel.source);
  for (KernelLaunch& launch : kernel.launches) rename(&launch.function);
  return kernel;
}

}  // namespace

absl::StatusOr<GeneratedKernel> GenerateKernel(const Graph& body, size_t alignment) {
  ASSIGN_OR_RETURN(KernelPlan plan, PlanKernel(body));
  Generator generator(std::move(plan), alignment);
  if (generator.pointers() > kMostPointers) return absl::UnimplementedError("too many operands for one kernel");
  return Generate(generator);
}

absl::StatusOr<BatchKernel> GenerateBatchKernel(const Graph& body, size_t alignment) {
  ASSIGN_OR_RETURN(KernelPlan plan, PlanKernel(body));
  Generator generator(std::move(plan), alignment, /*batched=*/true);
  if (!generator.CanBatch()) return absl::UnimplementedError("its extents are part of the kernel");
  return BatchKernel{Generate(generator), generator.elements()};
}

}  // namespace onnxtrain::aten
