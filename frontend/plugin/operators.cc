#include "frontend/plugin/operators.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"
#include "frontend/plugin/library.h"
#include "frontend/plugin/operator_builder.h"
#include "frontend/plugin/plugin_node.h"

namespace onnxtrain {
namespace {

// Of all libraries, by the name of the row. What is in it stays for ever.
class Registry {
 public:
  const OnnxtrainOperator* Find(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto it = operators_.find(name);
    return it == operators_.end() ? nullptr : it->second;
  }
  void Add(std::string name, const OnnxtrainOperator* op) {
    const std::lock_guard lock(mutex_);
    operators_.emplace(std::move(name), op);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, const OnnxtrainOperator*, std::less<>> operators_;
};

Registry& GetRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

const OnnxtrainOperator& Find(std::string_view name) {
  const OnnxtrainOperator* op = GetRegistry().Find(name);
  CHECK(op != nullptr) << "no library has " << name;
  return *op;
}

std::string RowName(const OnnxtrainOperator& op) { return StrCat(op.domain, ".", op.name); }

absl::StatusOr<std::vector<Type>> Infer(const TypeContext& c) {
  const OnnxtrainOperator& op = Find(c.op);
  PluginNode node(c.op, "", c.attrs);
  for (const Type* type : c.inputs) node.AddInput(type);
  std::vector<OnnxtrainResultType> results(op.num_outputs);
  PluginMessage message;
  RETURN_IF_ERROR(message.ToStatus(op.infer(&node.Get(), results.data(), message.get()), "its type rule failed"));
  std::vector<Type> types;
  for (const OnnxtrainResultType& result : results) {
    ASSIGN_OR_RETURN(types.emplace_back(), FromPluginType(result.element, result.rank, result.shape));
  }
  return types;
}

// Fails where a value that a library built has not the type that it should have.
void CheckType(Builder& b, std::string_view op, std::string_view what, size_t i, Val built, const Type& expected) {
  if (built.valid() && !(built.type() == expected))
    b.Fail(Invalid("[", op, "] ", what, " ", i, " is ", ToString(built.type()), ", expected ", ToString(expected)));
}

std::vector<Val> GradientByLibrary(const GradContext& c) {
  const std::string name = c.node.op;
  PluginNode node(c.b.graph(), c.node);
  std::vector<Val> grads = Build({c.b, node, c.inputs, c.outputs, c.grads}, Find(name).gradient, c.inputs.size());
  for (size_t i = 0; i < grads.size() && c.b.status().ok(); ++i) {
    if (c.inputs[i].valid()) CheckType(c.b, name, "the gradient of input", i, grads[i], c.inputs[i].type());
  }
  return grads;
}

bool KernelSupports(const Graph& graph, const Node& node) {
  const OnnxtrainOperator& op = Find(node.op);
  if (op.supports != nullptr) return op.supports(&PluginNode(graph, node).Get()) != 0;
  const auto fits = [&](ValueId v) {
    return v == kNoValue || !IsFloat(graph.type(v).dtype) || graph.type(v).dtype == DType::kFloat32;
  };
  return std::ranges::all_of(node.inputs, fits) && std::ranges::all_of(node.outputs, fits);
}

absl::StatusOr<HostKernel> PrepareKernel(const Graph& graph, const Node& node) {
  PluginNode view(graph, node);
  OnnxtrainKernel prepared = {};
  PluginMessage message;
  const int code = Find(node.op).prepare(&view.Get(), &prepared, message.get());
  RETURN_IF_ERROR(message.ToStatus(code, "its library could not prepare a kernel"));
  if (prepared.run == nullptr) return absl::InternalError("its library prepared no kernel");
  const auto release = [release = prepared.release](void* state) {
    if (release != nullptr) release(state);
  };
  // One state for all copies of the function.
  auto run = [run = prepared.run, state = std::shared_ptr<void>(prepared.state, release)](
                 void* const* inputs, void* const* outputs, void* workspace) {
    const OnnxtrainKernelArgs args{.inputs = inputs, .outputs = outputs, .workspace = workspace};
    PluginMessage failure;
    const int failed = run(state.get(), &args, failure.get());
    return failed == 0 ? absl::OkStatus() : failure.ToStatus(failed, "its library failed");
  };
  return HostKernel{.run = std::move(run), .workspace = prepared.workspace};
}

constexpr HostKernels kHostKernels = {.supports = KernelSupports, .prepare = PrepareKernel};

// The attributes of a node with the defaults of the others.
absl::StatusOr<Attrs> FillAttributes(const OnnxtrainOperator& op, const Attrs& given) {
  Attrs attrs;
  for (size_t i = 0; i < op.num_attributes; ++i) {
    ASSIGN_OR_RETURN(AttrValue value, FromPluginAttribute(op.attributes[i]));
    if (i >= op.num_required) attrs.Set(op.attributes[i].name, std::move(value));
  }
  const std::span<const OnnxtrainAttribute> declared(op.attributes, op.num_attributes);
  for (const auto& [name, value] : given) {
    const auto known = std::ranges::find(declared, name, [](const auto& a) { return std::string_view(a.name); });
    if (known == declared.end()) return Invalid("has no attribute '", name, "'");
    if (known->kind != static_cast<int32_t>(value.index())) return Invalid("attribute '", name, "' is of another kind");
    attrs.Set(name, value);
  }
  for (size_t i = 0; i < op.num_required; ++i) {
    if (!attrs.Has(op.attributes[i].name)) return Invalid("attribute '", op.attributes[i].name, "' is missing");
  }
  return attrs;
}

// An operator with a decomposition is imported as the nodes of that.
absl::StatusOr<std::vector<Val>> ImportDecomposed(ImportContext& c) {
  const std::string name = StrCat(c.node().domain, ".", c.node().op_type);
  const OnnxtrainOperator& op = Find(name);
  ASSIGN_OR_RETURN(const Attrs attrs, FillAttributes(op, c.attrs()));
  PluginNode node(name, c.b().source(), attrs);
  for (const Val& v : c.node().inputs)
    node.AddInput(v.valid() ? &v.type() : nullptr, v.valid() ? v.constant() : nullptr);
  std::vector<OnnxtrainResultType> results(op.num_outputs);
  PluginMessage message;
  if (op.infer != nullptr)
    RETURN_IF_ERROR(message.ToStatus(op.infer(&node.Get(), results.data(), message.get()), "its type rule failed"));
  std::vector<Val> outputs = Build({c.b(), node, c.node().inputs}, op.decompose, op.num_outputs);
  for (size_t i = 0; i < outputs.size() && op.infer != nullptr && c.b().status().ok(); ++i) {
    ASSIGN_OR_RETURN(const Type expected, FromPluginType(results[i].element, results[i].rank, results[i].shape));
    CheckType(c.b(), name, "output", i, outputs[i], expected);
  }
  return outputs;
}

absl::StatusOr<std::vector<Val>> ImportKernel(ImportContext& c) {
  return c.b().Ops(StrCat(c.node().domain, ".", c.node().op_type), c.node().inputs, c.attrs());
}

absl::Status CheckOperator(const OnnxtrainOperator& op) {
  if (op.name == nullptr || op.domain == nullptr || *op.name == 0 || *op.domain == 0)
    return Invalid("an operator has no domain or no name");
  const std::string name = RowName(op);
  if (FindOnnxOp(op.domain, op.name) != nullptr || FindOp(name) != nullptr)
    return Invalid("operator ", name, " is known already");
  if (op.decompose == nullptr && op.prepare == nullptr)
    return Invalid("operator ", name, " has neither a decomposition nor a kernel");
  if (op.decompose != nullptr && (op.prepare != nullptr || op.gradient != nullptr))
    return Invalid("operator ", name, " has a decomposition, and a kernel or gradient beside it");
  if (op.decompose == nullptr && op.infer == nullptr) return Invalid("operator ", name, " has no type rule");
  if (op.num_outputs < 1 || op.min_inputs < 0 || (op.max_inputs >= 0 && op.max_inputs < op.min_inputs))
    return Invalid("operator ", name, ": impossible numbers of inputs or outputs");
  for (size_t i = 0; i < op.num_attributes; ++i)
    RETURN_IF_ERROR(Annotate(FromPluginAttribute(op.attributes[i]).status(), StrCat("operator ", name, ": ")));
  return absl::OkStatus();
}

GradStatus GetGradStatus(const OnnxtrainOperator& op) {
  if (op.gradient != nullptr) return GradStatus::kFormula;
  return (op.flags & ONNXTRAIN_OPERATOR_ZERO_GRADIENT) != 0 ? GradStatus::kZero : GradStatus::kNotDifferentiable;
}

OpRow MakeRow(const OnnxtrainOperator& op, std::string_view name) {
  OpRow row{.name = name,
            .inputs = {.min = op.min_inputs, .max = op.max_inputs < 0 ? Arity::kMany : op.max_inputs},
            .outputs = op.num_outputs,
            .infer = Infer,
            .grad_status = GetGradStatus(op),
            .gradient = op.gradient == nullptr ? nullptr : GradientByLibrary,
            .precision = Precision::kFloat32,
            .recompute = Recompute::kExpensive,
            .overwrites = (op.flags & ONNXTRAIN_OPERATOR_ELEMENTWISE) != 0 ? kAnyInput : 0};
  for (size_t i = 0; i < op.num_attributes; ++i) {
    row.attrs.push_back({.name = op.attributes[i].name,
                         .value = FromPluginAttribute(op.attributes[i]).value(),
                         .required = i < op.num_required});
  }
  return row;
}

// Adds one operator, which was checked. What the tables refer to lives for ever.
void Register(const OnnxtrainOperator& op) {
  const auto* name = new std::string(RowName(op));
  GetRegistry().Add(*name, &op);
  if (op.prepare != nullptr) AddOp(*new OpRow(MakeRow(op, *name)), kHostKernels);
  // Inputs after the first may be weights of a layer.
  AddOnnxOp(*new OnnxOp{.domain = op.domain,
                        .op_type = op.name,
                        .min_inputs = op.min_inputs,
                        .max_inputs = op.max_inputs < 0 ? Arity::kMany : op.max_inputs,
                        .import = op.prepare != nullptr ? ImportKernel : ImportDecomposed,
                        .traits = {.weight_inputs = ~1u}});
}

absl::Status AddOperators(const OnnxtrainOperatorsApi& api) {
  std::set<std::string> names;
  for (size_t i = 0; i < api.num_operators; ++i) {
    RETURN_IF_ERROR(CheckOperator(api.operators[i]));
    if (!names.insert(RowName(api.operators[i])).second)
      return Invalid("operator ", RowName(api.operators[i]), " is listed twice");
  }
  for (size_t i = 0; i < api.num_operators; ++i) Register(api.operators[i]);
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadPlugin(const std::string& path) {
  static std::mutex mutex;
  static auto* loaded = new std::set<const OnnxtrainOperatorsApi*>;
  const std::lock_guard lock(mutex);
  ASSIGN_OR_RETURN(const OnnxtrainOperatorsApi* api, LoadOperatorsApi(path));
  if (api == nullptr) return Invalid(path, ": exports no OnnxtrainGetOperators");
  if (loaded->contains(api)) return absl::OkStatus();
  RETURN_IF_ERROR(Annotate(AddOperators(*api), StrCat(path, ": ")));
  loaded->insert(api);
  return absl::OkStatus();
}

absl::Status LoadPlugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) RETURN_IF_ERROR(LoadPlugin(path));
  return absl::OkStatus();
}

}  // namespace onnxtrain
