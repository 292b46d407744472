#include "optim/record/telemetry/graph_def.h"

#include <algorithm>
#include <map>
#include <set>

#include "frontend/base/strings.h"
#include "optim/record/telemetry/wire.h"

namespace onnxtrain {
namespace {

// A TensorShapeProto; free extents are -1.
std::string ShapeProto(const Shape& shape) {
  std::string proto;
  for (const int64_t extent : shape) proto += wire::Sub(2, wire::Integer(1, extent));
  return proto;
}

// The attribute "_output_shapes" with one shape.
std::string ShapeAttribute(const Shape& shape) {
  return wire::Sub(5, wire::Sub(1, "_output_shapes") + wire::Sub(2, wire::Sub(1, wire::Sub(7, ShapeProto(shape)))));
}

class Writer {
 public:
  // Adds a node whose outputs are these values; `attributes`: encoded.
  void Add(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
           const std::vector<std::string>& outputs, const std::string& attributes = "") {
    const std::string unique = Unique(name);
    std::string node = wire::Sub(1, unique) + wire::Sub(2, op);
    for (const std::string& input : inputs) {
      const auto made = made_by_.find(input);
      if (made != made_by_.end()) node += wire::Sub(3, made->second);
    }
    graph_ += wire::Sub(1, node + attributes);
    for (size_t i = 0; i < outputs.size(); ++i) made_by_[outputs[i]] = i == 0 ? unique : StrCat(unique, ":", i);
  }

  std::string Finish() const {
    constexpr int64_t kProducer = 22;  // a version of GraphDef that viewers know
    return graph_ + wire::Sub(4, wire::Integer(1, kProducer));
  }

 private:
  std::string Unique(std::string name) {
    if (name.find('/') == std::string::npos) std::ranges::replace(name, '.', '/');
    std::ranges::replace(name, ':', '_');  // separates a node from the number of its output
    name.erase(0, name.find_first_not_of('/'));
    if (name.empty()) name = "node";
    std::string unique = name;
    for (int copy = 1; !names_.insert(unique).second; ++copy) unique = StrCat(name, "_", copy);
    return unique;
  }

  std::set<std::string> names_;
  std::map<std::string, std::string> made_by_;  // value → "node" or "node:output"
  std::string graph_;
};

}  // namespace

std::string GraphDef(const OnnxModel& model) {
  Writer writer;
  for (const OnnxModel::Input& input : model.inputs())
    writer.Add(StrCat("input/", input.name), "Placeholder", {}, {input.name}, ShapeAttribute(input.dims));
  const std::vector<OnnxModel::Node> nodes = model.nodes();
  std::set<std::string> read;
  for (const OnnxModel::Node& node : nodes) read.insert(node.inputs.begin(), node.inputs.end());
  for (const std::string& name : model.InitializerNames()) {
    const HostTensor* weight = read.contains(name) ? model.Initializer(name) : nullptr;
    if (weight != nullptr) writer.Add(name, "Parameter", {}, {name}, ShapeAttribute(weight->shape()));
  }
  for (const OnnxModel::Node& node : nodes) writer.Add(node.source, node.op, node.inputs, node.outputs);
  for (const std::string& output : model.outputs()) writer.Add(StrCat("output/", output), "Output", {output}, {});
  return writer.Finish();
}

}  // namespace onnxtrain
