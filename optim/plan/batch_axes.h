// Finds the batch axis of each input and output of a model file: by the names of dimensions, by the operators that read
// an input, and by importing the model with two batch sizes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// By input or output, where it is not 0. As in ImportOptions.
using BatchAxes = std::map<std::string, int>;

// Is it the name that exporters give a batch dimension: "batch", "batch_size", "N"?
bool NamesBatch(const std::string& dim);

// The inputs with their batch axes moved to the front, as samples come.
std::vector<ModelInput> MoveBatchFirst(std::vector<ModelInput> inputs, const BatchAxes& axes);

// Candidates for the batch axes of the inputs, the likeliest first; at least one.
std::vector<BatchAxes> GuessBatchAxes(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Is every input a number or a vector of a fixed length? Then these are no batch of numbers but one sample.
bool AreOneSample(const std::vector<ModelInput>& inputs);

// Do the inputs have rows, whose number is free, and vectors of a fixed length? Then all rows share the vectors, whose
// elements are no batch.
bool ShareVectors(const std::vector<ModelInput>& inputs);

// Returns whether an input or output has no batch axis and gets one of extent 1: the model takes one sample at a time.
bool HasAddedAxis(const BatchAxes& axes);

// Returns axes with which a sample of each input is the whole tensor.
BatchAxes TakeWholeInputs(const std::vector<ModelInput>& inputs);

// Candidates for a model that runs with one sample only: a batch of 1 on the axes of GuessBatchAxes; rows of one input,
// whose first axis is free, with an input that is shared by all of them; no batch axis anywhere.
std::vector<BatchAxes> GuessSingleSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Candidates for data that fits no batch axes of the model: a sample of some inputs is the whole tensor. Leaves out
// those that contradict the name of a dimension ("batch").
std::vector<BatchAxes> GuessWholeSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs);

// Gives the outputs a batch axis of extent 1 that have none in the model imported with a batch of 1. Returns whether a
// float output is there.
bool AddOutputAxes(const ImportedModel& one, BatchAxes* axes);

// Does every input have a free first dimension that may be the batch of all? Then there is nothing to find out.
bool HasPlainBatch(const std::vector<ModelInput>& inputs, const BatchAxes& guess);

// The batch axes of the outputs, where the extents follow the batch from `two` to `three`: the model imported with
// batches of 2 and 3. Scalars and other outputs without a batch get kNoBatchAxis.
BatchAxes TraceOutputs(const ImportedModel& two, const ImportedModel& three);

// The batch of a model that may follow no other one: the extent that the batch axes of its feeds share; 1 where none is
// fixed or they differ. `import` has the batch axes and the inputs that are constants.
int64_t DeclaredBatch(const OnnxModel& model, const ImportOptions& import);

}  // namespace onnxtrain
