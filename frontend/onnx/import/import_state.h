// What the stages of one import share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/import/batch_unfixer.h"
#include "frontend/onnx/import/error_list.h"
#include "frontend/onnx/import/filled_weights.h"
#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/known_values.h"
#include "frontend/onnx/import/symbol_table.h"
#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {

struct UpdatedState {
  ValueId state, next;
  double momentum;  // as in StateUpdate
};

// What nodes ask for besides their outputs.
struct NodeEffects {
  std::map<ValueId, ValueId> logits;  // prediction of a classifier → what it is the softmax of
  std::vector<UpdatedState> updates;
  Val random_key;  // invalid: nothing draws random numbers
};

struct ImportState {
  ImportState(const OnnxModel::Parsed& parsed, const ImportOptions& import_options, const LiveGraph& live_graph,
              const InputShapes& shapes, std::vector<std::string>* import_notes);
  ImportState(const ImportState&) = delete;
  ImportState& operator=(const ImportState&) = delete;

  const OnnxModel::Parsed& model;
  const ImportOptions& options;
  const LiveGraph& live;
  const FloatTypes types;
  Graph graph;
  Builder builder;
  WeightTable weights;
  FilledWeights filled_weights;
  KnownValues known;
  BatchUnfixer batch_unfixer;
  ErrorList errors;
  SymbolTable symbols;
  NodeEffects effects;
  ImportScope top;
};

}  // namespace onnxtrain
