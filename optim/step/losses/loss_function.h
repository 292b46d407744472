// The table of losses. Each is one expression over the model's output and labels that returns a loss per target or
// sample. The caller reduces and normalizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/ops/builder.h"
#include "optim/config/options.h"

namespace onnxtrain {

// The meaning of the labels of an output [N, …].
enum class LabelForm : uint8_t {
  kNone,          // no labels
  kClasses,       // class indices: the output's shape without its class axis, which is 1 or the last
  kDistribution,  // probabilities of the classes along the last axis: the output's shape
  kElements,      // a value or probability per element: the output's shape
  kSequence,      // class indices [N,S], right-padded with ignore_index; the output is [N,T,C] or [T,N,C]
};

struct LossContext {
  Val y;       // logits or predictions [N, …], see LossFunction::final_activations
  Val labels;  // [N, …]; invalid for kNone
  LabelForm form;
  const Options& options;
  int64_t ignore_index;  // label of excluded targets (kClasses)
  double label_smoothing;
  std::span<const double> class_weights;   // by class; empty: all 1
  std::optional<double> least_logit = {};  // from which the second of two classes is chosen; nullopt: above 0
  // Losses of pairs read these. Their y is [2N, …]: N chosen rows, then N rejected ones; `labels` has the labels of the
  // chosen rows.
  Val rejected = {};   // labels of the rejected rows, [N, …]
  Val reference = {};  // log-probabilities of both under the reference, [N, 2]; may be invalid

  double Option(std::string_view name, double otherwise) const { return OptionOr(options, name, otherwise); }
};

struct LossParts {
  Val losses;   // of any shape; the caller sums
  Val correct;  // scalar: correct predictions; invalid where the loss defines none
};

enum class LossMean : uint8_t {
  kTargets,  // over targets that are not ignored: one per class index or distribution, one per element
  kSamples,  // over samples
};

struct LossFunction {
  std::string_view name, alias;  // alias: a short name, or ""
  std::string_view text;         // formula, for people
  std::string_view takes;        // options read of label_smoothing, ignore_index, class_weights; separated by blanks
  std::vector<NumberOption> options;
  bool classes = false, elements = false, sequences = false;  // accepted label forms; all false: no labels
  std::string_view final_activations;  // the loss reads the logits before these operators; separated by blanks
  bool counts_correct = false;
  bool pairs = false;      // compares two rows of a sample: a chosen and a rejected answer
  bool reference = false;  // of pairs: reads log-probabilities of a reference; else compares averages over tokens
  LossMean mean = LossMean::kTargets;
  LossParts (*parts)(const LossContext&) = nullptr;
};

std::span<const LossFunction> ClassLosses();
std::span<const LossFunction> ElementLosses();
std::span<const LossFunction> RegionLosses();    // focal, dice
std::span<const LossFunction> SequenceLosses();  // ctc
std::span<const LossFunction> PairLosses();      // dpo, ipo, simpo, orpo

// Returns the loss with this name or alias; null if there is none.
const LossFunction* FindLoss(std::string_view name);
// Returns "cross_entropy, nll, …, output:NAME, onnx:FILE".
std::string LossNames();

// Returns the class axis of logits [N, …] whose labels are class indices of shape [N, label…]; nullopt where the shapes
// do not match.
std::optional<int> ClassAxis(const Shape& logits, Shape label);

// Returns 0, 1, …, classes − 1 along `axis` of a tensor of that rank; the other extents are 1.
Val ClassIndices(Builder& b, int64_t classes, int rank, int axis);

// The class axis in a loss over class indices: 1, or the last (-1). By default the axis that the labels lack, which is
// ambiguous only without labels.
inline constexpr NumberOption kClassAxisOption = {"axis", kOpenOption, -1, 15};

// Scores [rows, classes] or [N, classes, …] and labels without the class axis.
struct ClassPair {
  Val scores, labels;
};
// Moves the class axis to 1. Labels are class indices of a shape that ClassAxis accepts.
ClassPair AlignClasses(Val scores, Val labels);

struct GatheredClass {
  Val score;    // score of each label's class, in the labels' shape; arbitrary where ignored
  Val ignored;  // bool, in the labels' shape
};
GatheredClass GatherClassScores(const ClassPair& pair, int64_t ignore_index);

// The values that a loss of pairs compares, [N] each.
struct PairScores {
  Val chosen, rejected;                // log-probabilities, summed over the tokens that count
  Val chosen_tokens, rejected_tokens;  // numbers of these tokens, at least 1
  Val chosen_ratio, rejected_ratio;    // log-probabilities minus those of the reference, if there is one

  Val chosen_mean() const { return chosen / chosen_tokens; }
  Val rejected_mean() const { return rejected / rejected_tokens; }
};
PairScores ScorePairs(const LossContext& c);

// Rewards of a loss of pairs without its factor beta, [N] each.
struct PairRewards {
  Val chosen, rejected;
};
PairRewards GetPairRewards(const LossFunction& loss, const PairScores& scores);

// Counts labels that equal the argmax of the scores along `axis`: scalar.
Val CountCorrect(Val scores, Val labels, int64_t axis, DType dtype);
// Counts rows whose argmax equals that of the target distribution over the last axis.
Val CountCorrectSoft(Val scores, Val targets);
// Returns true for elements that are classified as class 1 of two: logit > 0, or logit >= least.
Val ChooseBinary(Val logits, std::optional<double> least);
// Counts elements where the predicted class equals target > 0.5.
Val CountCorrectBinary(const LossContext& c);

}  // namespace onnxtrain
