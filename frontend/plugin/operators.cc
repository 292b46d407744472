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
#include "frontend/ops/builder.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"
#include "frontend/plugin/library.h"
#include "frontend/plugin/onnxtrain_plugin.h"
#include "frontend/plugin/plugin_node.h"

// The opaque builder of the plugin interface.
struct OnnxtrainBuilder {
  onnxtrain::Builder& b;
};

namespace onnxtrain {
namespace {

// The arguments of a gradient or decomposition: the node, its values (invalid: absent) and the output gradients.
struct BuildRequest {
  Builder& b;
  PluginNode& node;
  std::span<const Val> inputs;
  std::span<const Val> outputs = {};
  std::span<const Val> output_grads = {};
};

using BuildFn = int (*)(const OnnxtrainBuildArgs* args, int32_t* results, OnnxtrainMessage* message);

constexpr int kOpset = 18;  // opset of ai.onnx in the plugin interface

// Imports a node into a graph under construction, without the context of a model.
class BuiltNodeContext : public ImportContext {
 public:
  BuiltNodeContext(Builder& b, const NodeView& view) {
    b_ = &b;
    node_ = &view;
  }

  const HostTensor* Known(size_t i) override { return has(i) ? in(i).constant() : nullptr; }
  absl::StatusOr<Val> AsState(size_t) override {
    return absl::UnimplementedError("has state, which a gradient or decomposition cannot have");
  }
  void UpdateState(Val, Val, double) override {}
  Val RandomKey() override {
    return b().Fail(absl::UnimplementedError("draws random numbers, which a gradient or decomposition cannot"));
  }
  int64_t RandomStream() override { return 0; }
};

int Fail(OnnxtrainBuilder* builder, absl::Status status) {
  builder->b.Fail(std::move(status));
  return ONNXTRAIN_PLUGIN_INVALID;
}

absl::StatusOr<std::vector<Val>> FindValues(Builder& b, const int32_t* ids, size_t count) {
  std::vector<Val> values;
  const auto known = static_cast<int32_t>(b.graph().values().size());
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < -1 || ids[i] >= known) return Invalid("there is no value ", ids[i]);
    values.push_back(b.Wrap(ids[i]));
  }
  while (!values.empty() && !values.back().valid()) values.pop_back();
  return values;
}

absl::StatusOr<Attrs> ReadAttributes(const OnnxtrainAttribute* attributes, size_t count) {
  Attrs attrs;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(AttrValue value, FromPluginAttribute(attributes[i]));
    attrs.Set(attributes[i].name, std::move(value));
  }
  return attrs;
}

absl::StatusOr<std::vector<Val>> AddNode(Builder& b, NodeView view, int num_outputs) {
  const OnnxOp* op = FindOnnxOp(view.domain, view.op_type);
  if (op == nullptr || op->import == nullptr) return absl::UnimplementedError("is not supported");
  const auto count = static_cast<int>(view.inputs.size());
  if (count < op->min_inputs || count > op->max_inputs) return Invalid("cannot have ", count, " inputs");
  view.num_outputs = num_outputs;
  view.used.assign(num_outputs, true);
  BuiltNodeContext context(b, view);
  ASSIGN_OR_RETURN(std::vector<Val> outputs, op->import(context));
  RETURN_IF_ERROR(b.status());
  if (static_cast<int>(outputs.size()) < num_outputs) return Invalid("has ", outputs.size(), " outputs");
  return outputs;
}

int AppendNode(OnnxtrainBuilder* builder, const char* domain, const char* op, const int32_t* inputs, size_t num_inputs,
               const OnnxtrainAttribute* attributes, size_t num_attributes, int32_t* outputs, size_t num_outputs) {
  Builder& b = builder->b;
  if (!b.status().ok()) return ONNXTRAIN_PLUGIN_INVALID;
  const std::string tag = StrCat("its node ", domain, *domain == 0 ? "" : ".", op, ": ");
  auto values = FindValues(b, inputs, num_inputs);
  if (!values.ok()) return Fail(builder, Annotate(values.status(), tag));
  auto attrs = ReadAttributes(attributes, num_attributes);
  if (!attrs.ok()) return Fail(builder, Annotate(attrs.status(), tag));
  NodeView view{.domain = domain,
                .op_type = op,
                .name = b.source(),
                .version = *domain == 0 ? kOpset : 1,
                .inputs = *std::move(values),
                .attrs = *std::move(attrs)};
  const auto results = AddNode(b, std::move(view), static_cast<int>(num_outputs));
  if (!results.ok()) {
    b.TakeStatus().IgnoreError();  // the same error without the tag
    return Fail(builder, Annotate(results.status(), tag));
  }
  for (size_t i = 0; i < num_outputs; ++i) outputs[i] = (*results)[i].valid() ? (*results)[i].id() : kNoValue;
  return ONNXTRAIN_PLUGIN_OK;
}

int AppendConstant(OnnxtrainBuilder* builder, const OnnxtrainTensorType* type, const void* data, int32_t* value) {
  auto tensor =
      FromPluginAttribute({.name = "constant", .kind = ONNXTRAIN_ATTRIBUTE_TENSOR, .type = type, .data = data});
  if (!tensor.ok()) return Fail(builder, tensor.status());
  const Val v = builder->b.Constant(std::get<HostTensor>(*std::move(tensor)));
  if (v.valid()) *value = v.id();
  return v.valid() ? ONNXTRAIN_PLUGIN_OK : ONNXTRAIN_PLUGIN_INVALID;
}

int AppendScalar(OnnxtrainBuilder* builder, double number, int32_t like, int32_t* value) {
  const auto values = FindValues(builder->b, &like, 1);
  if (!values.ok() || values->empty()) return Fail(builder, Invalid("there is no value ", like));
  const Val v = builder->b.Scalar(values->front().dtype(), number);
  if (v.valid()) *value = v.id();
  return v.valid() ? ONNXTRAIN_PLUGIN_OK : ONNXTRAIN_PLUGIN_INVALID;
}

constexpr OnnxtrainBuilderApi kBuilderApi = {.node = AppendNode, .constant = AppendConstant, .scalar = AppendScalar};

std::vector<int32_t> GetIds(std::span<const Val> values) {
  std::vector<int32_t> ids;
  for (const Val& v : values) ids.push_back(v.valid() ? v.id() : kNoValue);
  return ids;
}

// Calls a gradient or decomposition of a plugin and returns its `results` values; absent ones are invalid. After an
// error, which it stores in b.status(), returns only invalid values.
std::vector<Val> Build(const BuildRequest& request, BuildFn build, size_t results) {
  Builder& b = request.b;
  std::vector<Val> failed(results);
  if (!b.status().ok()) return failed;
  OnnxtrainBuilder builder{b};
  const std::vector<int32_t> inputs = GetIds(request.inputs), outputs = GetIds(request.outputs),
                             grads = GetIds(request.output_grads);
  const OnnxtrainNode& node = request.node.Get();
  const OnnxtrainBuildArgs args{.api = &kBuilderApi,
                                .builder = &builder,
                                .node = &node,
                                .inputs = inputs.data(),
                                .outputs = outputs.data(),
                                .output_grads = grads.data()};
  std::vector<int32_t> ids(results, kNoValue);
  PluginMessage message;
  const int code = build(&args, ids.data(), message.get());
  absl::Status status = b.TakeStatus();
  if (status.ok()) status = message.ToStatus(code, "its library failed");
  auto values = status.ok() ? FindValues(b, ids.data(), ids.size()) : status;
  if (!values.ok()) {
    b.Fail(Annotate(values.status(), NodeTag(node.op, node.source)));
    return failed;
  }
  values->resize(results);
  return *std::move(values);
}

// The operators of all loaded plugins, by row name. Entries are never removed.
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

// Fails if a value that a plugin built does not have the expected type.
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
  // All copies of the function share the state.
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

// Returns the attributes of a node, completed with defaults.
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

// Imports an operator as the nodes of its decomposition.
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

// Adds an operator that passed CheckOperator. Objects that the tables refer to are never freed.
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
