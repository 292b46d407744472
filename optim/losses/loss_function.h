// Losses by name. One is written once, as an expression over the model's output and its labels that gives a loss for each
// target or sample; what their mean is taken over, and over which data, is decided outside.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/ops/builder.h"
#include "optim/options.h"

namespace onnxtrain {

// What the labels of an output [N, …] say.
enum class LabelForm : uint8_t {
  kNone,          // there are none
  kClasses,       // class indices: the output's shape without its class axis, which is 1 or the last
  kDistribution,  // a share of each class along the last axis: the output's shape
  kElements,      // a value, or a probability, of each element: the output's shape
  kSequence,      // class indices of any number, padded behind with ignore_index: [S], the output being [N,T,C] or [T,N,C]
};

struct LossContext {
  Val y;       // logits or predictions [N, …], as behind and LossFunction say
  Val labels;  // [N, …]; invalid for kNone
  LabelForm form;
  const Options& options;
  int64_t ignore_index;    // label that does not count (kClasses)
  double label_smoothing;
  std::span<const double> class_weights;  // of each class; empty: all 1

  double Option(std::string_view name, double otherwise) const { return OptionOr(options, name, otherwise); }
};

struct LossParts {
  Val losses;   // summed up by the caller
  Val correct;  // scalar: predictions that hit; invalid where the loss has none
};

enum class LossMean : uint8_t {
  kTargets,  // over labels that are not ignored; of a distribution one, of elements each
  kSamples,
};

struct LossFunction {
  std::string_view name, alias;  // alias: a short name, or ""
  std::string_view text;         // formula, for people
  std::string_view takes;        // which of label_smoothing, ignore_index, class_weights it reads, separated by blanks
  std::vector<NumberOption> options;
  bool classes = false, elements = false, sequences = false;  // the label forms that it knows; none: it has no labels
  std::string_view behind;       // it wants the logits behind these final activations, separated by blanks
  bool hits = false;             // it tells of correct predictions
  LossMean mean = LossMean::kTargets;
  LossParts (*parts)(const LossContext&) = nullptr;
};

std::span<const LossFunction> ClassLosses();
std::span<const LossFunction> ElementLosses();
std::span<const LossFunction> RegionLosses();    // focal, dice
std::span<const LossFunction> SequenceLosses();  // ctc

// Of any of the above, by name or alias; null where there is none.
const LossFunction* FindLoss(std::string_view name);
// "cross_entropy, nll, …, output:NAME, onnx:FILE"
std::string LossNames();

// The axis of the classes of logits [N, …] when a sample's labels are indices of this shape; nullopt where the shapes do not
// fit.
std::optional<int> ClassAxis(const Shape& logits, Shape label);

// [classes] as 0, 1, …, along `axis` of a tensor of that rank.
Val ClassIndices(Builder& b, int64_t classes, int rank, int axis);

}  // namespace onnxtrain
