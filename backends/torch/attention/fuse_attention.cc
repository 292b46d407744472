#include "backends/torch/attention/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "backends/torch/attention/attention_op.h"
#include "frontend/base/log.h"
#include "frontend/base/strings.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

using Vals = std::vector<Val>;

// Scores differ by far less than this from each other, so that such a key has the probability 0 exactly.
constexpr double kHidden = -1e4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t Rows(const Type& type) { return type.shape[type.shape.size() - 2]; }

bool IsGradient(const Node& node) { return node.op == "AttentionGrad"; }

ValueId Input(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; }

// Does the mask [1…,S,S] hide exactly the keys after each query?
bool IsCausal(const HostTensor& mask, int64_t rows) {
  const Shape& shape = mask.shape();
  if (shape.size() < 2 || shape.back() != rows || mask.size() != rows * rows) return false;
  for (int64_t i = 0; i < mask.size(); ++i) {
    const double value = mask.At(i);
    const bool later = i % rows > i / rows;
    if (later ? !(value <= kHidden) : value != 0) return false;
  }
  return true;
}

// Is there a row of −∞?
bool HidesAll(const HostTensor& mask) {
  const int64_t row = mask.shape().empty() ? 1 : std::max<int64_t>(1, mask.shape().back());
  int64_t hidden = 0;
  for (int64_t i = 0; i < mask.size(); ++i) {
    hidden = i % row == 0 ? 0 : hidden;
    hidden += mask.At(i) == -kInfinity ? 1 : 0;
    if (hidden == row) return true;
  }
  return false;
}

using ForwardKey = std::tuple<std::vector<ValueId>, bool, double>;  // operands, causal, scale

class AttentionFuser {
 public:
  AttentionFuser(Rewriter& r, const Node& node, const ChooseAttention& choose)
      : r_(r), node_(node), choose_(choose), first_(IsGradient(node) ? 1 : 0), mask_(Input(node, first_ + 3)) {
    for (size_t i = 0; i < 3; ++i) operands_.push_back(r.Map(node.inputs[first_ + i]));
  }

  // Sets the attributes of the fused nodes; false where no kernel was chosen.
  bool Choose() {
    const Graph& graph = r_.from();
    AttentionProblem problem{.q = operands_[0].type(), .k = operands_[1].type(), .v = operands_[2].type()};
    problem.scale = node_.attrs.Float("scale");
    const HostTensor* constant = mask_ == kNoValue ? nullptr : graph.FindConstant(mask_);
    problem.causal = constant != nullptr && Rows(problem.q) == Rows(problem.k) && IsCausal(*constant, Rows(problem.q));
    if (mask_ != kNoValue && !problem.causal) {
      problem.mask = graph.type(mask_);
      problem.may_hide_all = constant == nullptr || HidesAll(*constant);
      operands_.push_back(r_.Map(mask_));
    }
    const std::optional<AttentionChoice> choice = choose_(problem);
    if (!choice.has_value()) return false;
    attrs_ = {{"scale", problem.scale},
              {"kernel", choice->kernel},
              {"causal", int64_t{problem.causal}},
              {"may_hide_all", int64_t{problem.may_hide_all}},
              {"lse_shape", choice->lse_shape}};
    return true;
  }

  // Identifies the forward node.
  ForwardKey Key() const {
    std::vector<ValueId> ids;
    for (const Val& v : operands_) ids.push_back(v.id());
    return {std::move(ids), attrs_.Int("causal") != 0, attrs_.Float("scale")};
  }
  Vals EmitForward() { return r_.b().Ops(kAttention, operands_, attrs_); }
  Vals EmitGradient(const Vals& forward) {
    Vals in = {r_.Map(node_.inputs[0]), operands_[0], operands_[1], operands_[2], forward[0], forward[1]};
    if (operands_.size() > 3) in.push_back(operands_[3]);
    return r_.b().Ops(kAttentionGrad, in, attrs_);
  }

 private:
  Rewriter& r_;
  const Node& node_;
  const ChooseAttention& choose_;
  const size_t first_;  // of the inputs q, k, v
  const ValueId mask_;
  Vals operands_;  // q, k, v and the mask, where it stays
  Attrs attrs_;
};

}  // namespace

std::string AttentionProblem::Key() const {
  return StrCat(ToString(q), " ", ToString(k), " ", ToString(v), " ", mask ? ToString(*mask) : "-", " ", causal, " ",
                may_hide_all, " ", scale);
}

void WarnOfWrongKernel(std::string_view kernel, const AttentionProblem& problem) {
  LOG(WARNING) << "libtorch's attention kernel '" << kernel << "' is wrong and not used for " << problem.Key();
}

bool IsFusableAttention(const Graph& graph, const Node& node) {
  if (node.op != "Attention" && !IsGradient(node)) return false;
  if (node.attrs.Float("ratio") != 0 || node.attrs.Float("softcap") != 0) return false;
  const auto is_empty = [&](ValueId v) { return v != kNoValue && graph.type(v).elements() == 0; };
  return graph.type(node.inputs[0]).rank() <= 4 && std::ranges::none_of(node.inputs, is_empty);
}

absl::StatusOr<Graph> FuseAttention(const Graph& graph, const ChooseAttention& choose) {
  RegisterAttentionOps();
  std::map<ForwardKey, Vals> forwards;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!IsFusableAttention(graph, node)) return std::nullopt;
    AttentionFuser fuser(r, node, choose);
    if (!fuser.Choose()) return std::nullopt;
    Vals& forward = forwards[fuser.Key()];
    if (forward.empty()) forward = fuser.EmitForward();
    return IsGradient(node) ? fuser.EmitGradient(forward) : Vals{forward[0]};
  });
}

}  // namespace onnxtrain::aten
