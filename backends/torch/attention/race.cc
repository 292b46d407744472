#include "backends/torch/attention/race.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>

#include "backends/torch/cuda.h"
#include "backends/torch/device_scope.h"
#include "backends/torch/guard.h"
#include "backends/torch/tensor.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

constexpr int kWarmUps = 2, kTimedRuns = 5;

// Numbers between −1 and 1 as if drawn at random. Sums of regular ones, such as waves, cancel: their rounding errors
// are large beside them.
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

// [1,1,·,·] of the first sample and head.
at::Tensor First(const at::Tensor& x) { return x.defined() ? x.narrow(0, 0, 1).narrow(1, 0, 1) : x; }

// y, dq, dk and dv of one head, in float32 or float64.
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

// The distance that rounding explains, relative to the norm: products of floats may be rounded to TF32.
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
    // Unsupported operands throw.
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
