#include "backends/cpu/kernels/peephole.h"

#include <algorithm>
#include <numeric>

namespace onnxtrain::cpu {
namespace {

using Kind = PeepholeStep::Kind;

class PeepholeOptimizer {
 public:
  PeepholeOptimizer(const FusedProgram& program, int inputs, const std::function<bool(int)>& is_scalar)
      : program_(program),
        inputs_(inputs),
        is_scalar_(is_scalar),
        uses_(inputs + program.code.size(), 0),
        fused_(program.code.size(), false) {
    for (const Instruction& in : program.code) {
      for (int slot : in.operands) {
        if (slot >= 0) ++uses_[slot];
      }
    }
    for (int slot : program.results) ++uses_[slot];
    for (const FusedReduction& sum : program.sums) ++uses_[sum.slot];
  }

  // Visits instructions in reverse order, so that the longest form matches first.
  std::vector<PeepholeStep> Run() {
    std::vector<PeepholeStep> steps;
    for (int i = static_cast<int>(program_.code.size()) - 1; i >= 0; --i) {
      if (!fused_[i]) steps.push_back(MakeStep(i));
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

 private:
  // A term s·value, s·(value·other) or s·(value/other) of a sum, where s is the slot `factor`.
  struct Term {
    Kind kind = Kind::kSum;
    int value = -1, other = -1, factor = -1;
    std::vector<int> absorbed;
  };

  PeepholeStep MakeStep(int i) {
    PeepholeStep step{.instruction = program_.code[i], .to = inputs_ + i};
    const Instruction& in = step.instruction;
    if (in.entry == "Add" || in.entry == "Sub") {
      const bool scalar = is_scalar_(in.operands[0]) || is_scalar_(in.operands[1]);
      scalar ? MatchScaledRoot(&step) : MatchScaledSum(&step);
    }
    return step;
  }

  // Returns the instruction `entry` that computes a slot with one use, or null.
  const Instruction* FindSingleUse(int slot, std::string_view entry) const {
    const bool inside = slot >= inputs_ && uses_[slot] == 1 && program_.code[slot - inputs_].entry == entry;
    return inside ? &program_.code[slot - inputs_] : nullptr;
  }

  void MatchScaledSum(PeepholeStep* step) {
    const auto [left, right, third] = step->instruction.operands;
    Term a = Scaled(left), b = WithProduct(Scaled(right));
    float sign_a = 1, sign_b = step->instruction.entry == "Sub" ? -1.0f : 1.0f;
    if (b.kind == Kind::kSum) {
      a = WithProduct(std::move(a));
      if (a.kind != Kind::kSum) std::swap(a, b), std::swap(sign_a, sign_b);
    }
    if (a.absorbed.empty() && b.absorbed.empty()) return;
    for (const Term& term : {a, b}) {
      for (int gone : term.absorbed) fused_[gone] = true;
    }
    *step = {.kind = b.kind,
             .a = a.value,
             .b = b.value,
             .c = b.other,
             .s = a.factor,
             .t = b.factor,
             .sign_a = sign_a,
             .sign_b = sign_b,
             .to = step->to};
  }

  Term Scaled(int slot) const {
    const Instruction* in = FindSingleUse(slot, "Mul");
    if (in == nullptr || is_scalar_(in->operands[0]) == is_scalar_(in->operands[1])) return {.value = slot};
    const int side = is_scalar_(in->operands[0]) ? 1 : 0;
    return {.value = in->operands[side], .factor = in->operands[1 - side], .absorbed = {slot - inputs_}};
  }

  Term WithProduct(Term term) const {
    for (const auto& [entry, kind] : {std::pair("Mul", Kind::kProduct), std::pair("Div", Kind::kQuotient)}) {
      const Instruction* in = FindSingleUse(term.value, entry);
      if (in == nullptr || is_scalar_(in->operands[0]) || is_scalar_(in->operands[1])) continue;
      term.absorbed.push_back(term.value - inputs_);
      term.kind = kind;
      term.other = in->operands[1];
      term.value = in->operands[0];
      return term;
    }
    return term;
  }

  // Matches √x·s + t or √x/s + t, with the scalar t as the right operand.
  void MatchScaledRoot(PeepholeStep* step) {
    const auto [sum, t, third] = step->instruction.operands;
    if (step->instruction.entry != "Add" || !is_scalar_(t) || is_scalar_(sum)) return;
    for (const auto& [entry, kind] : {std::pair("Mul", Kind::kRoot), std::pair("Div", Kind::kRootQuotient)}) {
      const Instruction* scaled = FindSingleUse(sum, entry);
      if (scaled == nullptr || !is_scalar_(scaled->operands[1])) continue;
      const Instruction* root = FindSingleUse(scaled->operands[0], "Sqrt");
      if (root == nullptr || is_scalar_(root->operands[0])) continue;
      fused_[sum - inputs_] = fused_[scaled->operands[0] - inputs_] = true;
      *step = {.kind = kind, .a = root->operands[0], .s = scaled->operands[1], .t = t, .to = step->to};
      return;
    }
  }

  const FusedProgram& program_;
  const int inputs_;
  const std::function<bool(int)>& is_scalar_;
  std::vector<int> uses_;    // by slot
  std::vector<bool> fused_;  // by instruction: true if part of a later step
};

// Removes instructions without users.
FusedProgram EliminateDeadInstructions(const FusedProgram& program, int inputs) {
  const auto n = static_cast<int>(program.code.size());
  std::vector<bool> needed(inputs + n, false);
  for (int slot : program.results) needed[slot] = true;
  for (int i = n - 1; i >= 0; --i) {
    for (int slot : program.code[i].operands) {
      if (needed[inputs + i] && slot >= 0) needed[slot] = true;
    }
  }
  std::vector<int> now(inputs + n, -1);
  std::iota(now.begin(), now.begin() + inputs, 0);
  FusedProgram result;
  for (int i = 0; i < n; ++i) {
    if (!needed[inputs + i]) continue;
    Instruction in = program.code[i];
    for (int& slot : in.operands) slot = slot < 0 ? slot : now[slot];
    now[inputs + i] = inputs + static_cast<int>(result.code.size());
    result.code.push_back(std::move(in));
  }
  for (int slot : program.results) result.results.push_back(now[slot]);
  return result;
}

}  // namespace

std::vector<PeepholeStep> RunPeephole(const FusedProgram& program, int inputs,
                                      const std::function<bool(int)>& is_scalar) {
  return PeepholeOptimizer(program, inputs, is_scalar).Run();
}

FusedProgram SpecializeCondition(const FusedProgram& program, int inputs, int condition, bool value) {
  FusedProgram decided = program;
  std::vector<int> now(inputs + program.code.size());
  std::iota(now.begin(), now.end(), 0);
  for (size_t i = 0; i < decided.code.size(); ++i) {
    Instruction& in = decided.code[i];
    for (int& slot : in.operands) slot = slot < 0 ? slot : now[slot];
    if (in.entry == "Where" && in.operands[0] == condition) now[inputs + i] = in.operands[value ? 1 : 2];
  }
  for (int& slot : decided.results) slot = now[slot];
  return EliminateDeadInstructions(decided, inputs);
}

int FindConditionInput(const FusedProgram& program, int inputs, const std::function<bool(int)>& is_one) {
  for (const Instruction& in : program.code) {
    if (in.entry == "Where" && in.operands[0] < inputs && is_one(in.operands[0])) return in.operands[0];
  }
  return -1;
}

}  // namespace onnxtrain::cpu
