// Resolves names to values while a graph is imported.
#pragma once

#include <optional>
#include <string>

#include "frontend/onnx/import/error_list.h"
#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {

class SymbolTable {
 public:
  SymbolTable(Builder* builder, WeightTable* weights, ErrorList* errors)
      : builder_(*builder), weights_(*weights), errors_(*errors) {}

  // The value of a name in a scope or those around it; creates the values of initializers when they are first read.
  // Nothing where the node that defines it has failed; an invalid value where a function's caller leaves it out.
  std::optional<ImportValue> Find(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // The same for a tensor. Reports a list as an error of `reader` and then returns nothing.
  std::optional<Val> FindTensor(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // Whether everything that the node reads, in its bodies too, has been imported.
  bool CanRead(ImportScope& scope, const ParsedNode& node);
  // The values of the node's inputs, which CanRead has found.
  ImportValues FindInputs(ImportScope& scope, const ParsedNode& node);
  // Gives the node's outputs these values; missing ones become invalid.
  void Bind(ImportScope& scope, const ParsedNode& node, const ImportValues& results);

 private:
  Builder& builder_;
  WeightTable& weights_;
  ErrorList& errors_;
};

}  // namespace onnxtrain
