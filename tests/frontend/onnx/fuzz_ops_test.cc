// Fuzzes every ONNX operator: valid nodes with changed arity, ranks, element types and attributes of wrong kinds or
// absurd values. The result is a valid graph with valid gradients and programs, or an error, in bounded time and
// memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "backends/bound_program.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "model_builder.h"
#include "tests/frontend/ops/import/fuzz_generator.h"
#include "tools/op_table/op_table.h"

namespace onnxtrain {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr double kSeconds = kSanitized ? 10 : 1;
constexpr int64_t kMaxGrowth = int64_t{1} << 20;  // of the process, in KiB
constexpr int kDraws = 100;

using In = OpExample::Input;

// --- Files of one node
// ------------------------------------------------------------------------------------------------

void FillTensor(const HostTensor& value, onnx::TensorProto* tensor) {
  tensor->set_data_type(static_cast<int>(DTypeToOnnx(value.dtype())));
  for (int64_t d : value.shape()) tensor->add_dims(d);
  tensor->set_raw_data(value.bytes().data(), value.bytes().size());
}

struct FillAttribute {
  onnx::AttributeProto* attribute;

  void operator()(int64_t i) const {
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(i);
  }
  void operator()(double f) const {
    attribute->set_type(onnx::AttributeProto::FLOAT);
    attribute->set_f(static_cast<float>(f));
  }
  void operator()(const std::string& s) const {
    attribute->set_type(onnx::AttributeProto::STRING);
    attribute->set_s(s);
  }
  void operator()(const std::vector<int64_t>& ints) const {
    attribute->set_type(onnx::AttributeProto::INTS);
    for (int64_t i : ints) attribute->add_ints(i);
  }
  void operator()(const std::vector<double>& floats) const {
    attribute->set_type(onnx::AttributeProto::FLOATS);
    for (double f : floats) attribute->add_floats(static_cast<float>(f));
  }
  void operator()(const HostTensor& tensor) const {
    attribute->set_type(onnx::AttributeProto::TENSOR);
    FillTensor(tensor, attribute->mutable_t());
  }
};

bool Small(const Type& type) { return CheckShape(type.shape).ok() && type.elements() <= 4096; }

onnx::ModelProto MakeModel(const OpExample& example) {
  onnx::ModelProto model = NewModel(example.domain.empty() ? example.version : 17);
  if (!example.domain.empty()) {
    auto* import = model.add_opset_import();
    import->set_domain(example.domain);
    import->set_version(example.version);
  }
  auto* node = AddNode(&model, example.op_type, {}, {}, "bent");
  node->set_domain(example.domain);
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const In& in = example.inputs[i];
    const std::string name = in.kind == In::kAbsent ? "" : StrCat("x", i);
    node->add_input(name);
    if (in.kind == In::kConstant || (in.kind == In::kWeight && Small(in.type))) {
      auto* tensor = model.mutable_graph()->add_initializer();
      tensor->set_name(name);
      FillTensor(in.kind == In::kConstant ? in.value : HostTensor(in.type), tensor);
    } else if (in.kind != In::kAbsent) {
      AddInput(&model, name, in.type.shape, static_cast<int>(DTypeToOnnx(in.type.dtype)));
    }
  }
  for (int i = 0; i < example.outputs; ++i) {
    node->add_output(StrCat("y", i));
    AddOutput(&model, StrCat("y", i));
  }
  for (const auto& [name, value] : example.attrs) {
    auto* attribute = node->add_attribute();
    attribute->set_name(std::string(name));
    std::visit(FillAttribute{attribute}, value);
  }
  return model;
}

// --- Mutations ------------------------------------------------------------------------------------------------------

void MutateShape(Generator& g, Shape* shape) {
  const auto rank = static_cast<int64_t>(shape->size());
  switch (g.Below(5)) {
    case 0:
      *shape = g.AnyShape();
      break;
    case 1:
      shape->insert(shape->begin() + g.Below(rank + 1), g.Below(3));
      break;
    case 2:
      if (rank > 0) shape->erase(shape->begin() + g.Below(rank));
      break;
    case 3:
      if (rank > 0) (*shape)[g.Below(rank)] = int64_t{1} << g.Below(41);
      break;
    default:
      if (rank > 0) (*shape)[g.Below(rank)] = g.Below(8);
  }
}

void MutateInput(Generator& g, In* in) {
  if (in->kind == In::kConstant) {
    if (g.Chance(70))
      in->value = g.Tensor();
    else
      *in = {In::kFed, in->value.type(), {}};
    return;
  }
  switch (g.Below(5)) {
    case 0:
      *in = {In::kConstant, {}, g.Tensor()};
      break;
    case 1:
      *in = {In::kAbsent, {}, {}};
      break;
    case 2:
      in->type.dtype = g.AnyDType();
      break;
    default:
      MutateShape(g, &in->type.shape);
  }
}

void MutateAttrs(Generator& g, Attrs* attrs) {
  std::vector<std::string> names;
  for (const auto& [name, value] : *attrs) names.emplace_back(name);
  if (!names.empty() && g.Chance(50)) {
    const std::string& name = names[g.Below(static_cast<int64_t>(names.size()))];
    auto ints = attrs->Ints(name);
    if (ints.empty() || g.Chance(30)) return attrs->Set(name, g.Value());
    ints[g.Below(static_cast<int64_t>(ints.size()))] = g.Int();
    return attrs->Set(name, std::move(ints));
  }
  switch (g.Below(5)) {
    case 0:
      attrs->Set(NameFrom(g, kIntNames), g.Int());
      break;
    case 1:
      attrs->Set(NameFrom(g, kIntsNames), g.Ints());
      break;
    case 2:
      attrs->Set(NameFrom(g, kNumberNames), g.Number());
      break;
    case 3:
      attrs->Set(NameFrom(g, kStringNames), g.Value());
      break;
    default:
      attrs->Set(NameFrom(g, kIntNames), g.Value());
  }
}

OpExample Mutate(Generator& g, OpExample example) {
  for (int64_t n = 1 + g.Below(3); n > 0; --n) {
    switch (g.Below(8)) {
      case 0:
        if (!example.inputs.empty()) example.inputs.pop_back();
        break;
      case 1:
        example.inputs.push_back(g.Chance(50) ? In{In::kFed, {g.AnyDType(), g.AnyShape()}, {}}
                                              : In{In::kConstant, {}, g.Tensor()});
        break;
      case 2:
        example.outputs = static_cast<int>(g.Below(5));
        break;
      case 3:
        example.version = g.Pick({1, 6, 7, 9, 10, 11, 12, 13, 14, 18, 20, 21, 23, 99});
        break;
      case 4:
      case 5:
        MutateAttrs(g, &example.attrs);
        break;
      default:
        if (!example.inputs.empty())
          MutateInput(g, &example.inputs[g.Below(static_cast<int64_t>(example.inputs.size()))]);
    }
  }
  return example;
}

// --- Properties --------------------------------------------------------------------------------------------------

bool AllSmall(const Graph& graph) {
  for (const Value& value : graph.values()) {
    if (!Small(value.type)) return false;
  }
  return true;
}

// Adds the gradients of all float outputs with respect to all float inputs.
void ExpectDifferentiates(Graph graph) {
  std::vector<Seed> seeds;
  std::vector<ValueId> wrt;
  for (const GraphOutput& output : graph.outputs()) {
    if (IsFloat(graph.type(output.value).dtype)) seeds.push_back({output.value});
  }
  for (const GraphInput& input : graph.inputs()) {
    if (IsFloat(graph.type(input.value).dtype)) wrt.push_back(input.value);
  }
  const auto gradients = Differentiate(&graph, seeds, wrt);
  if (!gradients.ok()) return;
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
  for (const auto& [value, gradient] : *gradients)
    EXPECT_EQ(ToString(graph.type(gradient)), ToString(graph.type(value)));
}

// Runs the graph once on zeros.
absl::Status Run(const Graph& graph) {
  static Backend* backend = CreateBackend("cpu", {.threads = 1}).value().release();
  ASSIGN_OR_RETURN(const Graph legal, backend->Legalize(graph));
  ASSIGN_OR_RETURN(BoundProgram program, BoundProgram::Make(*backend, legal));
  return program.Run();
}

absl::StatusOr<ImportedModel> LoadAndImport(const onnx::ModelProto& model, bool training) {
  ASSIGN_OR_RETURN(const auto loaded, LoadModel(model));
  return Import(*loaded, {.training = training});
}

// Whether the node was valid.
bool Check(const onnx::ModelProto& model, bool training) {
  const auto imported = LoadAndImport(model, training);
  if (!imported.ok()) {
    EXPECT_FALSE(imported.status().message().empty());
    return false;
  }
  EXPECT_TRUE(Verify(imported->graph).ok()) << Verify(imported->graph);
  if (!AllSmall(imported->graph)) return true;
  ExpectDifferentiates(imported->graph);
  const absl::Status run = Run(imported->graph);
  EXPECT_TRUE(run.ok() || !run.message().empty());
  return true;
}

int64_t PeakKilobytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(BentOperators, GiveAValidGraphOrAnError) {
  int valid = 0, draws = 0;
  for (const OnnxOp* op : AllOnnxOps()) {
    const auto example = FindExample(*op);
    EXPECT_TRUE(example.ok()) << example.status();
    if (!example.ok()) continue;
    Generator g(std::hash<std::string_view>()(op->op_type));
    for (int i = 0; i < kDraws && !HasFailure(); ++i) {
      const OpExample bent = Mutate(g, *example);
      SCOPED_TRACE(StrCat(op->domain, ".", op->op_type, " draw ", i));
      const auto start = std::chrono::steady_clock::now();
      const int64_t before = PeakKilobytes();
      valid += Check(MakeModel(bent), g.Chance(50));
      ++draws;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_LT(took.count(), kSeconds) << MakeModel(bent).ShortDebugString();
      EXPECT_LT(PeakKilobytes() - before, kMaxGrowth) << MakeModel(bent).ShortDebugString();
    }
  }
  // Both outcomes occur often.
  EXPECT_GT(valid, draws / 10);
  EXPECT_LT(valid, draws * 9 / 10);
}

// The unchanged examples are valid.
TEST(BentOperators, AreValidUnbent) {
  for (const OnnxOp* op : AllOnnxOps()) {
    SCOPED_TRACE(StrCat(op->domain, ".", op->op_type));
    const auto example = FindExample(*op);
    EXPECT_TRUE(example.ok()) << example.status();
    if (!example.ok()) continue;
    const auto loaded = LoadModel(MakeModel(*example));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto imported = Import(**loaded, {.training = true});
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
}

}  // namespace
}  // namespace onnxtrain
