// Import functions see nodes as users' files have them: whatever comes, the answer is outputs or an error, without
// large allocations. Graphs that come out hold together.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "frontend/ops/row.h"
#include "tests/frontend/ops/import/fuzz_generator.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

void AddAttrs(Generator& g, SingleNodeImporter& node) {
  for (int64_t n = g.Below(8); n > 0; --n) {
    const std::vector<int64_t> ints(g.Pick<int64_t>({1, 2, 4}), g.Below(3));
    switch (g.Below(8)) {
      case 0:
      case 1:
        node.Attr(NameFrom(g, kIntNames), g.Int());
        break;
      case 2:
        node.Attr(NameFrom(g, kIntsNames), g.Ints());
        break;
      case 3:
      case 4:
        node.Attr(NameFrom(g, kIntsNames), ints);
        break;
      case 5:
        node.Attr(NameFrom(g, kNumberNames), g.Number());
        break;
      case 6:
        node.Attr(NameFrom(g, kStringNames), g.Value());
        break;
      default:
        node.Attr(NameFrom(g, kIntNames), g.Value());
    }
  }
}

void AddInputs(Generator& g, SingleNodeImporter& node, const OnnxOp& op) {
  const int most = std::min(op.max_inputs, op.min_inputs + 3);
  const Type first = {g.AnyDType(), g.AnyShape()};
  for (int64_t n = op.min_inputs + g.Below(most - op.min_inputs + 1); n > 0; --n) {
    Type type = first;
    if (g.Chance(25)) type.shape = g.AnyShape();
    if (g.Chance(25)) type.dtype = g.AnyDType();
    if (g.Chance(20) && first.rank() > 1) type.shape = {first.shape[1]};
    if (g.Chance(5))
      node.Absent();
    else if (g.Chance(30))
      node.Constant(g.Tensor());
    else
      node.Input(type);
  }
}

void ImportOne(Generator& g, const OnnxOp& op) {
  SingleNodeImporter node(op.op_type, g.Pick({1, 6, 7, 9, 10, 11, 12, 13, 14, 18, 20, 21, 23}), op.domain);
  AddInputs(g, node, op);
  AddAttrs(g, node);
  node.Outputs(static_cast<int>(1 + g.Below(3)));
  node.training = g.Chance(50);
  node.conformance = g.Chance(20);
  const auto outputs = node.Import();
  if (!outputs.ok()) {
    EXPECT_FALSE(outputs.status().message().empty());
    return;
  }
  EXPECT_TRUE(Verify(node.graph()).ok()) << Verify(node.graph());
}

TEST(Imports, AnswerEveryNodeWithOutputsOrAnError) {
  for (const OnnxOp* op : AllOnnxOps()) {
    if (op->import == nullptr) continue;
    SCOPED_TRACE(std::string(op->domain) + "." + std::string(op->op_type));
    Generator g(std::hash<std::string_view>()(op->op_type));
    for (int i = 0; i < 1000 && !HasFailure(); ++i) ImportOne(g, *op);
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    ASSERT_LT(usage.ru_maxrss, 2 << 20) << "KiB";
  }
}

}  // namespace
}  // namespace onnxtrain
