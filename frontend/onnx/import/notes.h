// Writes notes for users about the content of a model and its import.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import/import_state.h"

namespace onnxtrain {

// Appends notes about activations at outputs, weights and operators that training treats in a special way.
void NoteModel(const OnnxModel& model, const ImportState& state, const std::vector<std::string>& outputs,
               std::vector<std::string>* notes);

// Appends notes about weights that share bytes with others.
//
// One initializer with several readers is one weight: its gradients are summed. Two initializers with the same values
// are two weights (exporters fold the transpose of a tied embedding into a second initializer): equal bytes do not
// prove that they must stay equal.
void NoteTiedWeights(const WeightTable& weights, const LiveGraph& live, std::vector<std::string>* notes);

}  // namespace onnxtrain
