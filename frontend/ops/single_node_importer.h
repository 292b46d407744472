// Imports a single ONNX node without a file, for tools and tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

class SingleNodeImporter : public ImportContext {
 public:
  SingleNodeImporter(std::string_view op_type, int version, std::string_view domain = "") : builder_(&graph_) {
    view_.domain = domain;
    view_.op_type = op_type;
    view_.version = version;
    view_.used = {true};
    node_ = &view_;
    b_ = &builder_;
  }

  SingleNodeImporter& Input(Type type, InputKind kind = InputKind::kFeed) {
    view_.inputs.push_back(builder_.Input(kind, StrCat("x", view_.inputs.size()), std::move(type)));
    return *this;
  }
  SingleNodeImporter& Constant(HostTensor tensor) {
    view_.inputs.push_back(builder_.Constant(std::move(tensor)));
    return *this;
  }
  SingleNodeImporter& Absent() {
    view_.inputs.emplace_back();
    return *this;
  }
  SingleNodeImporter& Attr(std::string name, AttrValue value) {
    view_.attrs.Set(std::move(name), std::move(value));
    return *this;
  }
  SingleNodeImporter& Outputs(int n) {
    view_.num_outputs = n;
    view_.used.assign(n, true);
    return *this;
  }

  // Returns the outputs of the node, or the first error.
  absl::StatusOr<std::vector<Val>> Import() {
    const OnnxOp* op = FindOnnxOp(view_.domain, view_.op_type);
    if (op == nullptr) return absl::NotFoundError("no such operator");
    auto outputs = op->import(*this);
    if (!builder_.status().ok()) return builder_.status();
    return outputs;
  }
  Graph& graph() { return graph_; }
  const std::map<ValueId, ValueId>& updates() const { return updates_; }

  const HostTensor* Known(size_t i) override { return in(i).constant(); }
  absl::StatusOr<Val> AsState(size_t i) override {
    if (in(i).constant() != nullptr) return absl::InvalidArgumentError("not a weight");
    return in(i);
  }
  void UpdateState(Val state, Val value, double) override { updates_[state.id()] = value.id(); }
  Val RandomKey() override {
    if (!key_) key_ = builder_.Input(InputKind::kFeed, "key", {DType::kUInt32, {4}});
    return key_;
  }
  int64_t RandomStream() override { return 42; }

 private:
  Graph graph_;
  Builder builder_;
  NodeView view_;
  Val key_;
  std::map<ValueId, ValueId> updates_;
};

}  // namespace onnxtrain
