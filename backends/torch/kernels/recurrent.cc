// Recurrent operators: loops over the time steps, of a few ATen calls each. States are not copied: each time step
// writes its part of the outputs, and the next one reads it there.
#include "backends/torch/kernel.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace onnxtrain::aten {
namespace {

using at::Tensor;

// The order of the time steps.
struct Steps {
  int64_t count;
  bool reverse;

  int64_t at(int64_t i) const { return reverse ? count - 1 - i : i; }
};

Steps MakeSteps(const Args& a, const Tensor& x) { return {x.size(0), a.attrs().Int("reverse") != 0}; }

// Returns the state after time step i − 1, or the initial state.
Tensor Before(const Steps& steps, int64_t i, const Tensor& states, const Tensor& first) {
  return i == 0 ? first : states[steps.at(i - 1)];
}

// Returns part k of the last axis, divided into parts of n elements.
Tensor Part(const Tensor& x, int64_t k, int64_t n) { return x.narrow(1, k * n, n); }

// Returns bool[B,1], true for sequences longer than t steps; undefined if there are no lengths.
Tensor StepMask(const Tensor& lengths, int64_t t) { return lengths.defined() ? lengths.gt(t).unsqueeze(1) : Tensor(); }

void Hold(const Tensor& active, Tensor now, const Tensor& before) {
  if (active.defined()) now.copy_(at::where(active, now, before));
}

void Mask(const Tensor& active, Tensor x) {
  if (active.defined()) x.masked_fill_(active.logical_not(), 0);
}

Tensor Choose(const Tensor& active, const Tensor& now, const Tensor& before) {
  return active.defined() ? at::where(active, now, before) : now;
}

struct LstmStep {
  Tensor x, h_before, c_before, h, c, gates;
  int64_t t;
};

void RunLstmStep(LstmStep& s, const Tensor& r_t, const Tensor& lengths) {
  const int64_t n = s.h.size(1);
  at::addmm_out(s.gates, s.x, s.h_before, r_t);
  s.gates.narrow(1, 0, 3 * n).sigmoid_();
  Part(s.gates, 3, n).tanh_();
  at::mul_out(s.c, Part(s.gates, 2, n), s.c_before);
  s.c.addcmul_(Part(s.gates, 0, n), Part(s.gates, 3, n));
  const Tensor active = StepMask(lengths, s.t);
  Hold(active, s.c, s.c_before);
  at::tanh_out(s.h, s.c);
  s.h.mul_(Part(s.gates, 1, n));
  Hold(active, s.h, s.h_before);
}

Run Lstm(const Args& a) {
  const Steps steps = MakeSteps(a, a.in[0]);
  const Tensor h = a.Out(0), c = a.Out(1), gates = a.Out(2);
  std::vector<LstmStep> list;
  for (int64_t i = 0; i < steps.count; ++i) {
    const int64_t t = steps.at(i);
    list.push_back({a.in[0][t], Before(steps, i, h, a.in[2]), Before(steps, i, c, a.in[3]), h[t], c[t], gates[t], t});
  }
  return [list, r_t = a.in[1].t(), lengths = a.In(4)]() mutable {
    for (LstmStep& step : list) RunLstmStep(step, r_t, lengths);
  };
}

Run LstmGrad(const Args& a) {
  return [steps = MakeSteps(a, a.in[0]), in = a.in, lengths = a.In(5), dc_all = a.In(6), dx = a.Out(0), dh0 = a.Out(1),
          dc0 = a.Out(2)]() mutable {
    const int64_t n = dh0.size(1);
    Tensor dh = at::zeros_like(dh0), dc = dh;
    for (int64_t i = steps.count - 1; i >= 0; --i) {
      const int64_t t = steps.at(i);
      const Tensor gates = in[4][t], dgates = dx[t], active = StepMask(lengths, t), squashed = in[3][t].tanh();
      auto part = [n](const Tensor& x, int64_t k) { return Part(x, k, n); };
      const Tensor dy = dh + in[0][t], dheld = dc_all.defined() ? dc + dc_all[t] : dc;
      const Tensor dcell = dheld + at::tanh_backward(dy * part(gates, 1), squashed);
      Tensor di = part(dgates, 0), d_o = part(dgates, 1), df = part(dgates, 2), dg = part(dgates, 3);
      at::sigmoid_backward_out(di, dcell * part(gates, 3), part(gates, 0));
      at::sigmoid_backward_out(d_o, dy * squashed, part(gates, 1));
      at::sigmoid_backward_out(df, dcell * Before(steps, i, in[3], in[2]), part(gates, 2));
      at::tanh_backward_out(dg, dcell * part(gates, 0), part(gates, 3));
      Mask(active, dgates);
      dh = Choose(active, at::mm(dgates, in[1]), dy);
      dc = Choose(active, dcell * part(gates, 2), dheld);
    }
    dh0.copy_(dh);
    dc0.copy_(dc);
  };
}

struct GruStep {
  Tensor x, h_before, h, gates;
  int64_t t;
};

void RunGruStep(GruStep& s, const Tensor& r_t, const Tensor& b, const Tensor& lengths) {
  const int64_t n = s.h.size(1);
  const Tensor rec = at::addmm(b, s.h_before, r_t);
  Tensor zr = s.gates.narrow(1, 0, 2 * n), z = Part(s.gates, 0, n), candidate = Part(s.gates, 2, n),
         q = Part(s.gates, 3, n);
  at::add_out(zr, s.x.narrow(1, 0, 2 * n), rec.narrow(1, 0, 2 * n));
  zr.sigmoid_();
  q.copy_(Part(rec, 2, n));
  at::mul_out(candidate, Part(s.gates, 1, n), q);
  candidate.add_(Part(s.x, 2, n)).tanh_();
  // h = (1−z)·n + z·h_before
  at::sub_out(s.h, s.h_before, candidate);
  s.h.mul_(z).add_(candidate);
  Hold(StepMask(lengths, s.t), s.h, s.h_before);
}

Run Gru(const Args& a) {
  const Steps steps = MakeSteps(a, a.in[0]);
  const Tensor h = a.Out(0), gates = a.Out(1);
  std::vector<GruStep> list;
  for (int64_t i = 0; i < steps.count; ++i) {
    const int64_t t = steps.at(i);
    list.push_back({a.in[0][t], Before(steps, i, h, a.in[3]), h[t], gates[t], t});
  }
  return [list, r_t = a.in[1].t(), b = a.in[2], lengths = a.In(4)]() mutable {
    for (GruStep& step : list) RunGruStep(step, r_t, b, lengths);
  };
}

Run GruGrad(const Args& a) {
  return [steps = MakeSteps(a, a.in[0]), in = a.in, lengths = a.In(5), dx = a.Out(0), dr = a.Out(1),
          dh0 = a.Out(2)]() mutable {
    const int64_t n = dh0.size(1);
    Tensor dh = at::zeros_like(dh0);
    for (int64_t i = steps.count - 1; i >= 0; --i) {
      const int64_t t = steps.at(i);
      const Tensor gates = in[4][t], active = StepMask(lengths, t);
      const Tensor z = Part(gates, 0, n), reset = Part(gates, 1, n), candidate = Part(gates, 2, n),
                   q = Part(gates, 3, n);
      Tensor dxt = dx[t], drt = dr[t];
      Tensor dz = Part(dxt, 0, n), dreset = Part(dxt, 1, n), dn = Part(dxt, 2, n);
      const Tensor dy = dh + in[0][t];
      at::tanh_backward_out(dn, dy * z.neg().add_(1), candidate);
      at::sigmoid_backward_out(dz, dy * (Before(steps, i, in[3], in[2]) - candidate), z);
      at::sigmoid_backward_out(dreset, dn * q, reset);
      Mask(active, dxt);
      drt.copy_(dxt);
      Part(drt, 2, n).mul_(reset);
      dh = Choose(active, at::addmm(dy * z, drt, in[1]), dy);
    }
    dh0.copy_(dh);
  };
}

Run Rnn(const Args& a) {
  return [steps = MakeSteps(a, a.in[0]), in = a.in, r_t = a.in[1].t(), lengths = a.In(3), h = a.Out(0),
          relu = a.attrs().String("activation") == "Relu"]() mutable {
    for (int64_t i = 0; i < steps.count; ++i) {
      const int64_t t = steps.at(i);
      Tensor y = h[t];
      const Tensor before = Before(steps, i, h, in[2]);
      at::addmm_out(y, in[0][t], before, r_t);
      relu ? y.relu_() : y.tanh_();
      Hold(StepMask(lengths, t), y, before);
    }
  };
}

Run RnnGrad(const Args& a) {
  return [steps = MakeSteps(a, a.in[0]), in = a.in, lengths = a.In(3), dx = a.Out(0), dh0 = a.Out(1),
          relu = a.attrs().String("activation") == "Relu"]() mutable {
    Tensor dh = at::zeros_like(dh0);
    for (int64_t i = steps.count - 1; i >= 0; --i) {
      const int64_t t = steps.at(i);
      const Tensor active = StepMask(lengths, t), dy = dh + in[0][t], y = in[2][t];
      Tensor dsum = dx[t];
      dsum.copy_(relu ? dy.masked_fill(y.le(0), 0) : at::tanh_backward(dy, y));
      Mask(active, dsum);
      dh = Choose(active, at::mm(dsum, in[1]), dy);
    }
    dh0.copy_(dh);
  };
}

}  // namespace

std::span<const NamedKernel> RecurrentKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Lstm", {Lstm, Types::kNumber}}, {"LstmGrad", {LstmGrad, Types::kNumber}},
      {"Gru", {Gru, Types::kNumber}},   {"GruGrad", {GruGrad, Types::kNumber}},
      {"Rnn", {Rnn, Types::kNumber}},   {"RnnGrad", {RnnGrad, Types::kNumber}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
