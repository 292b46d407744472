// Which losses are trained, on which values, with which labels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/losses/loss_function.h"

namespace onnxtrain {

// What is known of labels before anything is built. The loss decides what tensor it wants from them.
struct LabelInfo {
  bool present = false;
  Type sample;                     // one sample's label: element type and shape, without the batch axis
  int64_t min_value = 0, max_value = 0;  // of integer labels
};

struct LossSpec {
  std::string name = "auto";       // auto, or a sum of losses: see loss_text.h
  std::string logits;              // name of the value to train on, where a loss names none; "": found
  int64_t ignore_index = -100;     // label that does not count (class losses)
  double label_smoothing = 0;
  std::vector<double> class_weights;  // what a target of each class counts, in losses that take it; empty: 1
  std::map<std::string, LabelInfo> own_labels;  // of losses with labels of their own, by LossTermSpec::label_key()
  std::map<std::string, std::shared_ptr<const OnnxModel>> onnx;  // the FILEs of onnx:FILE: see LoadOnnxLosses
};

struct OnnxLoss;  // onnx_loss.h

// A tensor that training feeds beside the model's inputs, [micro_batch, sample…].
struct LossFeed {
  std::string name;                // kLabelFeed, or made of it
  std::string label;               // which labels: a key of LossSpec::own_labels, or "" for the common one
  Type sample;                     // as the graph wants it
  int64_t num_classes = 0;         // of class indices, else 0
};

// One loss of the sum.
struct LossTerm {
  const LossFunction* function = nullptr;
  Options options;
  double factor = 1;
  std::string output;              // the model output that it trains
  ValueId value = kNoValue;        // what it is computed on, in the graph that was asked: logits, or the prediction
  LabelForm form = LabelForm::kNone;
  std::string feed;                // of its labels; "" for kNone
  std::string explanation;         // "cross_entropy on the logits behind Softmax 'probs'"
  std::shared_ptr<const OnnxLoss> onnx;  // of onnx:FILE, else null

  int batch_axis() const;          // of `value`
};

struct LossChoice {
  std::string name;                // "cross_entropy"; as it was given where there are several
  std::string explanation;         // one line for people
  std::vector<LossTerm> terms;     // at least one
  std::vector<LossFeed> feeds;
  size_t lead = 0;                 // the term that accuracy is told of: the first that has one, else the first
  bool classes = false;            // is accuracy meaningful?

  const LossTerm& leading() const { return terms[lead]; }
  const std::string& output() const { return terms[lead].output; }
  // Of integer labels of the leading term, else 0.
  int64_t num_classes() const;
};

// Names of the feeds that training adds.
inline constexpr char kLabelFeed[] = "$label";           // [micro_batch, label…]; "$label:1" and so on for more labels
inline constexpr char kInvWeightFeed[] = "$inv_weight";  // scalar: factor/W of the whole window

// The name of something that every term has: the name itself for the first, "NAME:1" and so on for the others.
std::string OfTerm(std::string_view name, size_t term);

// The name of the feed of these labels; added unless a term before wants the same.
std::string FeedOf(const LossFeed& wanted, std::vector<LossFeed>* feeds);

// The values that have to be outputs of the imported graph: the model's own where this is empty.
absl::StatusOr<std::vector<std::string>> LossOutputs(const OnnxModel& model, const LossSpec& spec);

// Decides by the rules of the command-line contract; anything ambiguous is an error that lists the choices.
absl::StatusOr<LossChoice> ChooseLoss(const ImportedModel& model, const LossSpec& spec, const LabelInfo& labels);

// That the outputs of labelled terms have the batch where they should, in the graph that the choice was made on.
absl::Status CheckLossBatch(const Graph& graph, const LossChoice& choice, int64_t batch);

// What AttachLoss appended; all scalars.
struct LossValues {
  std::vector<ValueId> loss_sums;   // of each term, over all targets of the micro-batch
  ValueId correct = kNoValue;       // predictions of the leading term that hit; zero where it has no classes
};

// Appends the losses to the graph that `choice` was made on, and their feeds.
absl::StatusOr<LossValues> AttachLoss(Graph* graph, const LossChoice& choice, const LossSpec& spec, int64_t batch);

}  // namespace onnxtrain
