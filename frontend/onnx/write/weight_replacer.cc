#include "frontend/onnx/write/weight_replacer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <onnx/onnx_pb.h>
#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"

namespace onnxtrain {
namespace {

using Positions = std::map<std::string, int>;  // node indices by output

Positions FindNodes(const onnx::GraphProto& graph) {
  Positions positions;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& output : graph.node(i).output()) positions.emplace(output, i);
  }
  return positions;
}

// Moves the last node to a position.
void MoveLast(int position, onnx::GraphProto* graph) {
  auto* nodes = graph->mutable_node();
  for (int i = graph->node_size() - 1; i > position; --i) nodes->SwapElements(i, i - 1);
}

bool HasReader(const FileReader& reader, const Positions& positions, const onnx::GraphProto& graph) {
  const auto node = positions.find(reader.node);
  return node != positions.end() && static_cast<int>(reader.input) < graph.node(node->second).input_size();
}

// Returns the copy of a value. Values that a node between the copied ones produces map to the copy of the last output.
const std::string& CopyOf(const std::string& value, const SplitNodes& split) {
  const auto found = std::ranges::find(split.outputs, value, &std::pair<std::string, std::string>::first);
  return found == split.outputs.end() ? split.outputs.back().second : found->second;
}

onnx::NodeProto MakeCopy(const onnx::NodeProto& node, const SplitNodes& split) {
  onnx::NodeProto copy = node;
  for (const auto& [old, own] : split.outputs) {
    std::replace(copy.mutable_input()->begin(), copy.mutable_input()->end(), old, own);
    std::replace(copy.mutable_output()->begin(), copy.mutable_output()->end(), old, own);
  }
  if (!copy.name().empty()) copy.set_name(copy.output(0));
  return copy;
}

}  // namespace

bool AddNodeCopies(const SplitNodes& split, onnx::GraphProto* graph) {
  const Positions positions = FindNodes(*graph);
  const bool complete =
      std::ranges::all_of(split.outputs, [&](const auto& output) { return positions.contains(output.first); }) &&
      std::ranges::all_of(split.readers, [&](const auto& reader) { return HasReader(reader, positions, *graph); });
  if (!complete) return false;
  for (const FileReader& reader : split.readers) {
    std::string* input = graph->mutable_node(positions.at(reader.node))->mutable_input(static_cast<int>(reader.input));
    *input = CopyOf(*input, split);
  }
  std::vector<onnx::NodeProto> made;
  std::set<int> copied;  // a node with several outputs is copied once
  for (const auto& [output, copy] : split.outputs) {
    const int at = positions.at(output);
    if (copied.insert(at).second) made.push_back(MakeCopy(graph->node(at), split));
  }
  int behind = *copied.rbegin() + 1;
  for (onnx::NodeProto& copy : made) {
    *graph->add_node() = std::move(copy);
    MoveLast(behind++, graph);
  }
  return true;
}

namespace {

// Fails if a finite weight overflows the stored type (65504 for f16).
absl::Status CheckFits(const LazyTensor& value, const LazyTensor& cast) {
  if (cast.dtype() == value.dtype()) return absl::OkStatus();
  absl::Status status;
  cast.ForEachBlock([&](int64_t begin, const HostTensor& block) {
    const HostTensor source = value.Read(begin, block.size());
    for (int64_t i = 0; i < block.size() && status.ok(); ++i) {
      if (std::isfinite(source.At(i)) && !std::isfinite(block.At(i)))
        status = Invalid("became ", source.At(i), ", which is beyond the range of the ", ToString(block.dtype()),
                         " that the file stores it in");
    }
    ReleaseMappedPages(source.bytes());
    return status.ok();
  });
  return status;
}

// Casts a weight to the stored type; quantized weights have it already.
absl::StatusOr<LazyTensor> CastLike(const LazyTensor& value, const Type& stored) {
  if (value.shape() != stored.shape)
    return Invalid("has the shape ", ToString(value.shape()), ", the file has ", ToString(stored.shape));
  if (value.dtype() == stored.dtype) return value;
  if (!IsFloat(stored.dtype))
    return Invalid("is stored as ", ToString(stored), ", and no node says what its numbers stand for");
  LazyTensor cast = value.CastTo(stored.dtype);
  RETURN_IF_ERROR(CheckFits(value, cast));
  return cast;
}

// Packs types below 8 bits, in memory.
LazyTensor ToStorage(const LazyTensor& value) {
  return StorageBits(value.dtype()) < 8 ? PackForStorage(value.Whole()) : value;
}

bool IsFilledWith(const HostTensor& tensor, const HostTensor& number) {
  const auto all = tensor.bytes(), one = number.bytes();
  for (size_t at = 0; at < all.size(); at += one.size()) {
    if (std::memcmp(all.data() + at, one.data(), one.size()) != 0) return false;
  }
  return true;
}

absl::Status ReplaceFloats(const HostTensor& value, onnx::AttributeProto* attribute) {
  if (value.shape() != Shape{attribute->floats_size()}) {
    return Invalid("has the shape ", ToString(value.shape()), ", the file has ", attribute->floats_size(), " floats");
  }
  for (int i = 0; i < attribute->floats_size(); ++i) attribute->set_floats(i, static_cast<float>(value.At(i)));
  return absl::OkStatus();
}

}  // namespace

WeightReplacer::WeightReplacer(onnx::ModelProto* model, ExternalFiles* files)
    : model_(*model), graph_(model->mutable_graph()), files_(*files) {
  const auto add = [&](onnx::GraphProto* graph) {
    for (auto& initializer : *graph->mutable_initializer()) initializers_.emplace(initializer.name(), &initializer);
    for (auto& node : *graph->mutable_node()) {
      for (const std::string& output : node.output()) producers_.emplace(output, &node);
    }
  };
  add(graph_);
  ForEachBody(graph_, add);
}

bool WeightReplacer::IsCopy(const std::string& name) const {
  const auto node = producers_.find(name);
  return !initializers_.contains(name) && node != producers_.end() && IsOnnxOp(*node->second, "Identity");
}

absl::Status WeightReplacer::Replace(const std::string& name, const LazyTensor& value) {
  if (auto it = initializers_.find(name); it != initializers_.end())
    return ReplaceTensor(value, it->second, &counts_.initializers);
  auto it = producers_.find(name);
  if (it == producers_.end()) return ReplaceInAttribute(name, value);
  if (IsOnnxOp(*it->second, "Constant")) {
    onnx::AttributeProto* attribute = FindAttribute(it->second, "value");
    if (attribute != nullptr && attribute->has_t())
      return ReplaceTensor(value, attribute->mutable_t(), &counts_.constants);
    attribute = FindAttribute(it->second, "value_floats");
    if (attribute != nullptr) {
      ++counts_.constants;
      return ReplaceFloats(value.Whole(), attribute);
    }
  }
  if (IsOnnxOp(*it->second, "Identity") && it->second->input_size() == 1) return ReplaceCopy(value, it->second);
  if (IsOnnxOp(*it->second, "ConstantOfShape") && it->second->input_size() == 1)
    return ReplaceFilled(value, it->second);
  return Invalid("is neither an initializer nor a Constant of the source model");
}

absl::StatusOr<HostTensor> WeightReplacer::ReadStored(const onnx::TensorProto& proto) {
  OwnedBytes raw_data;
  if (const auto at = extracted_.find(&proto); at != extracted_.end()) {
    const auto whole = std::make_shared<HostTensor>(at->second.Whole());
    raw_data = {whole->bytes(), whole};
  }
  ASSIGN_OR_RETURN(TensorOrKind tensor, ReadTensor(proto, nullptr, &files_, raw_data));
  if (!tensor.opaque.empty()) return Invalid("is stored as ", tensor.opaque);
  return tensor.tensor;
}

const onnx::TensorProto* WeightReplacer::FindTensor(const std::string& name) {
  if (auto it = initializers_.find(name); it != initializers_.end()) return it->second;
  auto it = producers_.find(name);
  if (it == producers_.end() || !IsOnnxOp(*it->second, "Constant")) return nullptr;
  const onnx::AttributeProto* value = FindAttribute(it->second, "value");
  return value != nullptr && value->has_t() ? &value->t() : nullptr;
}

absl::StatusOr<HostTensor> WeightReplacer::ReadConstant(const std::string& name) {
  const onnx::TensorProto* tensor = FindTensor(name);
  if (tensor == nullptr) return Invalid("is neither an initializer nor a Constant");
  return ReadStored(*tensor);
}

absl::Status WeightReplacer::ReplaceTensor(const LazyTensor& value, onnx::TensorProto* proto, int* changed) {
  ASSIGN_OR_RETURN(const HostTensor stored, ReadStored(*proto));
  ASSIGN_OR_RETURN(const LazyTensor cast, CastLike(value, stored.type()));
  // Unchanged values keep their bytes, also after a round trip through a wider type.
  if (cast.SameBytes(stored)) return absl::OkStatus();
  ++*changed;
  if (proto->data_location() == onnx::TensorProto::EXTERNAL) {
    external_[proto] = ToStorage(cast);
  } else if (const auto at = extracted_.find(proto); at != extracted_.end()) {
    at->second = ToStorage(cast);
  } else {
    StoreTensor(cast.Whole(), proto);
  }
  return absl::OkStatus();
}

// Replaces the weight OUTPUT.ATTRIBUTE, a list of floats in an attribute of a node of ai.onnx.ml.
absl::Status WeightReplacer::ReplaceInAttribute(const std::string& name, const LazyTensor& value) {
  const size_t dot = name.rfind('.');
  auto it = dot == std::string::npos ? producers_.end() : producers_.find(name.substr(0, dot));
  onnx::AttributeProto* attribute = it == producers_.end() ? nullptr : FindAttribute(it->second, name.substr(dot + 1));
  if (attribute == nullptr || attribute->floats_size() == 0) return Invalid("is not in the source model");
  RETURN_IF_ERROR(ReplaceFloats(FitFloats(value.Whole(), attribute->floats_size()), attribute));
  ++counts_.attributes;
  return absl::OkStatus();
}

// Replaces an Identity of a shared initializer by an initializer, because both were trained separately.
absl::Status WeightReplacer::ReplaceCopy(const LazyTensor& value, onnx::NodeProto* node) {
  auto it = initializers_.find(node->input(0));
  if (it == initializers_.end()) return Invalid("copies something that is not an initializer");
  ASSIGN_OR_RETURN(const HostTensor stored, ReadInitializer(node->input(0)));
  ASSIGN_OR_RETURN(const LazyTensor cast, CastLike(value, stored.type()));
  if (cast.SameBytes(stored)) return absl::OkStatus();
  ReplaceNode(node, cast.Whole());
  ++counts_.split_copies;
  return absl::OkStatus();
}

// Replaces a ConstantOfShape node by an initializer, unless the weight still has the fill value.
absl::Status WeightReplacer::ReplaceFilled(const LazyTensor& value, onnx::NodeProto* node) {
  const onnx::TensorProto* shape = FindTensor(node->input(0));
  if (shape == nullptr) return Invalid("is filled by a node whose shape is computed");
  ASSIGN_OR_RETURN(const HostTensor extents, ReadStored(*shape));
  const onnx::AttributeProto* attribute = FindAttribute(node, "value");
  HostTensor number = HostTensor::Scalar(DType::kFloat32, 0);
  if (attribute != nullptr && attribute->has_t()) {
    ASSIGN_OR_RETURN(number, ReadStored(attribute->t()));
  }
  if (number.size() != 1) return Invalid("is filled with ", number.size(), " numbers");
  ASSIGN_OR_RETURN(const LazyTensor cast, CastLike(value, {number.dtype(), extents.ToInts()}));
  if (IsFilledWith(cast.Whole(), number)) return absl::OkStatus();
  ReplaceNode(node, cast.Whole());
  ++counts_.filled;
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> WeightReplacer::ReadInitializer(const std::string& name) {
  const auto it = initializers_.find(name);
  if (it == initializers_.end()) return Invalid("is stored in '", Printable(name), "', which is not an initializer");
  const auto replaced = external_.find(it->second);
  return replaced != external_.end() ? replaced->second.Whole() : ReadStored(*it->second);
}

// Returns the value of the merged initializer; for an omitted bias, zeros of the weight's type.
absl::StatusOr<HostTensor> WeightReplacer::ReadMerged(const SplitWeight& split, const Shape& shape) {
  if (!split.merged.empty()) return ReadInitializer(split.merged);
  const auto node = producers_.find(split.readers.at(0).node);
  const auto weight = node == producers_.end() || node->second->input_size() < 2
                          ? initializers_.end()
                          : initializers_.find(node->second->input(1));
  if (weight == initializers_.end()) return Invalid("is the bias of a weight that the source model does not have");
  ASSIGN_OR_RETURN(const HostTensor stored, ReadStored(*weight->second));
  return HostTensor({stored.dtype(), shape});
}

absl::Status WeightReplacer::ReplaceSplit(const SplitWeight& split, const LazyTensor& value) {
  ASSIGN_OR_RETURN(const HostTensor merged, ReadMerged(split, value.shape()));
  ASSIGN_OR_RETURN(const LazyTensor cast, CastLike(value, merged.type()));
  if (cast.SameBytes(merged)) return absl::OkStatus();
  for (const FileReader& reader : split.readers) {
    onnx::NodeProto* node = FindReader(reader.node);
    const int inputs = node == nullptr ? 0 : node->input_size(), at = static_cast<int>(reader.input);
    if (node != nullptr && inputs == at && split.merged.empty()) node->add_input();
    if (at >= inputs + (split.merged.empty() ? 1 : 0))
      return Invalid("is read by '", Printable(reader.node), "', which the source model does not have");
    node->set_input(at, split.name);
  }
  AddInitializer(split.name, cast.Whole(), &model_);
  initializers_[split.name] = &*graph_->mutable_initializer()->rbegin();
  ++(split.merged.empty() ? counts_.restored_biases : counts_.split_weights);
  return absl::OkStatus();
}

// Returns the node with this output, or null; adds it to the graph if it is a copy from split_nodes_.
onnx::NodeProto* WeightReplacer::FindReader(const std::string& output) {
  const auto split = std::ranges::find_if(split_nodes_, [&](const SplitNodes& s) {
    return std::ranges::any_of(s.outputs, [&](const auto& made) { return made.second == output; });
  });
  if (split != split_nodes_.end()) {
    if (!AddNodeCopies(*split, graph_)) return nullptr;
    split_nodes_.erase(split);
    ++counts_.copied_nodes;
    for (auto& node : *graph_->mutable_node()) {
      for (const std::string& made : node.output()) producers_.emplace(made, &node);
    }
  }
  const auto found = producers_.find(output);
  return found == producers_.end() ? nullptr : found->second;
}

void WeightReplacer::ReplaceNode(const onnx::NodeProto* node, const HostTensor& value) {
  AddInitializer(node->output(0), value, &model_);
  replaced_nodes_.insert(node);
}

void WeightReplacer::RemoveReplacedNodes() {
  auto* nodes = graph_->mutable_node();
  nodes->erase(
      std::remove_if(nodes->begin(), nodes->end(), [&](const auto& node) { return replaced_nodes_.count(&node) > 0; }),
      nodes->end());
}

}  // namespace onnxtrain
