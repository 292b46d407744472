#include "optim/plan/input_plan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

const std::string& DimName(const ModelInput& input, size_t axis) {
  static const std::string kNone;
  return axis < input.dim_names.size() ? input.dim_names[axis] : kNone;
}

// Returns the first axis for which `is_batch` holds, else kNoBatchAxis.
template <typename Predicate>
int FindAxis(const ModelInput& input, Predicate is_batch) {
  for (size_t i = 0; i < input.dims.size(); ++i) {
    if (is_batch(i)) return static_cast<int>(i);
  }
  return kNoBatchAxis;
}

void SetAxis(const ModelInput& input, int axis, BatchAxes* axes) {
  if (axis != 0) (*axes)[input.name] = axis;
}

// Guesses by names alone; nullopt if no dimension has the name of a batch.
std::optional<BatchAxes> GuessByName(const std::vector<ModelInput>& inputs) {
  BatchAxes axes;
  bool any = false;
  for (const ModelInput& input : inputs) {
    const int axis = FindAxis(input, [&](size_t i) { return NamesBatch(DimName(input, i)); });
    any |= axis != kNoBatchAxis;
    if (input.has_shape) SetAxis(input, axis, &axes);
  }
  return any ? std::optional(axes) : std::nullopt;
}

// The name or extent by which axis `axis` of `lead` identifies the batch in other inputs.
struct BatchDim {
  std::string name;
  int64_t extent;  // < 0: free
};

bool HasDim(const ModelInput& input, const std::string& name) {
  return std::ranges::find(input.dim_names, name) != input.dim_names.end();
}

// Returns true if the first axis is free and no other input has its name. Exporters number dimensions ("unk__12",
// "s77") and do not always find out which are equal, so such an axis may be a batch, too.
bool BeginsWithOwnFreeDim(const ModelInput& input, const std::vector<ModelInput>& inputs) {
  if (input.dims.empty() || input.dims[0] >= 0) return false;
  const std::string& name = DimName(input, 0);
  return name.empty() || std::ranges::none_of(inputs, [&](const ModelInput& other) {
           return other.name != input.name && HasDim(other, name);
         });
}

int FindBatchDim(const ModelInput& input, const BatchDim& batch, const std::vector<ModelInput>& inputs) {
  if (batch.extent >= 0) return FindAxis(input, [&](size_t i) { return input.dims[i] == batch.extent; });
  const int named = FindAxis(input, [&](size_t i) { return !batch.name.empty() && DimName(input, i) == batch.name; });
  return named == kNoBatchAxis && BeginsWithOwnFreeDim(input, inputs) ? 0 : named;
}

// Returns the batch axes if the batch is axis `axis` of the input `lead`.
BatchAxes GuessFrom(const std::vector<ModelInput>& inputs, const ModelInput& lead, int axis) {
  const BatchDim batch{DimName(lead, axis), lead.dims[axis]};
  BatchAxes axes;
  for (const ModelInput& input : inputs) {
    if (!input.has_shape) continue;
    SetAxis(input, &input == &lead ? axis : FindBatchDim(input, batch, inputs), &axes);
  }
  return axes;
}

// Treats a free unnamed axis that is the only free one of an input without a batch as its batch axis: states of
// recurrent models are [layers,batch,units].
BatchAxes TakeLoneFreeAxes(const std::vector<ModelInput>& inputs, BatchAxes axes) {
  for (const ModelInput& input : inputs) {
    const auto found = axes.find(input.name);
    if (found == axes.end() || found->second != kNoBatchAxis) continue;
    const auto is_free = [](int64_t extent) { return extent < 0; };
    if (std::ranges::count_if(input.dims, is_free) != 1) continue;
    const int free = FindAxis(input, [&](size_t i) { return is_free(input.dims[i]) && DimName(input, i).empty(); });
    if (free != kNoBatchAxis) found->second = free;
  }
  return axes;
}

// Returns the values that recurrent nodes with the time axis first read: their batch axis is 1.
std::set<std::string> FindTimeMajorValues(const OnnxModel& model) {
  std::set<std::string> values;
  for (const OnnxModel::Node& node : model.nodes()) {
    const OnnxOp* op = node.op.find('.') == std::string::npos ? FindOnnxOp("", node.op) : nullptr;
    if (op != nullptr && op->traits.time_major && !node.inputs.empty()) values.insert(node.inputs[0]);
  }
  return values;
}

}  // namespace

bool NamesBatch(const std::string& dim) {
  const std::string name = Lower(dim);
  const bool expression = name.find_first_of("+*/- ") != std::string::npos;
  return !expression &&
         (name.find("batch") != std::string::npos || name == "n" || name == "b" || name == "bs" || name == "bsz");
}

std::vector<ModelInput> MoveBatchFirst(std::vector<ModelInput> inputs, const BatchAxes& axes) {
  for (ModelInput& input : inputs) {
    const auto axis = axes.find(input.name);
    if (axis != axes.end() && axis->second == kAddedBatchAxis) {
      input.dim_names.resize(input.dims.size());
      input.dims.insert(input.dims.begin(), 1);
      input.dim_names.insert(input.dim_names.begin(), "");
    }
    if (axis == axes.end() || axis->second <= 0 || axis->second >= std::ssize(input.dims)) continue;
    input.dim_names.resize(input.dims.size());
    std::rotate(input.dims.begin(), input.dims.begin() + axis->second, input.dims.begin() + axis->second + 1);
    std::rotate(input.dim_names.begin(), input.dim_names.begin() + axis->second,
                input.dim_names.begin() + axis->second + 1);
  }
  return inputs;
}

std::vector<BatchAxes> GuessBatchAxes(const OnnxModel& model, const std::vector<ModelInput>& inputs) {
  std::vector<BatchAxes> guesses;
  const auto add = [&](BatchAxes guess) {
    if (std::ranges::find(guesses, guess) == guesses.end()) guesses.push_back(std::move(guess));
  };
  if (const auto named = GuessByName(inputs)) add(*named);
  const std::set<std::string> time_major = FindTimeMajorValues(model);
  for (const ModelInput& lead : inputs) {
    if (lead.dims.size() > 1 && time_major.contains(lead.name)) add(GuessFrom(inputs, lead, 1));
  }
  const auto lead = std::ranges::find_if(inputs, [](const ModelInput& input) { return !input.dims.empty(); });
  if (lead == inputs.end()) {
    add({});
    return guesses;
  }
  add(GuessFrom(inputs, *lead, 0));
  if (lead->dims.size() > 1) add(GuessFrom(inputs, *lead, 1));
  for (size_t i = 0, n = guesses.size(); i < n; ++i) add(TakeLoneFreeAxes(inputs, guesses[i]));
  return guesses;
}

bool AreOneSample(const std::vector<ModelInput>& inputs) {
  bool vectors = false;
  const bool small = std::ranges::all_of(inputs, [&](const ModelInput& input) {
    const bool vector = input.dims.size() == 1 && input.dims[0] > 1;
    vectors |= vector && !NamesBatch(DimName(input, 0));
    return !input.has_shape || input.dims.empty() || vector;
  });
  return small && vectors;
}

bool ShareVectors(const std::vector<ModelInput>& inputs) {
  bool rows = false, vectors = false;
  for (const ModelInput& input : inputs) {
    if (!input.has_shape || input.dims.empty()) continue;
    const bool is_vector = input.dims.size() == 1 && input.dims[0] > 1;
    if (input.dims[0] >= 0 && !is_vector) return false;
    (is_vector ? vectors : rows) = true;
  }
  return rows && vectors;
}

bool HasAddedAxis(const BatchAxes& axes) {
  return std::ranges::any_of(axes, [](const auto& entry) { return entry.second == kAddedBatchAxis; });
}

std::vector<BatchAxes> GuessSingleSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs) {
  std::vector<BatchAxes> guesses;
  const auto add_all_but = [&](const std::string& dim) {
    BatchAxes axes;
    for (const ModelInput& input : inputs) {
      const bool leads = !dim.empty() && !input.dims.empty() && DimName(input, 0) == dim;
      if (input.has_shape && !leads) axes[input.name] = input.dims.empty() ? kNoBatchAxis : kAddedBatchAxis;
    }
    if (std::ranges::find(guesses, axes) == guesses.end()) guesses.push_back(std::move(axes));
  };
  for (const BatchAxes& guess : GuessBatchAxes(model, inputs)) {
    const auto may_be_one = [&](const ModelInput& input) {
      const auto axis = guess.find(input.name);
      return input.dims.empty() || (axis != guess.end() && axis->second == kNoBatchAxis) || input.dims[0] <= 1;
    };
    if (std::ranges::all_of(MoveBatchFirst(inputs, guess), may_be_one)) guesses.push_back(guess);
  }
  for (const ModelInput& input : inputs) {
    if (!input.dims.empty() && input.dims[0] < 0) add_all_but(DimName(input, 0));
  }
  add_all_but("");
  return guesses;
}

BatchAxes TakeWholeInputs(const std::vector<ModelInput>& inputs) {
  BatchAxes axes;
  for (const ModelInput& input : inputs) {
    if (input.has_shape) axes[input.name] = kAddedBatchAxis;
  }
  return axes;
}

std::vector<BatchAxes> GuessWholeSamples(const OnnxModel& model, const std::vector<ModelInput>& inputs) {
  std::vector<BatchAxes> guesses;
  for (BatchAxes& axes : GuessSingleSamples(model, inputs)) {
    for (const ModelInput& input : inputs) {
      if (input.dims.empty() && input.has_shape) axes[input.name] = kAddedBatchAxis;
    }
    const auto contradicts = [&](const ModelInput& input) {
      const auto axis = axes.find(input.name);
      return axis != axes.end() && axis->second == kAddedBatchAxis &&
             Lower(DimName(input, 0)).find("batch") != std::string::npos;
    };
    if (std::ranges::none_of(inputs, contradicts) && HasAddedAxis(axes)) guesses.push_back(std::move(axes));
  }
  return guesses;
}

bool HasPlainBatch(const std::vector<ModelInput>& inputs, const BatchAxes& guess) {
  return guess.empty() && std::ranges::all_of(inputs, [](const ModelInput& input) {
           return !input.has_shape || input.dims.empty() || input.dims[0] < 0;
         });
}

BatchAxes TraceOutputs(const ImportedModel& two, const ImportedModel& three) {
  BatchAxes axes;
  for (const std::string& name : two.outputs) {
    const GraphOutput* more = three.graph.FindOutput(name);
    if (more == nullptr) continue;
    const Shape& a = two.graph.type(two.graph.FindOutput(name)->value).shape;
    const Shape& b = three.graph.type(more->value).shape;
    int axis = kNoBatchAxis;
    for (size_t i = 0; i < std::min(a.size(), b.size()) && axis == kNoBatchAxis; ++i) {
      if (a[i] == 2 && b[i] == 3) axis = static_cast<int>(i);
    }
    if (axis != 0) axes[name] = axis;
  }
  return axes;
}

bool AddOutputAxes(const ImportedModel& one, BatchAxes* axes) {
  int later = 0;  // the batch axis of inputs whose first axis is time
  for (const auto& [name, axis] : *axes) {
    if (one.graph.FindInput(name) != nullptr) later = std::max(later, axis);
  }
  bool any = false;
  for (const std::string& name : one.outputs) {
    const Type& type = one.graph.type(one.graph.FindOutput(name)->value);
    any |= IsFloat(type.dtype);
    if ((axes->contains(name) && axes->at(name) != kNoBatchAxis) || (type.rank() > 0 && type.shape[0] == 1)) continue;
    const bool moved = later > 0 && later < type.rank() && type.shape[later] == 1;
    (*axes)[name] = moved ? later : kAddedBatchAxis;
  }
  return any;
}

int64_t DeclaredBatch(const OnnxModel& model, const ImportOptions& import) {
  int64_t batch = 0;
  for (const ModelInput& input : MoveBatchFirst(model.inputs(), import.batch_axes)) {
    const auto axis = import.batch_axes.find(input.name);
    const bool batched = axis == import.batch_axes.end() || axis->second != kNoBatchAxis;
    if (!batched || import.fixed_inputs.contains(input.name) || input.dims.empty() || input.dims[0] < 1) continue;
    if (batch != 0 && batch != input.dims[0]) return 1;
    batch = input.dims[0];
  }
  return std::max<int64_t>(batch, 1);
}

}  // namespace onnxtrain
