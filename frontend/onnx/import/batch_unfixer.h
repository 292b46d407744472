// Constants that carry the batch a model was exported for.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/known_values.h"

namespace onnxtrain {

// Replaces the fixed batch by another one in the operands of nodes as they are imported: in the target shapes of
// Reshape, Expand and the like, and in what is concatenated with a batch. Does nothing where no batch is fixed.
class BatchUnfixer {
 public:
  // `fixed`: the batch of the file; 0: it is free.
  BatchUnfixer(int64_t fixed, int64_t batch, Builder* builder, KnownValues* known, std::vector<std::string>* notes)
      : fixed_(fixed), batch_(batch), builder_(*builder), known_(*known), notes_(*notes) {}

  absl::Status UnfixNode(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs);
  // Checks that every output that had the fixed batch has the new one.
  absl::Status CheckOutputs(const ParsedGraph& model, const InputShapes& shapes) const;

 private:
  absl::StatusOr<bool> UnfixShape(const ParsedNode& node, Val data, std::vector<int64_t>* target);
  bool RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead);
  void UnfixConcat(std::vector<Val>* inputs, const Attrs& attrs);

  const int64_t fixed_, batch_;
  Builder& builder_;
  KnownValues& known_;
  std::vector<std::string>& notes_;
};

}  // namespace onnxtrain
