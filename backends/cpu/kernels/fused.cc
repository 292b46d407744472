// Runs chains of elementwise operators over tiles that stay in the first-level cache, and accumulates reductions of
// their values in parts, which depend on the shape, not on the number of threads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/peephole.h"
#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"
#include "frontend/ops/dynamic_code.h"

namespace onnxtrain::cpu {
namespace {

class FusedReductions {
 public:
  FusedReductions() = default;
  // `size` ≥ 1 is the number of elements of the reduced tensors.
  FusedReductions(const std::vector<FusedReduction>& sums, int64_t size);

  const std::vector<FusedReduction>& sums() const { return sums_; }
  int64_t parts() const { return parts_; }
  // Returns the first element of a part. One thread computes a part.
  int64_t Begin(int64_t part) const;
  size_t workspace() const;  // bytes

  // A run calls, for every sum, Start for each part, then Add for its elements in order; after all parts, Finish.
  void Start(int64_t part, double* workspace) const;
  // Adds the elements [first, first + n), which are at x.
  void Add(size_t sum, int64_t part, int64_t first, const float* x, int64_t n, double* workspace) const;
  void Finish(size_t sum, double* workspace, float* to) const;

 private:
  int64_t rows() const { return size_ / columns_; }
  bool HasCopies(const FusedReduction& sum) const { return sum.by_column || rows() == 1; }
  int64_t Width(const FusedReduction& sum) const { return sum.by_column ? period_ : rows(); }
  // Returns the Width accumulators of a part; parts share them if each has its own rows.
  double* Accumulators(size_t sum, int64_t part, double* workspace) const;

  std::vector<FusedReduction> sums_;
  std::vector<int64_t> offsets_;  // offsets of the accumulators of each sum, and their total
  int64_t size_ = 0, columns_ = 1, parts_ = 1;
  int64_t period_ = 1;  // accumulators of a sum by column, a multiple of the columns
  int64_t grain_ = 1;   // parts begin at multiples of it
};

// In sums by column, every part has its own accumulators, which Finish adds.
constexpr int64_t kMaxParts = 16, kRowsPerPart = 8;

constexpr int64_t kMaxRowParts = 64, kElementsPerPart = 1 << 13;

constexpr int64_t kMinLoopLength = 256;  // least accumulators of a loop: narrower rows are processed several at a time

FusedReductions::FusedReductions(const std::vector<FusedReduction>& sums, int64_t size)
    : sums_(sums), size_(size), columns_(sums[0].columns) {
  const bool by_column = std::any_of(sums.begin(), sums.end(), [](const FusedReduction& s) { return s.by_column; });
  period_ = columns_ * std::max<int64_t>(1, kMinLoopLength / columns_);
  grain_ = rows() == 1 ? 512 : columns_;
  const int64_t grains = (size + grain_ - 1) / grain_;
  parts_ = by_column ? std::clamp<int64_t>(rows() / kRowsPerPart, 1, kMaxParts)
                     : std::clamp<int64_t>(size / kElementsPerPart, 1, std::min(grains, kMaxRowParts));
  offsets_.push_back(0);
  for (const FusedReduction& s : sums) offsets_.push_back(offsets_.back() + Width(s) * (HasCopies(s) ? parts_ : 1));
}

int64_t FusedReductions::Begin(int64_t part) const {
  const int64_t grains = (size_ + grain_ - 1) / grain_;
  return std::min(size_, grains * part / parts_ * grain_);
}

size_t FusedReductions::workspace() const { return sums_.empty() ? 0 : offsets_.back() * sizeof(double); }

double* FusedReductions::Accumulators(size_t sum, int64_t part, double* workspace) const {
  const FusedReduction& s = sums_[sum];
  return workspace + offsets_[sum] + (HasCopies(s) ? part * Width(s) : 0);
}

void FusedReductions::Start(int64_t part, double* workspace) const {
  for (size_t i = 0; i < sums_.size(); ++i) {
    double* accs = Accumulators(i, part, workspace);
    if (HasCopies(sums_[i])) {
      std::fill_n(accs, Width(sums_[i]), 0.0);
    } else {
      std::fill(accs + Begin(part) / columns_, accs + Begin(part + 1) / columns_, 0.0);
    }
  }
}

void FusedReductions::Add(size_t sum, int64_t part, int64_t first, const float* x, int64_t n, double* workspace) const {
  double* accs = Accumulators(sum, part, workspace);
  const bool by_column = sums_[sum].by_column;
  const int64_t length = by_column ? period_ : columns_;
  while (n > 0) {
    const int64_t row = first / length, column = first % length, count = std::min(n, length - column);
    by_column ? GetFloatSumReducer().columns(x, count, accs + column) : GetFloatSumReducer().row(x, count, accs + row);
    x += count;
    first += count;
    n -= count;
  }
}

void FusedReductions::Finish(size_t sum, double* workspace, float* to) const {
  const FusedReduction& s = sums_[sum];
  const int64_t width = Width(s), copies = HasCopies(s) ? parts_ : 1;
  const double divisor = s.mean ? static_cast<double>(s.by_column ? rows() : columns_) : 1;
  double* total = Accumulators(sum, 0, workspace);
  Parallel(width, copies, [&](int64_t begin, int64_t end) {
    for (int64_t copy = 1; copy < copies; ++copy)
      GetFloatSumReducer().merge(total + begin, total + copy * width + begin, end - begin);
  });
  const int64_t results = s.by_column ? columns_ : width;
  for (int64_t i = results; i < width; i += results) GetFloatSumReducer().merge(total, total + i, results);
  GetFloatSumReducer().finish(total, results, divisor, to);
}

constexpr int64_t kTile = 512;
static_assert(kMaxRotated <= kTile);
constexpr int kSlots = kMaxFusedInputs + kMaxInstructions;

// One pass over a tile. Exactly one function is not null.
struct Op {
  UnarySpan unary = nullptr;
  BinarySpan binary = nullptr;  // the variant for these operands
  SelectSpan select = nullptr;
  BlendSpan blend = nullptr;  // operands: a, b, c, s, t
  RootSpan root = nullptr;    // operands: a, -, -, s, t
  std::array<int, 5> operands = {-1, -1, -1, -1, -1};
  std::array<float, 2> params{};
  int to = 0;  // slot
};

// An input that is constant along the inner loop but read by a function without a scalar variant.
struct Repeated {
  int slot;
  size_t size;
};

struct Output {
  int slot;  // slot of the result
  int op;    // the op that computes it; −1: an input
  size_t size;
};

class Chain {
 public:
  static absl::StatusOr<Chain> Make(const Types& types, const FusedProgram& program) {
    Chain chain;
    const size_t inputs = types.size();
    std::vector<DType> dtypes;
    std::vector<Shape> shapes;
    for (const Type& type : types) {
      dtypes.push_back(type.dtype);
      shapes.push_back(type.shape);
    }
    ASSIGN_OR_RETURN(dtypes, SlotTypes(program, dtypes));
    chain.inputs_ = static_cast<int>(inputs);
    Shape shape;
    for (const Shape& input : shapes) shape = *BroadcastShapes(shape, input);
    chain.loop_ = BroadcastLoop(shape, shapes);
    if (!program.sums.empty()) chain.sums_ = FusedReductions(program.sums, chain.loop_.size());
    for (size_t s = 0; s < dtypes.size(); ++s) chain.sizes_[s] = DTypeSize(dtypes[s]);
    for (size_t i = 0; i < inputs; ++i) chain.steps_[i] = chain.loop_.InnerStride(1 + static_cast<int>(i));
    if (chain.loop_.inner() == 1) chain.steps_.fill(1);
    chain.row_ = std::max<int64_t>(1, FindRotatedRows(program));
    chain.Translate(program);
    chain.FindLastReads();
    chain.AssignScratch(dtypes.size());
    return chain;
  }

  // Returns true if a result is an input that is broadcast along tiles.
  bool RepeatsAResult() const {
    return std::any_of(outputs_.begin(), outputs_.end(), [&](const Output& o) { return IsScalar(o.slot); });
  }

  // Returns true if writing one result would overwrite an input that is another result.
  bool Destroys(const Args& args) const {
    for (const Output& from : outputs_) {
      for (size_t o = 0; o < outputs_.size() && from.op < 0; ++o) {
        if (args.outputs[o] == args.inputs[from.slot] && outputs_[o].slot != from.slot) return true;
      }
    }
    return false;
  }

  size_t workspace() const { return sums_.workspace(); }

  int64_t cost() const { return cost_; }

  // Computes all elements of a chain without sums in this thread.
  void RunInThread(const Args& args) const { RunRange(args, FindDirect(args), 0, loop_.size(), 0); }

  void Run(const Args& args) const {
    const std::array<bool, kMaxInstructions> direct = FindDirect(args);
    if (sums_.sums().empty()) {
      Parallel(loop_.size() / row_, cost_ * row_,
               [&](int64_t begin, int64_t end) { RunRange(args, direct, begin * row_, end * row_, 0); });
      return;
    }
    auto* workspace = static_cast<double*>(args.workspace);
    Parallel(sums_.parts(), cost_ * (loop_.size() / sums_.parts()), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        sums_.Start(part, workspace);
        RunRange(args, direct, sums_.Begin(part), sums_.Begin(part + 1), part);
      }
    });
    for (size_t i = 0; i < sums_.sums().size(); ++i) sums_.Finish(i, workspace, args.out(outputs_.size() + i));
  }

 private:
  // Returns true for an input that is constant along the inner loop.
  bool IsScalar(int slot) const { return slot < inputs_ && steps_[slot] == 0; }

  void Translate(const FusedProgram& program) {
    for (const PeepholeStep& step : RunPeephole(program, inputs_, [&](int slot) { return IsScalar(slot); })) {
      ops_.push_back(step.kind == PeepholeStep::Kind::kPlain ? PlainOp(step) : PeepholeOp(step));
    }
    for (const Instruction& in : program.code) cost_ += GetElementCost(in.entry);
    for (int slot : program.results) {
      const auto computes = std::find_if(ops_.begin(), ops_.end(), [&](const Op& op) { return op.to == slot; });
      outputs_.push_back({slot, slot < inputs_ ? -1 : static_cast<int>(computes - ops_.begin()), sizes_[slot]});
    }
  }

  Op PlainOp(const PeepholeStep& step) {
    const Instruction& in = step.instruction;
    Op op{.params = in.params, .to = step.to};
    std::copy(in.operands.begin(), in.operands.end(), op.operands.begin());
    if (in.entry == "Where") {
      op.select = GetElementwiseTables().select;
      for (int slot : in.operands) Repeat(slot);
    } else if (const UnaryEntry* unary = FindUnary(in.entry)) {
      op.unary = unary->span;
      Repeat(in.operands[0]);
    } else {
      const BinaryEntry& binary = *FindBinary(in.entry);
      const bool left = IsScalar(in.operands[0]), right = IsScalar(in.operands[1]);
      op.binary = right ? binary.scalar_right : left ? binary.scalar_left : binary.both;
      if (right) Repeat(in.operands[0]);
    }
    return op;
  }

  static Op PeepholeOp(const PeepholeStep& step) {
    Op op{.operands = {step.a, step.b, step.c, step.s, step.t}, .params = {step.sign_a, step.sign_b}, .to = step.to};
    const ElementwiseTables& table = GetElementwiseTables();
    switch (step.kind) {
      case PeepholeStep::Kind::kPlain:
      case PeepholeStep::Kind::kSum:
        op.blend = table.sum;
        break;
      case PeepholeStep::Kind::kProduct:
        op.blend = table.product;
        break;
      case PeepholeStep::Kind::kQuotient:
        op.blend = table.quotient;
        break;
      case PeepholeStep::Kind::kRoot:
        op.root = table.root;
        break;
      case PeepholeStep::Kind::kRootQuotient:
        op.root = table.root_over;
        break;
    }
    return op;
  }

  // Registers a scalar slot to be repeated over a tile. The slot can still be read as a scalar.
  void Repeat(int slot) {
    if (!IsScalar(slot)) return;
    const bool known =
        std::any_of(repeated_.begin(), repeated_.end(), [&](const Repeated& r) { return r.slot == slot; });
    if (!known) repeated_.push_back({slot, sizes_[slot]});
  }

  void FindLastReads() {
    last_read_.fill(-1);
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (int slot : ops_[i].operands) {
        if (slot >= 0) last_read_[slot] = static_cast<int>(i);
      }
    }
    for (const Output& o : outputs_) last_read_[o.slot] = static_cast<int>(ops_.size());
    for (const FusedReduction& sum : sums_.sums()) last_read_[sum.slot] = static_cast<int>(ops_.size());
  }

  // Assigns scratch rows to results. A result reuses a free row, or that of an operand whose last user is its
  // instruction if the element sizes are equal.
  void AssignScratch(size_t slots) {
    std::vector<int> free;
    int used = 0;
    for (const Repeated& r : repeated_) scratch_[r.slot] = used++;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const auto release = [&](bool same_size) {
        for (int slot = inputs_; slot < static_cast<int>(slots); ++slot) {
          const bool dies = last_read_[slot] == static_cast<int>(i) && slot != ops_[i].to;
          if (dies && (sizes_[slot] == sizes_[ops_[i].to]) == same_size) free.push_back(scratch_[slot]);
        }
      };
      release(true);
      if (free.empty()) free.push_back(used++);
      scratch_[ops_[i].to] = free.back();
      free.pop_back();
      release(false);
    }
  }

  // Returns true if the output does not share memory with an input that is read later.
  bool MayWriteDirectly(const Args& args, size_t o) const {
    if (outputs_[o].op < 0) return false;
    for (int i = 0; i < inputs_; ++i) {
      if (args.inputs[i] == args.outputs[o] && last_read_[i] > outputs_[o].op) return false;
    }
    return true;
  }

  std::array<bool, kMaxInstructions> FindDirect(const Args& args) const {
    std::array<bool, kMaxInstructions> direct{};
    for (size_t o = 0; o < outputs_.size(); ++o) direct[o] = MayWriteDirectly(args, o);
    return direct;
  }

  // Computes the elements [begin, end), which are in part `part` of the reductions.
  void RunRange(const Args& args, const std::array<bool, kMaxInstructions>& direct, int64_t begin, int64_t end,
                int64_t part) const {
    alignas(64) char scratch[kMaxInstructions + kMaxFusedInputs][kTile * sizeof(float)];
    const int64_t tile = kTile / row_ * row_;
    ForRows(loop_, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t t = 0; t < count; t += tile) {
        const int64_t n = std::min(tile, count - t);
        const auto place = RunTile(args, direct, at, t, n, scratch);
        for (size_t i = 0; i < sums_.sums().size(); ++i) {
          const auto* x = reinterpret_cast<const float*>(place[sums_.sums()[i].slot]);
          sums_.Add(i, part, at[0] + t, x, n, static_cast<double*>(args.workspace));
        }
      }
    });
  }

  // Computes a tile and returns the memory of each slot.
  std::array<char*, kSlots> RunTile(const Args& args, const std::array<bool, kMaxInstructions>& direct,
                                    const OperandOffsets& at, int64_t t, int64_t n,
                                    char (*scratch)[kTile * sizeof(float)]) const {
    std::array<char*, kSlots> place;
    for (int i = 0; i < inputs_; ++i) {
      place[i] = static_cast<char*>(args.inputs[i]) + (at[1 + i] + steps_[i] * t) * sizes_[i];
    }
    for (const Repeated& r : repeated_) {
      Replicate(place[r.slot], n, r.size, scratch[scratch_[r.slot]]);
      place[r.slot] = scratch[scratch_[r.slot]];
    }
    for (const Op& op : ops_) place[op.to] = scratch[scratch_[op.to]];
    const auto output = [&](size_t o) { return args.out<char>(o) + (at[0] + t) * outputs_[o].size; };
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (direct[o]) place[outputs_[o].slot] = output(o);
    }
    for (const Op& op : ops_) RunOp(op, place, n);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const char* result = place[outputs_[o].slot];
      if (!direct[o] && result != output(o)) std::memcpy(output(o), result, n * outputs_[o].size);
    }
    return place;
  }

  static void RunOp(const Op& op, const std::array<char*, kSlots>& place, int64_t n) {
    const auto floats = [&](int k) {
      return op.operands[k] < 0 ? nullptr : reinterpret_cast<const float*>(place[op.operands[k]]);
    };
    const auto number = [&](int k) { return op.operands[k] < 0 ? 1.0f : *floats(k); };
    const void* a = place[op.operands[0]];
    char* y = place[op.to];
    if (op.unary != nullptr) {
      op.unary(a, y, n, op.params.data());
    } else if (op.binary != nullptr) {
      op.binary(a, place[op.operands[1]], y, n);
    } else if (op.select != nullptr) {
      op.select(a, place[op.operands[1]], place[op.operands[2]], y, n);
    } else if (op.blend != nullptr) {
      op.blend(floats(0), op.params[0] * number(3), floats(1), floats(2), op.params[1] * number(4),
               reinterpret_cast<float*>(y), n);
    } else {
      op.root(floats(0), number(3), number(4), reinterpret_cast<float*>(y), n);
    }
  }

  static void Replicate(const char* value, int64_t n, size_t size, char* to) {
    switch (size) {
      case 1:
        std::memset(to, *value, n);
        break;
      case 2:
        std::fill_n(reinterpret_cast<uint16_t*>(to), n, *reinterpret_cast<const uint16_t*>(value));
        break;
      default:
        std::fill_n(reinterpret_cast<float*>(to), n, *reinterpret_cast<const float*>(value));
    }
  }

  Loop loop_;
  int64_t row_ = 1;  // threads and tiles take whole rows of this size
  int inputs_ = 0;
  int64_t cost_ = 0;
  std::vector<Op> ops_;
  std::vector<Repeated> repeated_;
  std::vector<Output> outputs_;
  FusedReductions sums_;
  std::array<int64_t, kMaxFusedInputs> steps_{};
  std::array<size_t, kSlots> sizes_{};
  std::array<int, kSlots> last_read_{};  // the last op that reads a slot; for outputs, the number of ops
  std::array<int, kSlots> scratch_{};
};

// Prepares a fused chain. If a flag selects between new and old values (an update is skipped if a gradient is not
// finite), prepares one chain per value of the flag.
absl::StatusOr<Kernel> PrepareFused(const KernelContext& c) {
  const auto inputs = static_cast<int>(c.node.inputs.size());
  ASSIGN_OR_RETURN(const FusedProgram program, FromAttrs(c.attrs(), inputs));
  Types types;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) types.push_back(c.in(i));
  ASSIGN_OR_RETURN(Chain chain, Chain::Make(types, program));
  const int flag = FindConditionInput(program, inputs, [&](int i) { return c.in(i).elements() == 1; });
  const size_t workspace = chain.workspace();
  if (flag < 0 || !program.sums.empty()) {
    return Kernel{.run = [chain = std::move(chain)](const Args& args) { chain.Run(args); }, .workspace = workspace};
  }
  ASSIGN_OR_RETURN(Chain yes, Chain::Make(types, SpecializeCondition(program, inputs, flag, true)));
  ASSIGN_OR_RETURN(Chain no, Chain::Make(types, SpecializeCondition(program, inputs, flag, false)));
  const bool decides = !yes.RepeatsAResult() && !no.RepeatsAResult();
  return Kernel{.run = [=, chain = std::move(chain), yes = std::move(yes), no = std::move(no)](const Args& args) {
    const Chain& decided = *args.in<uint8_t>(flag) != 0 ? yes : no;
    (decides && !decided.Destroys(args) ? decided : chain).Run(args);
  }};
}

// Runs a chain over pieces of some blocks: decodes inputs to buffers in the first-level caches, and encodes results.
class CodedChain {
 public:
  static absl::StatusOr<CodedChain> Make(const KernelContext& c) {
    CodedChain coded;
    std::vector<const Type*> inputs;
    for (size_t i = 0; i < c.node.inputs.size(); ++i) inputs.push_back(&c.in(i));
    Types types = GetDecodedInputs(c.attrs(), inputs);
    ASSIGN_OR_RETURN(const FusedProgram program, FromAttrs(c.attrs(), types.size()));
    coded.elements_ = c.out().elements();
    coded.AddOperands(c.attrs().Ints("loads"), &coded.loads_);
    coded.AddOperands(c.attrs().Ints("stores"), &coded.stores_);
    size_t at = 0;
    for (Operand& load : coded.loads_) {
      const Type& type = c.in(at);
      load.step = type.elements() == 1 && coded.elements_ != 1 ? 0 : static_cast<int64_t>(DTypeSize(type.dtype));
      at += load.coder ? 2 : 1;
    }
    at = 0;
    for (Operand& store : coded.stores_) {
      store.step = static_cast<int64_t>(DTypeSize(c.out(at).dtype));
      at += store.coder ? 2 : 1;
    }
    const auto make = [&](int64_t n) {
      for (Type& type : types) type.shape = type.elements() == 1 ? Shape{} : Shape{n};
      return Chain::Make(types, program);
    };
    ASSIGN_OR_RETURN(Chain whole, make(std::min(kPiece, coded.elements_)));
    coded.chains_.push_back(std::move(whole));
    if (const int64_t rest = coded.elements_ % kPiece; coded.elements_ > kPiece && rest != 0) {
      ASSIGN_OR_RETURN(Chain last, make(rest));
      coded.chains_.push_back(std::move(last));
    }
    return coded;
  }

  void Run(const Args& args) const {
    const int64_t pieces = (elements_ + kPiece - 1) / kPiece, cost = chains_[0].cost() + kCodeCost * buffers_;
    Parallel(pieces, kPiece * cost, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) RunPiece(args, piece * kPiece);
    });
  }

  bool fits() const { return buffers_ <= kMaxBuffers; }

 private:
  static constexpr int64_t kPiece = 8 * kDynamicBlock, kCodeCost = 8;
  static constexpr int kMaxBuffers = 6;

  struct Operand {
    std::optional<DynamicCoder> coder;  // unset: floats
    int64_t step = 0;                   // bytes from an element to the next one; 0: one number
  };

  void AddOperands(const std::vector<int64_t>& kinds, std::vector<Operand>* operands) {
    for (const int64_t kind : kinds) {
      Operand& operand = operands->emplace_back();
      if (kind == static_cast<int64_t>(CodeKind::kNone)) continue;
      operand.coder.emplace(kind == static_cast<int64_t>(CodeKind::kSigned));
      ++buffers_;
    }
  }

  void RunPiece(const Args& args, int64_t first) const {
    alignas(64) float buffers[kMaxBuffers][kPiece];
    void* inputs[kMaxFusedInputs];
    void* outputs[kMaxInstructions];
    const int64_t n = std::min(kPiece, elements_ - first), block = first / kDynamicBlock;
    size_t buffer = 0, at = 0;
    for (size_t i = 0; i < loads_.size(); ++i) {
      const auto& [coder, step] = loads_[i];
      inputs[i] = coder ? static_cast<void*>(buffers[buffer++]) : static_cast<char*>(args.inputs[at]) + first * step;
      if (coder)
        coder->Decode(args.in<uint8_t>(at) + first, args.in(at + 1) + block, n, static_cast<float*>(inputs[i]));
      at += coder ? 2 : 1;
    }
    at = 0;
    for (size_t o = 0; o < stores_.size(); ++o) {
      const auto& [coder, step] = stores_[o];
      outputs[o] = coder ? static_cast<void*>(buffers[buffer++]) : static_cast<char*>(args.outputs[at]) + first * step;
      at += coder ? 2 : 1;
    }
    (first == 0 || n == kPiece ? chains_.front() : chains_.back()).RunInThread({.inputs = inputs, .outputs = outputs});
    at = 0;
    for (size_t o = 0; o < stores_.size(); ++o) {
      const auto& coder = stores_[o].coder;
      if (coder)
        coder->Encode(static_cast<float*>(outputs[o]), n, args.out<uint8_t>(at) + first, args.out(at + 1) + block);
      at += coder ? 2 : 1;
    }
  }

  int64_t elements_ = 0;
  int buffers_ = 0;
  std::vector<Operand> loads_, stores_;  // of the inputs and of the results of the program
  std::vector<Chain> chains_;            // of a whole piece, and of a shorter last one
};

absl::StatusOr<Kernel> PrepareFusedCodes(const KernelContext& c) {
  ASSIGN_OR_RETURN(CodedChain chain, CodedChain::Make(c));
  if (!chain.fits()) return Invalid("too many operands in codes");
  return Kernel{.run = [chain = std::move(chain)](const Args& args) { chain.Run(args); }};
}

}  // namespace

std::span<const KernelRow> FusedKernels() {
  static constexpr KernelRow kRows[] = {
      {"cpu.Fused", PrepareFused, kFloat | kBools | Only(DType::kBFloat16) | Only(DType::kFloat16)},
      {"cpu.FusedCodes", PrepareFusedCodes, kAnyType}};
  return kRows;
}

}  // namespace onnxtrain::cpu
