#include "backends/torch/attention/fuse_attention.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>
#include "backends/torch/attention/attention_op.h"
#include "backends/torch/cuda.h"
#include "backends/torch/guard.h"
#include "backends/torch/tensor.h"
#include "frontend/base/log.h"
#include "frontend/base/strings.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

using Vals = std::vector<Val>;

// Upper bound of the mask values that hide a key: scores differ by far less, so that its probability is exactly 0.
constexpr double kHidden = -1e4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t Rows(const Type& type) { return type.shape[type.shape.size() - 2]; }

bool IsGradient(const Node& node) { return node.op == "AttentionGrad"; }

ValueId Input(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; }

// Returns true if the mask [1…,S,S] hides exactly the keys after each query.
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

// Returns true if all values of some row of the mask are −∞.
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

// Operands, their permutations, causal, scale, kernel and lse_shape: equal keys share one forward node.
using ForwardKey = std::tuple<std::vector<ValueId>, std::vector<Perm>, bool, double, std::string, Shape>;

struct Forward {
  Val y, lse;
  Perm perm;  // transposes y of the canonical operator to this y
};

// Returns true if the innermost axis stays innermost, because kernels need contiguous rows.
bool KeepsLastAxis(const Perm& perm) { return perm.back() == std::ssize(perm) - 1; }

class AttentionFuser {
 public:
  AttentionFuser(Rewriter& r, const Pattern& pattern, const Node& node)
      : r_(r), pattern_(pattern), node_(node), first_(IsGradient(node) ? 1 : 0), mask_(Input(node, first_ + 3)) {
    for (size_t i = 0; i < 3; ++i) operands_.push_back(Untransposed(node.inputs[first_ + i], &perms_));
  }

  // Sets the attributes of the fused nodes. Returns false if no kernel was chosen.
  bool Choose(const ChooseAttention& choose) {
    const Graph& graph = r_.from();
    const auto type = [&](size_t i) { return graph.type(node_.inputs[first_ + i]); };
    AttentionProblem problem{.q = type(0), .k = type(1), .v = type(2)};
    problem.scale = node_.attrs.Float("scale");
    const HostTensor* constant = mask_ == kNoValue ? nullptr : graph.FindConstant(mask_);
    problem.causal = constant != nullptr && Rows(problem.q) == Rows(problem.k) && IsCausal(*constant, Rows(problem.q));
    if (mask_ != kNoValue && !problem.causal) {
      problem.mask = graph.type(mask_);
      problem.may_hide_all = constant == nullptr || HidesAll(*constant);
      operands_.push_back(r_.Map(mask_));
    }
    const std::optional<AttentionChoice> choice = choose(problem);
    if (!choice.has_value()) return false;
    attrs_ = {{"scale", problem.scale},
              {"kernel", choice->kernel},
              {"causal", int64_t{problem.causal}},
              {"may_hide_all", int64_t{problem.may_hide_all}},
              {"lse_shape", choice->lse_shape}};
    return true;
  }

  // Returns the key of the forward node.
  ForwardKey Key() const {
    std::vector<ValueId> ids;
    for (const Val& v : operands_) ids.push_back(v.id());
    return {std::move(ids),          perms_, attrs_.Int("causal") != 0, attrs_.Float("scale"), attrs_.String("kernel"),
            attrs_.Ints("lse_shape")};
  }

  Forward EmitForward() {
    Perm perm = IsGradient(node_) ? IdentityPerm(rank()) : FindResultPerm(node_.outputs[0]);
    std::vector<Perm> perms = perms_;
    perms.push_back(perm);
    const Vals out = r_.b().Ops(kAttention, operands_, WithPerms(perms));
    return {out[0], out[1], std::move(perm)};
  }

  // Returns the output of the node, and maps transposes that are its only users.
  Vals TakeResult(const Forward& forward) { return {Result(node_.outputs[0], forward.y, forward.perm)}; }

  Vals EmitGradient(const Forward& forward) {
    std::vector<Perm> perms;
    const Val dy = Untransposed(node_.inputs[0], &perms);
    perms.insert(perms.end(), perms_.begin(), perms_.end());
    perms.push_back(InversePerm(forward.perm));
    for (ValueId v : node_.outputs) perms.push_back(FindResultPerm(v));
    Vals in = {dy, operands_[0], operands_[1], operands_[2], forward.y, forward.lse};
    if (operands_.size() > 3) in.push_back(operands_[3]);
    Vals out = r_.b().Ops(kAttentionGrad, in, WithPerms(perms));
    for (size_t i = 0; i < out.size(); ++i) out[i] = Result(node_.outputs[i], out[i], perms[5 + i]);
    return out;
  }

 private:
  int rank() const { return r_.from().type(node_.inputs[0]).rank(); }

  // Returns the value from which transposes make v, and appends their permutation. Returns v if it is not transposed.
  Val Untransposed(ValueId v, std::vector<Perm>* perms) {
    ValueId from = v;
    const Perm perm = SkipTransposes(pattern_, &from);
    const bool folds = KeepsLastAxis(perm);
    perms->push_back(folds ? perm : IdentityPerm(static_cast<int>(perm.size())));
    return r_.Map(folds ? from : v);
  }

  Perm FindResultPerm(ValueId v) {
    const auto perm = FindUserPerm(pattern_, v);
    return perm.has_value() && KeepsLastAxis(*perm) ? *perm : IdentityPerm(rank());
  }

  // Replaces `old` by `now`, which is `old` permuted by `perm`. If all users of `old` are transposes by `perm`, maps
  // their outputs to `now` and returns nothing; else returns the replacement of `old`.
  Val Result(ValueId old, Val now, const Perm& perm) {
    if (perm == IdentityPerm(rank())) return now;
    if (FindResultPerm(old) != perm) return Transpose(now, InversePerm(perm));
    for (int32_t n : pattern_.users(old)) r_.Set(r_.from().nodes()[n].outputs[0], now);
    return {};
  }

  Attrs WithPerms(const std::vector<Perm>& perms) const {
    Perm all;
    for (const Perm& perm : perms) all.insert(all.end(), perm.begin(), perm.end());
    Attrs attrs = attrs_;
    attrs.Set("perms", all);
    return attrs;
  }

  Rewriter& r_;
  const Pattern& pattern_;
  const Node& node_;
  const size_t first_;  // index of input q; k and v follow
  const ValueId mask_;
  Vals operands_;            // q, k, v and the mask, unless `causal` replaces it
  std::vector<Perm> perms_;  // of q, k, v
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

void WarnOfPlainAttention(std::string_view errors, const AttentionProblem& problem) {
  LOG(WARNING) << "none of libtorch's attention kernels takes " << problem.Key() << ": it is computed by products and "
               << "a softmax" << (errors.empty() ? "" : "; ") << errors;
}

bool IsFusableAttention(const Graph& graph, const Node& node) {
  if (node.op != "Attention" && !IsGradient(node)) return false;
  if (node.attrs.Float("ratio") != 0 || node.attrs.Float("softcap") != 0) return false;
  const auto is_empty = [&](ValueId v) { return v != kNoValue && graph.type(v).elements() == 0; };
  return graph.type(node.inputs[0]).rank() <= 4 && std::ranges::none_of(node.inputs, is_empty);
}

absl::StatusOr<Graph> FuseAttention(const Graph& graph, const ChooseAttention& choose) {
  RegisterAttentionOps();
  const Pattern pattern(graph);
  std::map<ForwardKey, Forward> forwards;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!IsFusableAttention(graph, node)) return std::nullopt;
    AttentionFuser fuser(r, pattern, node);
    if (!fuser.Choose(choose)) return std::nullopt;
    Forward& forward = forwards[fuser.Key()];
    if (!forward.y) forward = fuser.EmitForward();
    return IsGradient(node) ? fuser.EmitGradient(forward) : fuser.TakeResult(forward);
  });
}

namespace {

constexpr int kWarmUps = 2, kTimedRuns = 5;

// Returns pseudo-random numbers between −1 and 1. Sums of regular numbers, such as waves, would cancel, and their
// rounding errors would be relatively large.
at::Tensor MakeNoise(const Type& type, double seed, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const at::Tensor wave = at::arange(1, type.elements() + 1, options).mul_(seed).sin_();
  return wave.mul_(43758.5453).frac_().to(ToScalarType(type.dtype)).view(type.shape);
}

struct Trial {
  at::Tensor dy;
  AttentionOperands x;
};

Trial MakeTrial(const AttentionProblem& p, at::Device device) {
  Shape y = p.q.shape;
  y.back() = p.v.shape.back();
  const at::Tensor q = MakeNoise(p.q, 0.37, device), k = MakeNoise(p.k, 0.73, device);
  Trial t{AsHeads(MakeNoise({p.q.dtype, y}, 1.19, device)),
          {AsHeads(q), AsHeads(k), AsHeads(MakeNoise(p.v, 0.91, device)), {}, p.scale, p.causal}};
  if (p.mask.has_value()) t.x.mask = AsHeadMask(MakeNoise(*p.mask, 0.53, device), p.q.rank(), t.x.q, t.x.k);
  return t;
}

// Returns the first head of the first sample, [1,1,·,·].
at::Tensor First(const at::Tensor& x) { return x.defined() ? x.narrow(0, 0, 1).narrow(1, 0, 1) : x; }

// Computes y, dq, dk and dv of the first head from matrix products and softmax, in float32 or float64.
std::array<at::Tensor, 4> ComputePlainly(const Trial& t) {
  const auto wide = [&](const at::Tensor& x) {
    return First(x).to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  };
  const at::Tensor q = wide(t.x.q), k = wide(t.x.k), v = wide(t.x.v), dy = wide(t.dy);
  at::Tensor scores = q.matmul(k.transpose(-1, -2)).mul_(t.x.scale);
  if (t.x.mask.defined()) scores.add_(wide(t.x.mask));
  if (t.x.causal) scores.add_(at::zeros_like(scores).fill_(-std::numeric_limits<float>::infinity()).triu_(1));
  const at::Tensor p = scores.softmax(-1), dp = dy.matmul(v.transpose(-1, -2));
  const at::Tensor ds = p * (dp - (p * dp).sum(-1, /*keepdim=*/true));
  return {p.matmul(v), ds.matmul(k).mul_(t.x.scale), ds.transpose(-1, -2).matmul(q).mul_(t.x.scale),
          p.transpose(-1, -2).matmul(dy)};
}

struct Pass {
  AttentionSaved saved;
  AttentionGradients gradients;
};

Pass RunOnce(const AttentionEntry& entry, const Trial& t) {
  Pass pass{entry.forward(t.x), {}};
  pass.gradients = entry.backward(t.dy, t.x, pass.saved);
  return pass;
}

// Returns the maximum error, relative to the norm, that rounding explains. float32 matrix products may round to TF32.
double Tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-9 : type == at::kFloat ? 5e-3 : 3e-2; }

bool IsRight(const Pass& pass, const Trial& t) {
  const auto want = ComputePlainly(t);
  const auto& [dq, dk, dv] = pass.gradients;
  const std::array<at::Tensor, 4> got = {pass.saved.y, dq, dk, dv};
  for (size_t i = 0; i < got.size(); ++i) {
    const at::Tensor difference = First(got[i]).to(want[i].scalar_type()) - want[i];
    const double error = difference.norm().item<double>(), norm = want[i].norm().item<double>();
    if (!(error <= Tolerance(t.x.q.scalar_type()) * norm + 1e-6)) return false;
  }
  return true;
}

double TimeRuns(const AttentionEntry& entry, const Trial& t, at::Device device) {
  for (int i = 0; i < kWarmUps; ++i) RunOnce(entry, t);
  SynchronizeDevice(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimedRuns; ++i) RunOnce(entry, t);
  SynchronizeDevice(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::optional<AttentionChoice> RaceAttention(const AttentionProblem& problem, c10::Device device,
                                             std::span<const AttentionEntry> entries) {
  std::vector<const AttentionEntry*> candidates;
  for (const AttentionEntry& entry : entries) {
    if (entry.device == device.type() && (entry.takes_mask || !problem.mask.has_value())) candidates.push_back(&entry);
  }
  if (candidates.empty()) return std::nullopt;
  const DeviceScope scope(device);
  const Trial trial = MakeTrial(problem, device);
  std::optional<AttentionChoice> best;
  std::string errors;
  double fastest = std::numeric_limits<double>::infinity();
  for (const AttentionEntry* entry : candidates) {
    if (!SupportsAttention(entry->name, trial.x)) {
      StrAppend(&errors, errors.empty() ? "" : "; ", entry->name, ": does not take them");
      continue;
    }
    // Kernels throw if they do not support the operands.
    const absl::Status ran = CatchTorchErrors(StrCat(entry->name, ": "), [&] {
      const Pass pass = RunOnce(*entry, trial);
      if (!IsRight(pass, trial)) {
        WarnOfWrongKernel(entry->name, problem);
        return;
      }
      const double seconds = candidates.size() == 1 ? 0 : TimeRuns(*entry, trial, device);
      if (seconds >= fastest) return;
      fastest = seconds;
      best = {std::string(entry->name), pass.saved.lse.sizes().vec()};
    });
    if (!ran.ok()) StrAppend(&errors, errors.empty() ? "" : "; ", ran.message());
  }
  if (!best.has_value() && device.is_cuda()) WarnOfPlainAttention(errors, problem);
  return best;
}

ChooseAttention MakeAttentionChooser(c10::Device device) {
  return [device](const AttentionProblem& problem) -> std::optional<AttentionChoice> {
    if (device.is_cpu() && DTypeSize(problem.q.dtype) < 4) return std::nullopt;
    static std::mutex mutex;
    static auto* choices = new std::map<std::string, std::optional<AttentionChoice>>;
    const std::lock_guard lock(mutex);
    const std::string key = device.str() + " " + problem.Key();
    const auto it = choices->find(key);
    if (it != choices->end()) return it->second;
    return choices->emplace(key, RaceAttention(problem, device, AttentionEntries())).first->second;
  };
}

}  // namespace onnxtrain::aten
