// The ImportContext that the import functions of operators see.
#pragma once

#include "frontend/onnx/import/import_state.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// One node of the model being imported. All arguments must outlive it.
class NodeImportContext : public ImportContext {
 public:
  NodeImportContext(ImportState& state, const ImportScope& scope, const ParsedNode& parsed, const NodeView& view);

  const HostTensor* Known(size_t i) override { return state_.known.Find(in(i)); }
  Val AttributeWeight(std::string_view attribute, HostTensor tensor) override;
  void SetLogits(Val prediction, Val logits) override;
  Val FindLogits(Val prediction) override;
  Val AsFloatWeight(size_t i, const HostTensor& value) override;
  absl::StatusOr<Val> AsState(size_t i) override;
  void UpdateState(Val state, Val value, double momentum) override;
  Val RandomKey() override;
  int64_t RandomStream() override;

 private:
  absl::Status CheckUpdate(const ImportWeight& weight, Val value) const;

  ImportState& state_;
  const ImportScope& scope_;
  const ParsedNode& parsed_;
};

}  // namespace onnxtrain
