// Finds the batch axis of each input and output of a model file: by the names of dimensions, by the operators that read
// an input, and by importing the model with two batch sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

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

}  // namespace onnxtrain
