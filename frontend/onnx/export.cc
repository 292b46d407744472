#include "frontend/onnx/export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "frontend/base/atomic_file.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/onnx/file.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/parsed.h"
#include "frontend/onnx/tensor_proto.h"

namespace onnxtrain {
namespace {

constexpr size_t kExternalAlignment = 4096;  // what ONNX recommends for mapping

// Bytes into the field that held them before; raw_data where the typed field would need widening.
void Store(const HostTensor& value, onnx::TensorProto* proto) {
  const HostTensor stored = AsInFile(value);
  const auto bytes = stored.bytes();
  if (proto->float_data_size() > 0 && value.dtype() == DType::kFloat32) {
    std::memcpy(proto->mutable_float_data()->mutable_data(), bytes.data(), bytes.size());
  } else if (proto->double_data_size() > 0 && value.dtype() == DType::kFloat64) {
    std::memcpy(proto->mutable_double_data()->mutable_data(), bytes.data(), bytes.size());
  } else {
    proto->clear_float_data();
    proto->clear_double_data();
    proto->clear_int32_data();
    proto->set_raw_data(bytes.data(), bytes.size());
  }
}

bool IsOnnx(const onnx::NodeProto& node, std::string_view op_type) {
  return node.op_type() == op_type && (node.domain().empty() || node.domain() == "ai.onnx");
}

onnx::AttributeProto* FindAttribute(onnx::NodeProto* node, std::string_view name) {
  for (auto& attribute : *node->mutable_attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

class Exporter {
 public:
  Exporter(onnx::ModelProto* model, const std::string& source, const std::string& target)
      : model_(model), graph_(model->mutable_graph()), files_(source), target_(target) {}

  absl::StatusOr<std::vector<std::string>> Edit(const std::map<std::string, HostTensor>& weights) {
    Index();
    for (const auto& [name, value] : weights) {
      RETURN_IF_ERROR(Annotate(Replace(name, value), StrCat("weight '", Printable(name), "' ")));
    }
    RETURN_IF_ERROR(GatherExternal());
    LeaveTrainingMode();
    RemoveReplacedNodes();
    return Notes();
  }

  // The external data file, empty where there is none.
  const std::vector<std::byte>& external() const { return external_; }
  std::string external_path() const { return target_ + ".data"; }

 private:
  void Index() {
    for (auto& initializer : *graph_->mutable_initializer()) initializers_[initializer.name()] = &initializer;
    for (auto& node : *graph_->mutable_node()) {
      for (const std::string& output : node.output()) producers_[output] = &node;
      for (const std::string& input : node.input()) read_.insert(input);
    }
    for (const auto& output : graph_->output()) read_.insert(output.name());
  }

  absl::Status Replace(const std::string& name, const HostTensor& value) {
    if (auto it = initializers_.find(name); it != initializers_.end()) return ReplaceTensor(value, it->second, &initializers_changed_);
    auto it = producers_.find(name);
    if (it == producers_.end()) return Invalid("is not in the source model");
    if (IsOnnx(*it->second, "Constant")) {
      onnx::AttributeProto* attribute = FindAttribute(it->second, "value");
      if (attribute != nullptr && attribute->has_t()) return ReplaceTensor(value, attribute->mutable_t(), &constants_changed_);
      attribute = FindAttribute(it->second, "value_floats");
      if (attribute != nullptr) return ReplaceFloats(value, attribute);
    }
    if (IsOnnx(*it->second, "Identity") && it->second->input_size() == 1) return Separate(value, it->second);
    return Invalid("is neither an initializer nor a Constant of the source model");
  }

  absl::StatusOr<HostTensor> Current(const onnx::TensorProto& proto) {
    ASSIGN_OR_RETURN(TensorOrKind tensor, ReadTensor(proto, nullptr, &files_));
    if (!tensor.opaque.empty()) return Invalid("is stored as ", tensor.opaque);
    return tensor.tensor;
  }

  absl::StatusOr<HostTensor> CastLike(const HostTensor& value, const HostTensor& stored) {
    if (value.shape() != stored.shape()) return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape()));
    if (!IsFloat(stored.dtype())) return Invalid("is stored as ", ToString(stored.type()), ", which is no float");
    return value.CastTo(stored.dtype());
  }

  absl::Status ReplaceTensor(const HostTensor& value, onnx::TensorProto* proto, int* changed) {
    ASSIGN_OR_RETURN(const HostTensor stored, Current(*proto));
    ASSIGN_OR_RETURN(const HostTensor cast, CastLike(value, stored));
    // A value that went through a wider type and back is untouched: its bytes stay where and as they are.
    if (cast.SameBytes(stored)) return absl::OkStatus();
    ++*changed;
    if (proto->data_location() == onnx::TensorProto::EXTERNAL) {
      replaced_external_[proto] = cast.Clone();
    } else {
      Store(cast, proto);
    }
    return absl::OkStatus();
  }

  absl::Status ReplaceFloats(const HostTensor& value, onnx::AttributeProto* attribute) {
    if (value.shape() != Shape{attribute->floats_size()}) {
      return Invalid("has the shape ", ToString(value.shape()), ", the file has ", attribute->floats_size(), " floats");
    }
    for (int i = 0; i < attribute->floats_size(); ++i) attribute->set_floats(i, static_cast<float>(value.At(i)));
    ++constants_changed_;
    return absl::OkStatus();
  }

  // A copy of an initializer that trained apart from it: an initializer takes the place of the Identity that made it.
  absl::Status Separate(const HostTensor& value, onnx::NodeProto* node) {
    auto it = initializers_.find(node->input(0));
    if (it == initializers_.end()) return Invalid("is a copy of what is no initializer");
    ASSIGN_OR_RETURN(const HostTensor stored, Current(*it->second));
    ASSIGN_OR_RETURN(const HostTensor cast, CastLike(value, stored));
    onnx::TensorProto* copy = graph_->add_initializer();
    copy->set_name(node->output(0));
    copy->set_data_type(it->second->data_type());
    *copy->mutable_dims() = it->second->dims();
    const HostTensor bytes = AsInFile(cast);
    copy->set_raw_data(bytes.bytes().data(), bytes.bytes().size());
    if (model_->ir_version() < 4) ListAsInput(*copy);
    replaced_nodes_.insert(node);
    return absl::OkStatus();
  }

  // Before IR version 4, initializers had to be graph inputs as well.
  void ListAsInput(const onnx::TensorProto& tensor) {
    onnx::ValueInfoProto* input = graph_->add_input();
    input->set_name(tensor.name());
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (int64_t d : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(d);
  }

  void RemoveReplacedNodes() {
    auto* nodes = graph_->mutable_node();
    nodes->erase(std::remove_if(nodes->begin(), nodes->end(), [&](const auto& node) { return replaced_nodes_.count(&node) > 0; }), nodes->end());
  }

  // External data of the source, replaced or not, goes into one file beside the target.
  absl::Status GatherExternal() {
    for (auto& initializer : *graph_->mutable_initializer()) RETURN_IF_ERROR(MoveExternal(&initializer));
    return MoveExternalOfNodes(graph_);
  }

  absl::Status MoveExternalOfNodes(onnx::GraphProto* graph) {
    for (auto& node : *graph->mutable_node()) {
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) RETURN_IF_ERROR(MoveExternal(attribute.mutable_t()));
        if (!attribute.has_g()) continue;
        for (auto& initializer : *attribute.mutable_g()->mutable_initializer()) RETURN_IF_ERROR(MoveExternal(&initializer));
        RETURN_IF_ERROR(MoveExternalOfNodes(attribute.mutable_g()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MoveExternal(onnx::TensorProto* proto) {
    if (proto->data_location() != onnx::TensorProto::EXTERNAL) return absl::OkStatus();
    auto replaced = replaced_external_.find(proto);
    auto current = replaced != replaced_external_.end() ? absl::StatusOr<HostTensor>(replaced->second) : Current(*proto);
    if (!current.ok()) return Annotate(current.status(), StrCat("tensor '", Printable(proto->name()), "' "));
    const HostTensor stored = AsInFile(*current);
    external_.resize((external_.size() + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment);
    const std::string name = external_path().substr(external_path().rfind('/') + 1);
    proto->clear_external_data();
    for (const auto& [key, value] : {std::pair<std::string, std::string>("location", name),
                                     {"offset", StrCat(external_.size())}, {"length", StrCat(stored.bytes().size())}}) {
      auto* entry = proto->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    external_.insert(external_.end(), stored.bytes().begin(), stored.bytes().end());
    ++external_tensors_;
    return absl::OkStatus();
  }

  void LeaveTrainingMode() {
    for (auto& node : *graph_->mutable_node()) {
      if (IsOnnx(node, "BatchNormalization")) LeaveTrainingMode(&node);
      if (IsOnnx(node, "Dropout")) DisableDropout(&node);
    }
  }

  // Training mode is an attribute since opset 14 and before that the presence of statistics outputs. These exist in
  // training mode alone and may go if nobody reads them.
  void LeaveTrainingMode(onnx::NodeProto* node) {
    onnx::AttributeProto* mode = FindAttribute(node, "training_mode");
    const bool training = mode != nullptr ? mode->i() != 0 : node->output_size() > 1;
    if (!training) return;
    for (int i = 1; i < node->output_size(); ++i) {
      if (read_.count(node->output(i)) > 0) return;
    }
    if (mode != nullptr) mode->set_i(0);
    while (node->output_size() > 1) node->mutable_output()->RemoveLast();
    ++modes_changed_;
  }

  void DisableDropout(onnx::NodeProto* node) {
    if (node->input_size() < 3 || node->input(2).empty()) return;
    const onnx::TensorProto* mode = KnownTensor(node->input(2));
    if (mode == nullptr) return;
    auto value = Current(*mode);
    if (!value.ok() || value->size() != 1 || value->IntAt(0) == 0) return;
    node->mutable_input()->RemoveLast();  // absent: inference
    ++modes_changed_;
  }

  // The tensor of an initializer or of a Constant node; null for anything else.
  const onnx::TensorProto* KnownTensor(const std::string& name) {
    if (auto it = initializers_.find(name); it != initializers_.end()) return it->second;
    auto it = producers_.find(name);
    if (it == producers_.end() || !IsOnnx(*it->second, "Constant")) return nullptr;
    const onnx::AttributeProto* value = FindAttribute(it->second, "value");
    return value != nullptr && value->has_t() ? &value->t() : nullptr;
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    auto note = [&](int count, std::string_view what) {
      if (count > 0) notes.push_back(StrCat(count, " ", what));
    };
    note(initializers_changed_, "initializers replaced");
    note(constants_changed_, "Constant nodes replaced");
    note(static_cast<int>(replaced_nodes_.size()), "Identity nodes over shared initializers became initializers: the copies trained apart");
    note(modes_changed_, "BatchNormalization or Dropout nodes set to inference mode");
    note(external_tensors_, "tensors written as external data");
    return notes;
  }

  onnx::ModelProto* model_;
  onnx::GraphProto* graph_;
  ExternalFiles files_;
  std::string target_;
  std::map<std::string, onnx::TensorProto*> initializers_;
  std::map<std::string, onnx::NodeProto*> producers_;
  std::set<std::string> read_;
  std::map<const onnx::TensorProto*, HostTensor> replaced_external_;
  std::set<const onnx::NodeProto*> replaced_nodes_;
  std::vector<std::byte> external_;
  int initializers_changed_ = 0, constants_changed_ = 0, modes_changed_ = 0, external_tensors_ = 0;
};

absl::Status Write(const onnx::ModelProto& model, const Exporter& exporter, const std::string& target) {
  const size_t size = model.ByteSizeLong();
  if (size > static_cast<size_t>(std::numeric_limits<int>::max() - 1)) {
    return Invalid("the trained model has ", size, " bytes, more than an ONNX file may have");
  }
  std::vector<std::byte> bytes(size);
  if (!model.SerializeToArray(bytes.data(), static_cast<int>(size))) return Invalid("the trained model cannot be serialized");
  // The data first: a model must never point at a file that is not there yet.
  if (!exporter.external().empty()) RETURN_IF_ERROR(WriteFileAtomically(exporter.external_path(), exporter.external()));
  return WriteFileAtomically(target, bytes);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Export(const std::string& source, const std::string& sha256,
                                                const std::map<std::string, HostTensor>& weights, const std::string& target) {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadProtoFile(source));
  const std::string tag = StrCat(source, ": ");
  if (Sha256Hex(bytes) != sha256) return absl::FailedPreconditionError(StrCat(tag, "has changed since it was imported"));
  auto model = ParseModelProto(bytes);
  if (!model.ok()) return OneLine(Annotate(model.status(), tag));
  bytes = {};
  Exporter exporter(model->get(), source, target);
  auto notes = exporter.Edit(weights);
  if (!notes.ok()) return OneLine(Annotate(notes.status(), tag));
  RETURN_IF_ERROR(OneLine(Write(**model, exporter, target)));
  return notes;
}

}  // namespace onnxtrain
