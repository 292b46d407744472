// Values and gradients of every differentiable case, in float64, against libtorch's autograd.
#include <gtest/gtest.h>

#include <ATen/ops/from_blob.h>

#include "exceptions.h"
#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "reference.h"
#include "run.h"

namespace onnxtrain::cases {

const References& AllReferences() {
  static const auto* all = [] {
    auto* table = new References;
    for (auto family : {ElementwiseReferences, WindowReferences, NeuralReferences, ShapeReferences, ScatterReferences,
                        ResampleReferences, RecurrentReferences})
      table->merge(family());
    return table;
  }();
  return *all;
}

namespace {

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt64:
      return at::kLong;
    case DType::kBool:
      return at::kBool;
    case DType::kInt8:
    case DType::kInt4:
      return at::kChar;
    case DType::kUInt8:
    case DType::kUInt4:
      return at::kByte;
    default:
      return at::kInt;  // u32 keys, by their bits
  }
}

// A copy.
at::Tensor ToTorch(const HostTensor& t) {
  return at::from_blob(const_cast<std::byte*>(t.bytes().data()), t.shape(),
                       at::TensorOptions().dtype(ToScalarType(t.dtype())))
      .clone();
}

HostTensor ToHost(const at::Tensor& t, const Type& type) {
  HostTensor host(type);
  const at::Tensor dense = t.detach().contiguous();
  std::copy_n(static_cast<const std::byte*>(dense.data_ptr()), host.bytes().size(), host.mutable_bytes().data());
  return host;
}

std::vector<Case> Differentiable() {
  std::vector<Case> list;
  for (const Case& c : AllCases()) {
    if (!DifferentiableInputs(c).empty()) list.push_back(c);
  }
  return list;
}

class Autograd : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Table, Autograd, ::testing::ValuesIn(Differentiable()),
                         [](const auto& info) { return info.param.name; });

void ExpectAgreement(const Case& c, const Reference& reference) {
  Graph graph = MakeGraph(c, true);
  const absl::Status status = AddGradients(c, &graph);
  ASSERT_TRUE(status.ok()) << status;
  const Tensors feeds = MakeFeeds(c, graph, true);
  auto ours = RunOn(BackendNamed("torch"), graph, feeds);
  ASSERT_TRUE(ours.ok()) << ours.status();

  Operands operands{{}, c};
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    operands.x.push_back(c.inputs[i].absent ? at::Tensor() : ToTorch(feeds.at(StrCat("x", i))));
  }
  for (size_t i : DifferentiableInputs(c)) operands.x[i].set_requires_grad(true);
  const TensorVector outputs = reference(operands);
  at::Tensor loss;
  for (int o : c.through) {
    const HostTensor& y = ours->at(StrCat("y", o));
    ASSERT_EQ(outputs[o].sizes(), at::IntArrayRef(y.shape()));
    EXPECT_TRUE(Near(y, ToHost(outputs[o], y.type()), 1e-11)) << "output " << o;
    const at::Tensor term = (outputs[o] * ToTorch(feeds.at(StrCat("dy", o)))).sum();
    loss = loss.defined() ? loss + term : term;
  }
  loss.backward();
  for (size_t i : DifferentiableInputs(c)) {
    const HostTensor& dx = ours->at(StrCat("dx", i));
    EXPECT_TRUE(Near(dx, ToHost(operands.x[i].grad(), dx.type()), 1e-10)) << "gradient of input " << i;
  }
}

TEST_P(Autograd, Agrees) {
  const Case& c = GetParam();
  const auto listed = AllReferences().find(c.op);
  const Reference reference = listed != AllReferences().end() ? listed->second : FindByName(c.op);
  ASSERT_TRUE(reference) << "no reference for " << c.op;
  RunMode(Mode::kAutograd, c, [&] { ExpectAgreement(c, reference); });
}

}  // namespace
}  // namespace onnxtrain::cases
