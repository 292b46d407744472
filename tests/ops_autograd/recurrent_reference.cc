// Recurrences, through libtorch's own cells: the gates' sums go in as the input of a cell with an identity for a
// weight, in libtorch's order of gates.
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gru_cell.h>
#include <ATen/ops/lstm_cell.h>
#include <ATen/ops/rnn_relu_cell.h>
#include <ATen/ops/rnn_tanh_cell.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "reference.h"

namespace onnxtrain::cases {
namespace {

using at::Tensor;
using State = std::vector<Tensor>;

// The parts of an axis in another order.
Tensor ReorderNodes(const Tensor& x, int64_t axis, const std::vector<int64_t>& order) {
  if (!x.defined()) return x;
  const auto parts = x.chunk(static_cast<int64_t>(order.size()), axis);
  std::vector<Tensor> moved;
  for (int64_t i : order) moved.push_back(parts[i]);
  return at::cat(moved, axis);
}

// Each state after each step, as [S,B,H].
template <typename Step>
std::vector<Tensor> Run(const Operands& a, State state, const Tensor& lengths, Step step) {
  const int64_t steps = a[0].size(0);
  std::vector<State> seen(state.size(), State(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = a.attrs().Int("reverse") ? steps - 1 - i : i;
    const State next = step(a[0][t], state);
    for (size_t k = 0; k < state.size(); ++k) {
      state[k] = lengths.defined() ? at::where(lengths.gt(t).unsqueeze(1), next[k], state[k]) : next[k];
      seen[k][t] = state[k];
    }
  }
  std::vector<Tensor> outputs;
  for (const State& one : seen) outputs.push_back(at::stack(one));
  return outputs;
}

std::vector<Tensor> Lstm(const Operands& a) {
  const std::vector<int64_t> order = {0, 2, 3, 1};  // i, f, g, o of our i, o, f, g
  const Tensor r = ReorderNodes(a[1], 0, order), eye = at::eye(r.size(0), r.options().requires_grad(false));
  return Run(a, {a[2], a[3]}, a[4], [&](const Tensor& x, const State& s) -> State {
    const auto [h, c] = at::lstm_cell(ReorderNodes(x, 1, order), {s[0], s[1]}, eye, r);
    return {h, c};
  });
}

std::vector<Tensor> Gru(const Operands& a) {
  const std::vector<int64_t> order = {1, 0, 2};  // r, z, n of our z, r, n
  const Tensor r = ReorderNodes(a[1], 0, order), b = ReorderNodes(a[2], 0, order);
  const Tensor eye = at::eye(r.size(0), r.options().requires_grad(false));
  return Run(a, {a[3]}, a[4], [&](const Tensor& x, const State& s) -> State {
    return {at::gru_cell(ReorderNodes(x, 1, order), s[0], eye, r, at::zeros_like(b), b)};
  });
}

std::vector<Tensor> Rnn(const Operands& a) {
  const Tensor eye = at::eye(a[1].size(0), a[1].options().requires_grad(false));
  const bool relu = a.attrs().String("activation") == "Relu";
  return Run(a, {a[2]}, a[3], [&](const Tensor& x, const State& s) -> State {
    return {relu ? at::rnn_relu_cell(x, s[0], eye, a[1]) : at::rnn_tanh_cell(x, s[0], eye, a[1])};
  });
}

}  // namespace

References RecurrentReferences() { return {{"Lstm", Lstm}, {"Gru", Gru}, {"Rnn", Rnn}}; }

}  // namespace onnxtrain::cases
