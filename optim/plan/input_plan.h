// Decides how the inputs of a model are fed: which axis is the batch, the sizes of free dimensions, which inputs are
// constants.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/image/image_options.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// The batch axis by name of input or output; names with axis 0 are left out, as in ImportOptions.
using BatchAxes = std::map<std::string, int>;

// Returns true if exporters use this name for batch dimensions: "batch", "batch_size", "N".
bool NamesBatch(const std::string& dim);

// Returns the inputs with their batch axes moved to the front, the layout of samples.
std::vector<ModelInput> MoveBatchFirst(std::vector<ModelInput> inputs, const BatchAxes& axes);

// Returns candidates for the batch axes of the inputs, most likely first; at least one.
std::vector<BatchAxes> GuessBatchAxes(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Returns true if every input is a scalar or a vector of fixed length, so that the inputs form one sample, not a batch.
bool AreOneSample(const std::vector<ModelInput>& inputs);

// Returns true if some inputs have a free number of rows and others are vectors of fixed length. All rows then share
// the vectors, whose axis is no batch axis.
bool ShareVectors(const std::vector<ModelInput>& inputs);

// Returns true if an input or output has no batch axis and gets one of extent 1: the model takes one sample at a time.
bool HasAddedAxis(const BatchAxes& axes);

// Returns axes with which a sample of each input is the whole tensor.
BatchAxes TakeWholeInputs(const std::vector<ModelInput>& inputs);

// Returns candidates for a model that runs with one sample only: a batch of 1 on the axes of GuessBatchAxes; a batch of
// rows of one input whose first axis is free, with another input that all rows share; no batch axis at all.
std::vector<BatchAxes> GuessSingleSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Returns candidates for data that fits no batch axes of the model: a sample of some inputs is the whole tensor. Leaves
// out candidates that contradict the name of a dimension ("batch").
std::vector<BatchAxes> GuessWholeSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Adds a batch axis of extent 1 to the outputs that have none in the model imported with a batch of 1. Returns true if
// there is a float output.
bool AddOutputAxes(const ImportedModel& one, BatchAxes* axes);

// Returns true if every input has a free first dimension that may be the batch of all, so that no search is needed.
bool HasPlainBatch(const std::vector<ModelInput>& inputs, const BatchAxes& guess);

// Returns the batch axes of the outputs: the axes whose extents change from 2 to 3 between the model imported with
// batches of 2 (`two`) and 3 (`three`). Scalars and other outputs without a batch get kNoBatchAxis.
BatchAxes TraceOutputs(const ImportedModel& two, const ImportedModel& three);

// Returns the batch size of a model that may accept only the one in its file: the extent that the batch axes of its
// feeds share, or 1 if none is fixed or they differ. `import` has the batch axes and the inputs that are constants.
int64_t DeclaredBatch(const OnnxModel& model, const ImportOptions& import);

// Returns the sizes to try, most likely first: common sequence lengths and image heights.
std::span<const int64_t> TrialSizes();

// Evaluates a dimension whose name is an expression of sums and products, such as "past_length + 1": past lengths are
// `past`, all other names are `size`. Returns -1 for other expressions.
int64_t EvaluateDim(const std::string& name, int64_t size, int64_t past);

struct FreeDims {
  const OnnxModel& model;
  const std::map<std::string, int64_t>& given;  // --dim, by name
  int64_t size = 32;
  int64_t past = 0;
};

// Returns the extents of an input after its batch axis, axis 0, with sizes for its free dimensions: from `given`, from
// the requirements of a first layer, otherwise by name, so that equal names get equal sizes.
Shape SizeSample(const FreeDims& dims, const ModelInput& input);

// Returns the names of the non-batch dimensions of the input whose sizes have to be found.
std::set<std::string> FreeDimNames(const FreeDims& dims, const ModelInput& input);

// Returns the smallest power of two, up to 64, such that the model takes pictures whose height and width are multiples
// of it, and keeps picture-sized outputs at that size. Found by importing the model with several sizes. Fails if it
// accepts no other size, as with a dense layer on all pixels.
absl::StatusOr<int64_t> FindSizeMultiple(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                         const ImageOptions& images);

// Returns PictureSizes::multiple of the pictures that are fed; 0 if they have one size.
int64_t SizeMultiple(const BoundData& data);

// Fails, and names a file, if the model does not accept the lowest or the narrowest of the pictures.
absl::Status CheckSmallestPictures(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                   const BoundData& data);

// Reads a constant for an input, in the layout of the file: the array of @FILE.npy, or a number that fills all
// elements, with free extents of 1.
absl::StatusOr<HostTensor> ReadConstant(const ModelInput& input, const std::string& text);

// Returns a default value for an input without a batch axis: the usual audio rate for a sampling rate, false for
// booleans, 1 for other numbers, normally distributed values for float tensors. Free extents become `size`.
HostTensor DefaultConstant(const ModelInput& input, int64_t size);

struct InputRequest {
  std::map<std::string, int64_t> dims;           // --dim
  std::map<std::string, std::string> constants;  // by input: a number or @FILE.npy
  std::vector<std::string> outputs;              // LossOutputs
  bool batch_axis = true;                        // false: a sample of each input is the whole tensor
  bool sizes = true;  // finds sizes for free dimensions; false: finds only batch axes that are not obvious
};

// Describes the inputs of a run without data. The free dimensions of feeds have sizes that the model accepts, found by
// importing it; if it accepts none, `problem` is the error of the first attempt.
struct InputPlan {
  BatchAxes batch_axes;                       // axes of inputs and outputs
  std::map<std::string, HostTensor> fixed;    // empty caches, the user's constants, and defaults
  std::map<std::string, Shape> input_shapes;  // shapes of feeds; the batch axis comes first and is -1
  absl::Status problem;
};

// Plans the inputs. Fails on constants that fit no input.
absl::StatusOr<InputPlan> PlanInputs(const OnnxModel& model, const InputRequest& request);

}  // namespace onnxtrain
