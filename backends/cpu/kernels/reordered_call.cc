#include "backends/cpu/kernels/reordered_call.h"

#include <algorithm>

namespace onnxtrain::cpu {
namespace {

DnnlCall MakeCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                  const std::vector<ReorderedCall::Operand>& operands) {
  std::vector<std::pair<int, dnnl::memory::desc>> arguments;
  for (const auto& o : operands) arguments.emplace_back(o.arg, o.wanted);
  arguments.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
  return {primitive, arguments};
}

}  // namespace

ReorderedCall::ReorderedCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                             const std::vector<Operand>& operands)
    : call_(MakeCall(primitive, scratchpad, operands)) {
  for (const Operand& o : operands) {
    const bool output = &o == &operands.back();
    Side side{.offset = workspace_};
    if (o.plain != o.wanted) {
      Reorder reorder = MakeReorder(output ? o.wanted : o.plain, output ? o.plain : o.wanted);
      side.scratch = Aligned64(reorder.scratch);
      side.reorder.emplace(std::move(reorder.call));
      workspace_ += Aligned64(o.wanted.get_size());
    }
    sides_.push_back(std::move(side));
  }
  scratch_ = workspace_;
  workspace_ += Aligned64(scratchpad.get_size());
  for (const Side& side : sides_) workspace_ = std::max(workspace_, scratch_ + side.scratch);
}

void ReorderedCall::Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const {
  auto* base = static_cast<char*>(workspace);
  const auto inside = [&](size_t i, const void* outside) -> const void* {
    return sides_[i].reorder ? base + sides_[i].offset : outside;
  };
  const size_t last = sides_.size() - 1;
  const auto enter = [&](size_t i, const void* p) {
    if (sides_[i].reorder) sides_[i].reorder->Run({p, base + sides_[i].offset, base + scratch_});
  };
  enter(0, a);
  enter(1, b);
  const void* y = inside(last, out);
  if (bias != nullptr) {
    call_.Run({inside(0, a), inside(1, b), bias, y, base + scratch_});
  } else {
    call_.Run({inside(0, a), inside(1, b), y, base + scratch_});
  }
  if (sides_[last].reorder) sides_[last].reorder->Run({y, out, base + scratch_});
}

}  // namespace onnxtrain::cpu
