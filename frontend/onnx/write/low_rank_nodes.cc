#include "frontend/onnx/write/low_rank_nodes.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <optional>
#include <string>

#include "frontend/base/status.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {
namespace {

void AddFactors(const LowRankUpdate& update, onnx::ModelProto* model) {
  AddInitializer(update.a_name(), Transpose(update.a).Whole(), model);
  AddInitializer(update.b_name(), Transpose(update.b).Whole(), model);
}

// Adds the factors of outputs that Export replaces.
void AddFactorsOfOutputs(const LowRankUpdates& parts, onnx::ModelProto* model) {
  const LowRankUpdate& last = parts.back();
  const int64_t outputs = last.outputs_before + last.b.shape()[0] + last.outputs_after;
  AddInitializer(parts[0].factor_name(), HostTensor({last.a.dtype(), {outputs}}), model);
}

std::string ScaleName(const LowRankUpdate& update) { return update.module + ".lora_scale"; }

// Returns a zero update of rank 1.
LowRankUpdate MakeZero(const LowRankUpdate& like, int64_t begin, int64_t outputs) {
  LowRankUpdate zero{.module = StrCat(like.module, ".zeros", begin)};
  zero.a = HostTensor({like.a.dtype(), {1, like.a.shape()[1]}});
  zero.b = HostTensor({like.a.dtype(), {outputs, 1}});
  return zero;
}

class Inserter {
 public:
  Inserter(bool scaled, onnx::ModelProto* model) : scaled_(scaled), model_(*model) {}

  void Add(const LowRankUpdates& parts) {
    const LowRankUpdates all = FillGaps(parts);
    for (const LowRankUpdate& part : all) {
      HostTensor scale({part.a.dtype(), {}});
      scale.Set(0, part.scale);
      if (scaled_) AddInitializer(ScaleName(part), scale, &model_);
    }
    for (const std::string& node : parts[0].nodes) updates_[node] = all;
  }

  // Inserts the nodes after their products, so that the order stays topological.
  absl::Status Insert() {
    FindIntegers();
    Nodes old;
    old.Swap(model_.mutable_graph()->mutable_node());
    for (onnx::NodeProto& node : old) {
      const auto update = node.output_size() == 0 ? updates_.end() : updates_.find(node.output(0));
      onnx::NodeProto* kept = model_.mutable_graph()->add_node();
      kept->Swap(&node);
      if (update == updates_.end()) continue;
      if (kept->op_type() == "Attention")
        return Invalid("no node can add an adapter to the product that is inside Attention '", Printable(kept->name()),
                       "': `adapter_out` merged adds it to the weight, peft writes the adapter alone");
      AddUpdate(update->second, kept);
      updates_.erase(update);
    }
    if (updates_.empty()) return absl::OkStatus();
    return Invalid("the product '", Printable(updates_.begin()->first), "' is not a node of the file");
  }

 private:
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  // Finds the products of integers.
  void FindIntegers() {
    std::map<std::string, const onnx::NodeProto*> producers;
    for (const onnx::NodeProto& node : model_.graph().node()) {
      for (const std::string& output : node.output()) producers[output] = &node;
    }
    const auto find = [&](const std::string& value) -> std::optional<NodeParts> {
      const auto found = producers.find(value);
      if (found == producers.end()) return std::nullopt;
      const auto& inputs = found->second->input();
      return NodeParts{.op_type = found->second->op_type(), .inputs = {inputs.begin(), inputs.end()}};
    };
    for (const auto& [node, parts] : updates_) {
      const auto integers = FindIntegerProduct(node, find);
      if (integers) integers_[node] = *integers;
    }
  }

  // Adds zero updates, with their initializers, for the outputs of the weight that no part changes.
  LowRankUpdates FillGaps(const LowRankUpdates& parts) {
    LowRankUpdates all;
    int64_t end = 0;
    const auto fill_to = [&](int64_t begin) {
      if (begin > end) AddFactors(all.emplace_back(MakeZero(parts[0], end, begin - end)), &model_);
      end = begin;
    };
    for (const LowRankUpdate& part : parts) {
      fill_to(part.outputs_before);
      all.push_back(part);
      end += part.b.shape()[0];
    }
    fill_to(end + parts.back().outputs_after);
    return all;
  }

  onnx::NodeProto* AddNode(const char* op, const std::vector<std::string>& inputs, const std::string& output) {
    onnx::NodeProto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name(StrCat(output, "/", op));
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    return node;
  }

  // Returns the floats that a value stands for; names them `name` if a node has to compute them.
  std::string AddFloats(const std::string& value, const Encoding& form, const std::string& name) {
    if (form.scale.empty()) return value;
    AddNode("DequantizeLinear", {value, form.scale, form.zero}, name);
    return name;
  }

  // Renames the result of the product, and computes the old name from it.
  void AddUpdate(const LowRankUpdates& parts, onnx::NodeProto* product) {
    const std::string y = product->output(0), base = y + "/base";
    const auto integers = integers_.find(y);
    const bool has_integers = integers != integers_.end();
    const Encoding rounded = has_integers ? integers->second.y_form : Encoding();
    const std::string x =
        has_integers ? AddFloats(integers->second.x, integers->second.x_form, y + "/x") : product->input(0);
    product->set_output(0, base);
    std::vector<std::string> ups;
    for (const LowRankUpdate& part : parts) {
      const std::string tag = parts.size() == 1 ? "" : StrCat(ups.size()), scaled = StrCat(y, "/lora_scaled", tag);
      std::string down = StrCat(y, "/lora_A", tag);
      AddNode("MatMul", {x, part.a_name()}, down);
      if (scaled_) AddNode("Mul", {std::exchange(down, scaled), ScaleName(part)}, scaled);
      AddNode("MatMul", {down, part.b_name()}, ups.emplace_back(StrCat(y, "/lora_B", tag)));
    }
    std::string up = ups[0];
    if (ups.size() > 1) SetAttribute("axis", int64_t{-1}, AddNode("Concat", ups, up = y + "/lora")->add_attribute());
    if (!rounded.scale.empty()) {
      AddNode("Add", {AddFloats(base, rounded, y + "/floats"), up}, y + "/sum");
      AddNode("QuantizeLinear", {y + "/sum", rounded.scale, rounded.zero}, y);
    } else if (!parts[0].has_magnitude()) {
      AddNode("Add", {base, up}, y);
    } else {
      AddScaledSum(parts[0].factor_name(), base, up, product);
    }
  }

  // Adds y = (base + up)·f, and bias·(1 − f) for a bias that is in base.
  void AddScaledSum(const std::string& factor, const std::string& base, const std::string& up,
                    const onnx::NodeProto* product) {
    const auto at = static_cast<int>(FindBiasInput(product->op_type()));
    const std::string bias = at < product->input_size() ? product->input(at) : "", y = base.substr(0, base.rfind('/'));
    const auto add = [&](const char* op, const std::string& a, const std::string& b, const std::string& name) {
      AddNode(op, {a, b}, name);
      return name;
    };
    const std::string sum = add("Add", base, up, y + "/sum");
    if (bias.empty()) {
      add("Mul", sum, factor, y);
      return;
    }
    const std::string rest = add("Sub", bias, add("Mul", bias, factor, y + "/bias_part"), y + "/bias_rest");
    add("Add", add("Mul", sum, factor, y + "/scaled"), rest, y);
  }

  const bool scaled_;
  onnx::ModelProto& model_;
  std::map<std::string, LowRankUpdates> updates_;   // by the first output of the product
  std::map<std::string, IntegerProduct> integers_;  // likewise
};

}  // namespace

absl::Status InsertLowRankNodes(const std::vector<LowRankUpdates>& updates, bool scaled, onnx::ModelProto* model) {
  Inserter inserter(scaled, model);
  for (const LowRankUpdates& parts : updates) inserter.Add(parts);
  return inserter.Insert();
}

absl::Status AddLowRankNodes(const WeightRecords& records, onnx::ModelProto* model) {
  std::vector<LowRankUpdates> quantized;
  for (const LowRankUpdates* parts : ListForms<LowRankUpdates>(records)) {
    if (!IsQuantized(parts->front()) || parts->front().sum) continue;
    if (parts->front().experts > 0)
      return Invalid("'", Printable(parts->front().module),
                     "' is a quantized stack of experts, beside which no node can add an adapter: `merge` requantize "
                     "writes the sum in its blocks, `adapter_out` peft the adapter alone");
    for (const LowRankUpdate& part : *parts) AddFactors(part, model);
    if (parts->front().has_magnitude()) AddFactorsOfOutputs(*parts, model);
    quantized.push_back(*parts);
  }
  return quantized.empty() ? absl::OkStatus() : InsertLowRankNodes(quantized, true, model);
}

}  // namespace onnxtrain
