// Chooses the losses to train, the values they are computed on and their labels, and appends them to graphs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/text/alphabet.h"
#include "frontend/onnx/import.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

struct LossSpec {
  std::string name = "auto";  // auto, or a sum of losses: see loss_text.h
  std::string logits;         // name of the value to train on if a term names none; "": inferred
  std::string negated;        // name of the value whose sign is flipped because the model predicts its argmin
  std::optional<double> least_probability;  // threshold of the second of two classes; nullopt: 0.5
  std::string logits_why;                   // why it was inferred from the operators of the model, for people
  std::string gradient_end;                 // why no output has a gradient, if nothing was inferred; else ""
  int64_t ignore_index = -100;              // label of excluded targets (class losses)
  double label_smoothing = 0;
  std::vector<double> class_weights;            // weight of a target by its class; empty: all 1
  bool soft_labels = false;                     // feeds class labels as a share for each class, which can be mixed
  bool sum_outputs = false;                     // auto trains every output that fits, each with separate labels
  std::shared_ptr<const Alphabet> alphabet;     // texts of the classes of sequence losses; null: numbers
  bool pairs = false;                           // samples are pairs of rows, see LossContext::rejected
  std::map<std::string, LabelInfo> own_labels;  // labels of terms with a label option, by LossTermSpec::label_key()
  std::map<std::string, std::shared_ptr<const OnnxModel>> onnx;  // loss models by FILE of onnx:FILE (LoadOnnxLosses)
};

// Returns the logit of spec.least_probability, if that is set.
std::optional<double> LeastLogit(const LossSpec& spec);

struct OnnxLoss;  // onnx_functions.h

// A feed of labels, [micro_batch, sample…].
struct LossFeed {
  std::string name;         // "$label", "$label:1", …
  std::string label;        // a key of LossSpec::own_labels; "": the default label
  Type sample;              // element type and shape that the graph wants
  int64_t num_classes = 0;  // of class indices; 0: not class indices
  bool one_hot = false;     // class indices that are fed as a share for each class
};

// One term of the loss: factor · mean of function(value, labels).
struct LossTerm {
  const LossFunction* function = nullptr;
  Options options;
  double factor = 1;
  std::string output;        // the trained model output
  std::string activation;    // operator between logits and output: Softmax, LogSoftmax, Sigmoid; "": none
  ValueId value = kNoValue;  // logits or prediction, in the graph that the loss was chosen on
  LabelForm form = LabelForm::kNone;
  std::string feed;                           // LossFeed::name of the labels; "" for kNone
  std::string rejected_feed, reference_feed;  // of pairs
  std::string explanation;                    // "cross_entropy on the logits behind Softmax 'probs'"
  std::shared_ptr<const OnnxLoss> onnx;       // of onnx:FILE; else null

  int batch_axis() const;  // of `value`
  int64_t sample_rows() const { return function != nullptr && function->pairs ? 2 : 1; }
};

struct LossChoice {
  std::string name;             // "cross_entropy"; the whole expression where there are several terms
  std::string explanation;      // one line for people
  std::vector<LossTerm> terms;  // at least one
  std::vector<LossFeed> feeds;
  std::shared_ptr<const Alphabet> alphabet;  // as in LossSpec
  size_t lead = 0;       // the term whose accuracy is reported: the first that counts correct predictions, else 0
  bool classes = false;  // the leading term counts correct predictions

  const LossTerm& leading() const { return terms[lead]; }
  const std::string& output() const { return terms[lead].output; }
  // Returns the number of classes of the leading term's labels; 0 if they are not class indices.
  int64_t num_classes() const;
};

// Names of the feeds that a training graph adds.
inline constexpr char kLabelFeed[] = "$label";  // [micro_batch, label…]; further labels: "$label:1", …
// Begins the name of a feed of rejected rows: "$rejected:input_ids".
inline constexpr char kRejectedFeed[] = "$rejected:";
inline constexpr char kInverseDenominatorFeed[] =
    "$inverse_denominator";  // scalar per term: factor/W of the global batch

// Returns the name of a per-term tensor: `name` for term 0, "NAME:1", … for the others.
std::string TermName(std::string_view name, size_t term);

// Returns the name of a feed equal to `wanted`; adds it if there is none.
std::string FindOrAddFeed(const LossFeed& wanted, std::vector<LossFeed>* feeds);

// Returns the values that the imported graph must have as outputs; empty if the model's own outputs suffice.
absl::StatusOr<std::vector<std::string>> LossOutputs(const OnnxModel& model, const LossSpec& spec);

// Chooses outputs, label forms and loss functions from the model and the labels. Fails, listing the choices, if they
// are ambiguous.
absl::StatusOr<LossChoice> ChooseLoss(const ImportedModel& model, const LossSpec& spec, const LabelInfo& labels);

// Checks that the batch axis of labelled outputs has extent `batch` in the graph that the loss was chosen on.
absl::Status CheckLossBatch(const Graph& graph, const LossChoice& choice, int64_t batch);

// Scalars that AttachLoss appended.
struct LossValues {
  std::vector<ValueId> loss_sums;  // by term: sum over the targets of the micro-batch
  ValueId correct = kNoValue;      // correct predictions of the leading term; 0 where it counts none
};

// Appends the losses and their feeds to the graph that `choice` was made on.
// Returns the inputs of a term's function, whose feeds the graph has.
LossContext MakeLossContext(Graph* graph, Builder& b, const LossTerm& term, const LossSpec& spec);

absl::StatusOr<LossValues> AttachLoss(Graph* graph, const LossChoice& choice, const LossSpec& spec, int64_t batch);

}  // namespace onnxtrain
