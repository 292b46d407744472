// The classes that a model file names itself.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns the labels of `output`'s scores in their order, integers as text: those of an ai.onnx.ml classifier or
// ZipMap, or the table that the index of the best score is looked up in. With output "": of the outputs that have
// labels, where they agree. Empty where the file names none.
std::vector<std::string> FindClassLabels(const OnnxModel& model, const std::string& output);

// Returns the labels that the indices 0, 1, … are mapped to by a node that looks them up: Gather, ArrayFeatureExtractor
// or LabelEncoder. Empty where it looks up something else.
std::vector<std::string> LabelsByIndex(const ParsedGraph& graph, const ParsedNode& node);

}  // namespace onnxtrain
