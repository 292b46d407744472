#include "frontend/onnx/export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "google/protobuf/io/zero_copy_stream_impl.h"

#include "frontend/base/atomic_file.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/onnx/external_writer.h"
#include "frontend/onnx/file.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/parsed.h"
#include "frontend/onnx/requantize.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/ops/onnx_import.h"

namespace onnxtrain {
namespace {

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

using TensorVisitor = std::function<absl::Status(onnx::TensorProto*)>;

absl::Status ForEachTensor(onnx::GraphProto* graph, const TensorVisitor& visit);

absl::Status ForEachTensor(onnx::SparseTensorProto* sparse, const TensorVisitor& visit) {
  RETURN_IF_ERROR(sparse->has_values() ? visit(sparse->mutable_values()) : absl::OkStatus());
  return sparse->has_indices() ? visit(sparse->mutable_indices()) : absl::OkStatus();
}

absl::Status ForEachTensor(onnx::NodeProto* node, const TensorVisitor& visit) {
  for (auto& attribute : *node->mutable_attribute()) {
    if (attribute.has_t()) RETURN_IF_ERROR(visit(attribute.mutable_t()));
    if (attribute.has_sparse_tensor()) RETURN_IF_ERROR(ForEachTensor(attribute.mutable_sparse_tensor(), visit));
    if (attribute.has_g()) RETURN_IF_ERROR(ForEachTensor(attribute.mutable_g(), visit));
    for (auto& tensor : *attribute.mutable_tensors()) RETURN_IF_ERROR(visit(&tensor));
    for (auto& sparse : *attribute.mutable_sparse_tensors()) RETURN_IF_ERROR(ForEachTensor(&sparse, visit));
    for (auto& graph : *attribute.mutable_graphs()) RETURN_IF_ERROR(ForEachTensor(&graph, visit));
  }
  return absl::OkStatus();
}

absl::Status ForEachTensor(onnx::GraphProto* graph, const TensorVisitor& visit) {
  for (auto& initializer : *graph->mutable_initializer()) RETURN_IF_ERROR(visit(&initializer));
  for (auto& sparse : *graph->mutable_sparse_initializer()) RETURN_IF_ERROR(ForEachTensor(&sparse, visit));
  for (auto& node : *graph->mutable_node()) RETURN_IF_ERROR(ForEachTensor(&node, visit));
  return absl::OkStatus();
}

// Wherever a model may hold tensors.
absl::Status ForEachTensor(onnx::ModelProto* model, const TensorVisitor& visit) {
  RETURN_IF_ERROR(ForEachTensor(model->mutable_graph(), visit));
  for (auto& function : *model->mutable_functions()) {
    for (auto& node : *function.mutable_node()) RETURN_IF_ERROR(ForEachTensor(&node, visit));
  }
  for (auto& training : *model->mutable_training_info()) {
    if (training.has_initialization()) RETURN_IF_ERROR(ForEachTensor(training.mutable_initialization(), visit));
    if (training.has_algorithm()) RETURN_IF_ERROR(ForEachTensor(training.mutable_algorithm(), visit));
  }
  return absl::OkStatus();
}

class Exporter {
 public:
  Exporter(onnx::ModelProto* model, const std::string& source, const std::string& target)
      : model_(model), graph_(model->mutable_graph()), files_(source), external_(source, target) {}

  absl::StatusOr<std::vector<std::string>> Edit(const std::map<std::string, HostTensor>& weights) {
    Index();
    for (const auto& [name, value] : weights) {
      RETURN_IF_ERROR(Annotate(Replace(name, value), StrCat("weight '", Printable(name), "' ")));
    }
    RETURN_IF_ERROR(PlaceExternal());
    LeaveTrainingMode();
    RemoveReplacedNodes();
    return Notes();
  }

  ExternalWriter& external() { return external_; }

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
    if (it == producers_.end()) return ReplaceInAttribute(name, value);
    if (IsOnnx(*it->second, "Constant")) {
      onnx::AttributeProto* attribute = FindAttribute(it->second, "value");
      if (attribute != nullptr && attribute->has_t()) return ReplaceTensor(value, attribute->mutable_t(), &constants_changed_);
      attribute = FindAttribute(it->second, "value_floats");
      if (attribute != nullptr) {
        ++constants_changed_;
        return ReplaceFloats(value, attribute);
      }
    }
    if (IsOnnx(*it->second, "Identity") && it->second->input_size() == 1) return Separate(value, it->second);
    if (IsOnnx(*it->second, "ConstantOfShape") && it->second->input_size() == 1) return Promote(value, it->second);
    return Invalid("is neither an initializer nor a Constant of the source model");
  }

  absl::StatusOr<HostTensor> Current(const onnx::TensorProto& proto) {
    ASSIGN_OR_RETURN(TensorOrKind tensor, ReadTensor(proto, nullptr, &files_));
    if (!tensor.opaque.empty()) return Invalid("is stored as ", tensor.opaque);
    return tensor.tensor;
  }

  static absl::StatusOr<HostTensor> CastLike(const HostTensor& value, const Type& stored) {
    if (value.shape() != stored.shape) return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape));
    if (!IsFloat(stored.dtype)) return Invalid("is stored as ", ToString(stored), ", which is no float");
    return value.CastTo(stored.dtype);
  }

  absl::StatusOr<HostTensor> Requantize(const std::string& name, const HostTensor& value, const HostTensor& stored) {
    return RequantizedFor(*graph_, name, value, stored, [&](const std::string& constant) -> absl::StatusOr<HostTensor> {
      const onnx::TensorProto* tensor = KnownTensor(constant);
      if (tensor == nullptr) return Invalid("is quantized with '", Printable(constant), "', which is no constant");
      return Current(*tensor);
    });
  }

  absl::Status ReplaceTensor(const HostTensor& value, onnx::TensorProto* proto, int* changed) {
    ASSIGN_OR_RETURN(const HostTensor stored, Current(*proto));
    ASSIGN_OR_RETURN(const HostTensor cast, IsFloat(stored.dtype()) ? CastLike(value, stored.type()) : Requantize(proto->name(), value, stored));
    // A value that went through a wider type and back is untouched: its bytes stay where and as they are.
    if (cast.SameBytes(stored)) return absl::OkStatus();
    ++*changed;
    if (proto->data_location() == onnx::TensorProto::EXTERNAL) {
      replaced_external_[proto] = AsInFile(cast);
    } else {
      Store(cast, proto);
    }
    return absl::OkStatus();
  }

  // OUTPUT.ATTRIBUTE: a weight that a node of ai.onnx.ml holds as a list of floats, whatever its shape.
  absl::Status ReplaceInAttribute(const std::string& name, const HostTensor& value) {
    const size_t dot = name.rfind('.');
    auto it = dot == std::string::npos ? producers_.end() : producers_.find(name.substr(0, dot));
    onnx::AttributeProto* attribute = it == producers_.end() ? nullptr : FindAttribute(it->second, name.substr(dot + 1));
    if (attribute == nullptr || attribute->floats_size() == 0) return Invalid("is not in the source model");
    RETURN_IF_ERROR(ReplaceFloats(value.Reshaped({value.size()}), attribute));
    ++attributes_changed_;
    return absl::OkStatus();
  }

  absl::Status ReplaceFloats(const HostTensor& value, onnx::AttributeProto* attribute) {
    if (value.shape() != Shape{attribute->floats_size()}) {
      return Invalid("has the shape ", ToString(value.shape()), ", the file has ", attribute->floats_size(), " floats");
    }
    for (int i = 0; i < attribute->floats_size(); ++i) attribute->set_floats(i, static_cast<float>(value.At(i)));
    return absl::OkStatus();
  }

  // A copy of an initializer that trained apart from it: an initializer takes the place of the Identity that made it.
  absl::Status Separate(const HostTensor& value, onnx::NodeProto* node) {
    auto it = initializers_.find(node->input(0));
    if (it == initializers_.end()) return Invalid("is a copy of what is no initializer");
    ASSIGN_OR_RETURN(const HostTensor stored, Current(*it->second));
    ASSIGN_OR_RETURN(const HostTensor cast, CastLike(value, stored.type()));
    TakePlaceOf(node, cast);
    ++separated_;
    return absl::OkStatus();
  }

  // A weight that a ConstantOfShape node fills: what was trained no longer is one number.
  absl::Status Promote(const HostTensor& value, onnx::NodeProto* node) {
    const onnx::TensorProto* shape = KnownTensor(node->input(0));
    if (shape == nullptr) return Invalid("is filled by a node whose shape is computed");
    ASSIGN_OR_RETURN(const HostTensor extents, Current(*shape));
    const onnx::AttributeProto* attribute = FindAttribute(node, "value");
    HostTensor number = HostTensor::Scalar(DType::kFloat32, 0);
    if (attribute != nullptr && attribute->has_t()) {
      ASSIGN_OR_RETURN(number, Current(attribute->t()));
    }
    if (number.size() != 1) return Invalid("is filled with ", number.size(), " numbers");
    ASSIGN_OR_RETURN(const HostTensor cast, CastLike(value, {number.dtype(), extents.ToInts()}));
    if (IsFilledWith(cast, number)) return absl::OkStatus();
    TakePlaceOf(node, cast);
    ++promoted_;
    return absl::OkStatus();
  }

  static bool IsFilledWith(const HostTensor& tensor, const HostTensor& number) {
    const auto all = tensor.bytes(), one = number.bytes();
    for (size_t at = 0; at < all.size(); at += one.size()) {
      if (std::memcmp(all.data() + at, one.data(), one.size()) != 0) return false;
    }
    return true;
  }

  // An initializer of the name of the node's output, which goes.
  void TakePlaceOf(const onnx::NodeProto* node, const HostTensor& value) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(node->output(0));
    tensor->set_data_type(static_cast<int32_t>(DTypeToOnnx(value.dtype())));
    for (int64_t d : value.shape()) tensor->add_dims(d);
    const HostTensor stored = AsInFile(value);
    tensor->set_raw_data(stored.bytes().data(), stored.bytes().size());
    if (model_->ir_version() < 4) ListAsInput(*tensor);
    replaced_nodes_.insert(node);
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

  // External data of the source, replaced or not, stays external.
  absl::Status PlaceExternal() {
    std::vector<std::pair<onnx::TensorProto*, size_t>> moved;
    RETURN_IF_ERROR(ForEachTensor(model_, [&](onnx::TensorProto* proto) {
      if (proto->data_location() != onnx::TensorProto::EXTERNAL) return absl::OkStatus();
      auto stored = ReadExternalBytes(*proto, &files_);
      if (!stored.ok()) return Annotate(stored.status(), StrCat("tensor '", Printable(proto->name()), "' "));
      auto replaced = replaced_external_.find(proto);
      const bool is_new = replaced != replaced_external_.end();
      moved.emplace_back(proto, external_.Add(stored->range, is_new ? replaced->second : stored->bytes, is_new));
      return absl::OkStatus();
    }));
    RETURN_IF_ERROR(external_.Place());
    for (const auto& [proto, i] : moved) SetRange(external_.range(i), proto);
    return absl::OkStatus();
  }

  static void SetRange(const ExternalRange& range, onnx::TensorProto* proto) {
    proto->clear_external_data();
    for (const auto& [key, value] : {std::pair<std::string, std::string>("location", range.location),
                                     {"offset", StrCat(range.offset)}, {"length", StrCat(range.length)}}) {
      auto* entry = proto->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
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
    note(attributes_changed_, "attributes replaced");
    note(promoted_, "ConstantOfShape nodes became initializers");
    note(separated_, "Identity nodes over shared initializers became initializers: the copies trained apart");
    note(modes_changed_, "BatchNormalization or Dropout nodes set to inference mode");
    note(static_cast<int>(external_.size()), "tensors written as external data");
    return notes;
  }

  onnx::ModelProto* model_;
  onnx::GraphProto* graph_;
  ExternalFiles files_;
  ExternalWriter external_;
  std::map<std::string, onnx::TensorProto*> initializers_;
  std::map<std::string, onnx::NodeProto*> producers_;
  std::set<std::string> read_;
  std::map<const onnx::TensorProto*, HostTensor> replaced_external_;
  std::set<const onnx::NodeProto*> replaced_nodes_;
  int initializers_changed_ = 0, constants_changed_ = 0, attributes_changed_ = 0, modes_changed_ = 0;
  int promoted_ = 0, separated_ = 0;
};

// Everything under temporary names first; then the data, because a model must never point at a file that is not there.
absl::Status Write(const onnx::ModelProto& model, ExternalWriter& external, const std::string& target) {
  const size_t size = model.ByteSizeLong();
  if (size > static_cast<size_t>(std::numeric_limits<int>::max() - 1)) {
    return Invalid("the trained model has ", size, " bytes, more than an ONNX file may have");
  }
  RETURN_IF_ERROR(external.Write());
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(target));
  google::protobuf::io::FileOutputStream stream(file.fd());
  if (!model.SerializeToZeroCopyStream(&stream) || !stream.Flush()) {
    return absl::UnavailableError(StrCat(target, ": cannot be written: ", std::strerror(stream.GetErrno())));
  }
  RETURN_IF_ERROR(external.Commit());
  return file.Commit();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Export(const std::string& source, const std::string& sha256,
                                                const std::map<std::string, HostTensor>& weights, const std::string& target,
                                                const ModelEdits& edits) {
  ASSIGN_OR_RETURN(const auto file, MapProtoFile(source));
  const std::string tag = StrCat(source, ": ");
  if (Sha256Hex(file->bytes()) != sha256) return absl::FailedPreconditionError(StrCat(tag, "has changed since it was imported"));
  auto model = ParseModelProto(file->bytes());
  if (!model.ok()) return OneLine(Annotate(model.status(), tag));
  file->DropResident();
  if (absl::Status s = ApplyEdits(edits, model->get()); !s.ok()) return OneLine(Annotate(s, tag));
  Exporter exporter(model->get(), source, target);
  auto notes = exporter.Edit(weights);
  if (!notes.ok()) return OneLine(Annotate(notes.status(), tag));
  RETURN_IF_ERROR(OneLine(Write(**model, exporter.external(), target)));
  notes->insert(notes->begin(), edits.lines.begin(), edits.lines.end());
  return notes;
}

absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                                                const std::string& target) {
  RETURN_IF_ERROR(model.CheckUnchanged());
  return Export(model.path(), model.sha256(), weights, target, model.edits());
}

}  // namespace onnxtrain
