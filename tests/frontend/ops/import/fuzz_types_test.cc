// Type rules are total: whatever types and attribute values of the declared kinds come, the answer is types or an
// error. Where small types come out, the decomposition must give values of just these types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"
#include "tests/frontend/ops/import/random_choices.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain {
namespace {

class Generator : public RandomChoices {
 public:
  using RandomChoices::RandomChoices;

  int64_t Int() {
    if (Chance(70)) return Below(5);
    constexpr auto kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
    return Pick<int64_t>({-1, -2, 7, 31, 1000, int64_t{1} << 31, (int64_t{1} << 31) - 1, int64_t{1} << 40, kMax,
                          kMax - 1, kMin, kMin + 1});
  }
  double Number() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return Pick<double>({0, 0.25, 0.5, 1, -1, 2, 1e300, kInf, -kInf, std::nan("")});
  }
  std::vector<int64_t> Ints(int rank) {
    std::vector<int64_t> values(
        Chance(70) ? Pick<int64_t>({rank, 2 * rank, std::max(rank - 2, 0), 2 * std::max(rank - 2, 0)}) : Below(9));
    const bool same = Chance(40);
    for (int64_t& v : values) v = same ? Below(2) : Int();
    return values;
  }

  Shape SmallShape() {
    Shape shape(Below(6));
    for (int64_t& d : shape) d = Pick<int64_t>({1, 1, 2, 2, 2, 3, 4, 5, 0});
    return shape;
  }
  Shape AnyShape() {
    if (Chance(85)) return SmallShape();
    Shape shape(Below(8));
    for (int64_t& d : shape) d = Pick<int64_t>({0, 1, 2, 1 << 10, 1 << 20, int64_t{1} << 40});
    return CheckShape(shape).ok() ? shape : Shape{};
  }

  AttrValue Value(const AttrValue& kind, int rank) {
    switch (kind.index()) {
      case 0:
        return Int();
      case 1:
        return Number();
      case 2:
        return std::string(Pick<const char*>({"f32", "i64", "bool", "f16", "none", "tanh", "", "?"}));
      case 3:
        return Ints(rank);
      case 4:
        return std::vector<double>(Below(4), Number());
      default:
        return HostTensor({AnyDType(), SmallShape()});
    }
  }
};

// Types that fit each other often enough to come past the first checks.
std::vector<Type> InputTypes(Generator& g, const OpRow& row) {
  const int most = std::min(row.inputs.max, row.inputs.min + 3);
  const Type first = {g.AnyDType(), g.AnyShape()};
  std::vector<Type> types;
  for (int64_t n = row.inputs.min + g.Below(most - row.inputs.min + 1); n > 0; --n) {
    Type type = first;
    if (g.Chance(50)) type.dtype = g.Pick({DType::kInt64, DType::kUInt32, DType::kBool, first.dtype, first.dtype});
    if (g.Chance(15)) type.shape = g.AnyShape();
    if (g.Chance(15) && !type.shape.empty()) type.shape.erase(type.shape.begin() + g.Below(type.rank()));
    if (g.Chance(10)) type.shape = {first.rank() > 1 ? first.shape[1] : 4};
    if (g.Chance(10) && !type.shape.empty()) type.shape[g.Below(type.rank())] = 1;
    types.push_back(type);
  }
  return types;
}

Attrs RandomAttrs(Generator& g, const OpRow& row, int rank) {
  Attrs attrs;
  for (const AttrSpec& spec : row.attrs) {
    if (spec.required || g.Chance(60)) attrs.Set(std::string(spec.name), g.Value(spec.value, rank));
  }
  return attrs;
}

bool Small(std::span<const Type> types) {
  for (const Type& t : types) {
    if (t.elements() > 4096) return false;
  }
  return true;
}

// Builds the node with its row's own types and decomposes it and what it becomes.
void ExpectDecomposes(const OpRow& row, const std::vector<Type>& inputs, const Attrs& attrs) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> vals;
  for (size_t i = 0; i < inputs.size(); ++i) vals.push_back(b.Input(InputKind::kFeed, StrCat("x", i), inputs[i]));
  const std::vector<Val> outputs = b.Ops(row.name, vals, attrs);
  ASSERT_TRUE(b.status().ok()) << b.status();
  for (size_t i = 0; i < outputs.size(); ++i) graph.AddOutput(StrCat("y", i), outputs[i].id());
  const auto decomposed = DecomposeNodes(graph, [](const Graph&, const Node&) { return true; });
  ASSERT_TRUE(decomposed.ok()) << decomposed.status();
  EXPECT_TRUE(Verify(*decomposed).ok()) << Verify(*decomposed);
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(ToString(decomposed->type(decomposed->outputs()[i].value)), ToString(outputs[i].type()))
        << "output " << i;
  }
}

// What the row says of the node, and whether it holds together.
void CheckNode(Generator& g, const OpRow& row, const std::vector<Type>& inputs, Attrs attrs, int* typed) {
  std::vector<const Type*> pointers;
  for (const Type& t : inputs) pointers.push_back(&t);
  if (static_cast<int>(pointers.size()) > row.inputs.min && g.Chance(20)) pointers.back() = nullptr;
  const auto outputs = InferTypes(row.name, pointers, attrs);
  if (!outputs.ok()) {
    EXPECT_FALSE(outputs.status().message().empty());
    return;
  }
  ++*typed;
  EXPECT_TRUE(row.outputs == kOutputsFromAttr || static_cast<int>(outputs->size()) == row.outputs) << outputs->size();
  EXPECT_TRUE(row.flops == nullptr || row.flops(pointers, *outputs, attrs) >= 0.0);
  const bool whole = std::find(pointers.begin(), pointers.end(), nullptr) == pointers.end();
  if (row.decompose != nullptr && whole && Small(inputs) && Small(*outputs)) ExpectDecomposes(row, inputs, attrs);
}

TEST(TypeRules, AnswerEveryInputWithTypesOrAnError) {
  for (const OpRow* row : AllOps()) {
    SCOPED_TRACE(std::string(row->name));
    Generator g(std::hash<std::string_view>()(row->name));
    int typed = 0;
    for (int i = 0; i < 1000 && !HasFailure(); ++i) {
      const std::vector<Type> inputs = InputTypes(g, *row);
      CheckNode(g, *row, inputs, RandomAttrs(g, *row, inputs.empty() ? 2 : inputs[0].rank()), &typed);
    }
  }
}

void MutateType(Generator& g, Type* type) {
  switch (g.Below(4)) {
    case 0:
      type->dtype = g.AnyDType();
      break;
    case 1:
      type->shape = g.AnyShape();
      break;
    case 2:
      type->shape.insert(type->shape.begin() + g.Below(type->rank() + 1), 1);
      break;
    default:
      if (type->shape.empty()) return;
      type->shape[g.Below(type->rank())] = g.Pick<int64_t>({0, 1, 2, 3, 5, 8, 1 << 20});
  }
}

void MutateAttr(Generator& g, const OpRow& row, Attrs* attrs) {
  if (row.attrs.empty()) return;
  const AttrSpec& spec = row.attrs[g.Below(static_cast<int64_t>(row.attrs.size()))];
  auto ints = attrs->Ints(spec.name);
  if (ints.empty() || g.Chance(20)) return attrs->Set(std::string(spec.name), g.Value(spec.value, 4));
  if (g.Chance(80))
    ints[g.Below(static_cast<int64_t>(ints.size()))] = g.Int();
  else
    ints.pop_back();
  attrs->Set(std::string(spec.name), std::move(ints));
}

// A case of each operator, without absent inputs.
std::map<std::string, const cases::Case*> CasesByOperator() {
  std::map<std::string, const cases::Case*> by_op;
  for (const cases::Case& c : cases::AllCases()) {
    if (std::ranges::none_of(c.inputs, &cases::Input::absent)) by_op.emplace(c.op, &c);
  }
  return by_op;
}

// Neighbours of valid nodes pass the first checks and reach the arithmetic that could overflow.
TEST(TypeRules, AnswerNeighboursOfValidNodes) {
  Generator g(1);
  for (const auto& [op, example] : CasesByOperator()) {
    SCOPED_TRACE(example->name);
    const OpRow& row = *FindOp(op);
    std::vector<Type> valid;
    for (const cases::Input& input : example->inputs) valid.push_back(input.type);
    int typed = 0;
    for (int i = 0; i < 1000 && !HasFailure(); ++i) {
      std::vector<Type> inputs = valid;
      Attrs attrs = example->attrs;
      for (int64_t n = g.Below(3); n > 0; --n) {
        if (!inputs.empty() && g.Chance(30))
          MutateType(g, &inputs[g.Below(static_cast<int64_t>(inputs.size()))]);
        else
          MutateAttr(g, row, &attrs);
      }
      CheckNode(g, row, inputs, attrs, &typed);
    }
    EXPECT_GT(typed, 100);
  }
}

}  // namespace
}  // namespace onnxtrain
