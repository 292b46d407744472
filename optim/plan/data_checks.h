// Checks that the values of inputs and labels fit the model, and looks for likely mistakes in the data, such as another
// normalization of pixels. The loader's threads run the checks of values, so a step pays nothing. A hint never ends the
// run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/loader.h"
#include "frontend/onnx/import.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct TrainingRun;

// Returns a check for each loss term that aligns labels with steps (ctc): whether the outputs have enough steps for the
// labels of a sample. Empty if there is no such term, or if the data is a stream. `prepared` was prepared with these
// options. If samples differ in size, imports the model with each size to count its steps. The checks refer to
// data.dataset.
absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data);

// Sets FeedSpec::range of inputs that index a table of known extent, directly or through casts, reshapes and sums with
// a constant: ONNX's Gather accepts -n to n-1. Sets allow_nan of inputs whose NaN values the model replaces.
void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds);

// Returns, by value id, whether the value reaches a matrix product, convolution or recurrent layer without scaling or
// normalization.
std::vector<bool> FindUnscaled(const Graph& graph);

// Reads the first samples and returns the hints. Fails if one of the samples cannot be used.
absl::StatusOr<std::vector<std::string>> FindDataHints(const TrainingRun& run, const PreparedModel& prepared);

// Returns a hint if classes were numbered in the order of their names although the model has more classes; else "".
std::string DescribeGuessedClasses(const BoundData& data, const LossChoice& loss);

// The pixel normalization of the samples.
struct GivenPixels {
  std::string normalize;
  std::optional<bool> bgr = {};  // nullopt: the channel order cannot be chosen
  bool specified = false;        // the user chose the normalization
};

// Returns a hint if the model declares another normalization or channel order, else "". The declaration is read from
// the model's first nodes, or, if the user chose nothing, from its metadata (ONNX: Image.NominalPixelRange,
// Image.BitmapPixelFormat) or from preprocessor_config.json in its folder.
std::string DescribeDeclaredPixels(const OnnxModel& model, const ImportOptions& import, const FeedSpec& feed,
                                   const GivenPixels& given);

// Evaluates a trained classifier on a few samples with every common normalization and channel order. Returns a hint if
// one of them predicts the labels far better than that of `samples`; else "", also if the loss has no accuracy or no
// input is an image.
absl::StatusOr<std::string> FindBetterPixels(Session& session, const OpenedData& data, const TrainData& samples);

}  // namespace onnxtrain
