// Finds what a model is trained on whose outputs are choices: the scores in front of ArgMax, of a comparison and the
// like.
#pragma once

#include <optional>
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

struct ChosenScores {
  std::string value;                // the scores; "": a gradient reaches an output, or no such value is in front of one
  bool smallest = false;            // the model chooses the smallest of them, as ArgMin does
  std::string end;                  // "[ArgMax 'label'] ", the operator that ends the gradient; "": none does
  std::string after;                // "[Sub 'reverse'] ", an operator that outputs something else than the choice
  std::vector<std::string> others;  // further values that outputs are chosen by
  std::string compared = {};        // "'a' and 'b'": both learn, and neither is what the model chooses by
  // The number that the scores are compared with, and the probability from which the second of two classes is chosen
  // where training makes probabilities of the scores. nullopt: at 0, or at a probability of 0.5.
  std::optional<double> limit = {}, least_probability = {};
};

// Looks at the outputs that a run would train on by default. `value` is empty where one of them has a gradient: what
// leads to it through views, casts and selections alone is no choice, and does not depend on one that decides its
// shape, as NonMaxSuppression does. The maximum of scores that another output chooses by does not count. Where `after`
// is not empty, training on `value` does not train the outputs.
ChosenScores FindChosenScores(const OnnxModel& model);

}  // namespace onnxtrain
