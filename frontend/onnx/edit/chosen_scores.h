// Finds the scores to train a model on whose outputs are choices: the values that ArgMax, a comparison and the like
// read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns the labels of the scores of `output` in their order, integers as text: those of an ai.onnx.ml classifier or
// ZipMap, or the table that the index of the best score is looked up in. If `output` is "", returns the labels on which
// all outputs that have labels agree. Empty if there are none.
std::vector<std::string> FindClassLabels(const OnnxModel& model, const std::string& output);

// Returns the labels that the indices 0, 1, … are mapped to by a lookup node: Gather, ArrayFeatureExtractor or
// LabelEncoder. Empty if the node looks up something else.
std::vector<std::string> LabelsByIndex(const ParsedGraph& graph, const ParsedNode& node);

struct ChosenScores {
  std::string value;                // the scores; "": a gradient reaches an output, or an output has no such value
  bool smallest = false;            // the model chooses the smallest score, as ArgMin does
  std::string end;                  // "[ArgMax 'label'] ", the operator that ends the gradient; "": none
  std::string after;                // "[Sub 'reverse'] ", an operator that computes the output from the choice
  std::vector<std::string> others;  // further values by which outputs are chosen
  std::string compared = {};        // "'a' and 'b'": both are trained, so neither alone decides
  // The number that the scores are compared with, and the probability from which the second of two classes is chosen if
  // training computes probabilities from the scores. nullopt: 0, or a probability of 0.5.
  std::optional<double> limit = {}, least_probability = {};
};

// Examines the outputs that a run trains on by default. `value` is empty if one of them has a gradient: a gradient
// through views, casts and selections alone does not count, nor one through a choice that decides the output's shape,
// as in NonMaxSuppression. The maximum of scores that another output chooses by does not count either. If `after` is
// not empty, training on `value` does not train the outputs.
ChosenScores FindChosenScores(const OnnxModel& model);

}  // namespace onnxtrain
