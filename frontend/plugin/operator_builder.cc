#include "frontend/plugin/operator_builder.h"

#include <cstring>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"

struct OnnxtrainBuilder {
  onnxtrain::Builder& b;
};

namespace onnxtrain {
namespace {

constexpr int kOpset = 18;  // of ai.onnx, as the contract says

// A node that is imported into a graph that is built already.
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

int Node(OnnxtrainBuilder* builder, const char* domain, const char* op, const int32_t* inputs, size_t num_inputs,
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
    b.TakeStatus().IgnoreError();  // the same, without the tag
    return Fail(builder, Annotate(results.status(), tag));
  }
  for (size_t i = 0; i < num_outputs; ++i) outputs[i] = (*results)[i].valid() ? (*results)[i].id() : kNoValue;
  return ONNXTRAIN_PLUGIN_OK;
}

int Constant(OnnxtrainBuilder* builder, const OnnxtrainTensorType* type, const void* data, int32_t* value) {
  auto tensor =
      FromPluginAttribute({.name = "constant", .kind = ONNXTRAIN_ATTRIBUTE_TENSOR, .type = type, .data = data});
  if (!tensor.ok()) return Fail(builder, tensor.status());
  const Val v = builder->b.Constant(std::get<HostTensor>(*std::move(tensor)));
  if (v.valid()) *value = v.id();
  return v.valid() ? ONNXTRAIN_PLUGIN_OK : ONNXTRAIN_PLUGIN_INVALID;
}

int Scalar(OnnxtrainBuilder* builder, double number, int32_t like, int32_t* value) {
  const auto values = FindValues(builder->b, &like, 1);
  if (!values.ok() || values->empty()) return Fail(builder, Invalid("there is no value ", like));
  const Val v = builder->b.Scalar(values->front().dtype(), number);
  if (v.valid()) *value = v.id();
  return v.valid() ? ONNXTRAIN_PLUGIN_OK : ONNXTRAIN_PLUGIN_INVALID;
}

constexpr OnnxtrainBuilderApi kApi = {.node = Node, .constant = Constant, .scalar = Scalar};

std::vector<int32_t> GetIds(std::span<const Val> values) {
  std::vector<int32_t> ids;
  for (const Val& v : values) ids.push_back(v.valid() ? v.id() : kNoValue);
  return ids;
}

}  // namespace

std::vector<Val> Build(const BuildRequest& request, BuildFn build, size_t results) {
  Builder& b = request.b;
  std::vector<Val> failed(results);
  if (!b.status().ok()) return failed;
  OnnxtrainBuilder builder{b};
  const std::vector<int32_t> inputs = GetIds(request.inputs), outputs = GetIds(request.outputs),
                             grads = GetIds(request.output_grads);
  const OnnxtrainNode& node = request.node.Get();
  const OnnxtrainBuildArgs args{.api = &kApi,
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

}  // namespace onnxtrain
