// Finds the characters that the classes of a model stand for, and the length of labels that are texts.
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/bind/text_labels.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/config/loss_text.h"
#include "optim/plan/class_names.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_data.h"
#include "optim/plan/processor_config.h"
#include "optim/plan/training_data.h"

namespace onnxtrain {
namespace {

// The loss on the default labels, as it is configured.
struct SequenceLoss {
  bool named = false, open = false;  // ctc; auto
  std::string output;
  std::optional<int64_t> blank;
};

SequenceLoss FindSequenceLoss(const LossSpec& loss) {
  SequenceLoss found{.output = loss.logits};
  const auto terms = ParseLoss(loss.name);
  if (!terms.ok()) return found;
  for (const LossTermSpec& term : *terms) {
    if (!term.label.empty() || !term.file.empty()) continue;
    found.open |= term.function == nullptr && terms->size() == 1;
    if (term.function == nullptr || !term.function->sequences) continue;
    found.named = true;
    if (!term.output.empty()) found.output = term.output;
    if (const auto blank = term.options.find("blank"); blank != term.options.end())
      found.blank = static_cast<int64_t>(blank->second.at(0));
  }
  return found;
}

// Returns the classes of an output [N,T,C] or [T,N,C] of the imported model; 0: it has no such output.
int64_t FindStepClasses(const OnnxModel& model, const ImportOptions& import) {
  const auto imported = Import(model, import);
  if (!imported.ok()) return 0;
  for (const GraphOutput& found : imported->graph.outputs()) {
    const Type& type = imported->graph.type(found.value);
    if (type.rank() == 3 && IsFloat(type.dtype)) return type.shape.back();
  }
  return 0;
}

// Sets the open dimensions of inputs for lines of text with this height and number of channels, and for sounds.
void SetOpenDims(const OnnxModel& model, int64_t height, int64_t channels, ImportOptions* import) {
  const int64_t width = 16 * height;
  for (const ModelInput& input : model.inputs()) {
    Shape& shape = import->input_shapes[input.name] = input.dims;
    const int64_t picture[] = {1, channels, height, width};
    for (size_t i = 0; i < shape.size(); ++i) {
      const auto given = import->dim_values.find(i < input.dim_names.size() ? input.dim_names[i] : "");
      if (shape[i] < 0 && given != import->dim_values.end()) shape[i] = given->second;
      if (shape[i] < 0) shape[i] = shape.size() == 4 ? picture[i] : i == 0 ? 1 : width;
    }
    if (!input.has_shape) import->input_shapes.erase(input.name);
  }
}

// Returns the classes at the steps of an output of the model; 0: they are not known.
int64_t CountImportedClasses(TrainConfig config, const OnnxModel& model, const std::string& output) {
  config.data.clear();  // finds sizes for free dimensions
  config.input.clear();
  auto import = MakeImportOptions(config, model);
  if (!import.ok()) return 0;
  import->batch = 1;
  for (auto& [name, shape] : import->input_shapes) std::ranges::replace(shape, int64_t{-1}, int64_t{1});
  import->half_weights = true;
  if (!output.empty()) import->outputs = {output};
  int64_t classes = FindStepClasses(model, *import);
  for (const int64_t height : ListLineHeights(config, 0)) {
    for (const int64_t channels : {3, 1}) {
      if (classes > 0) return classes;
      SetOpenDims(model, height, channels, &*import);
      classes = FindStepClasses(model, *import);
    }
  }
  return classes;
}

// The declaration of an output [N,T,C] or [T,N,C].
struct SequenceOutput {
  int64_t classes = 0;    // 0: not declared
  bool possible = false;  // there may be such an output
};

// Exporters may declare no shape, or one of another rank whose extents are free.
SequenceOutput FindSequenceOutput(const OnnxModel& model, const std::string& output) {
  SequenceOutput found;
  for (const ParsedValue& value : model.parsed().graph.outputs) {
    if ((!output.empty() && value.name != output) || !value.dtype.has_value() || !IsFloat(*value.dtype)) continue;
    const bool fixed = value.has_shape && !value.dims.empty() && value.dims.back() > 0;
    found.possible |= !fixed || value.dims.size() == 3;
    if (fixed && value.dims.size() == 3) return {value.dims.back(), true};
  }
  return found;
}

// Returns true for models of text. Those of speech may take a mask of integers.
bool TakesTokens(const OnnxModel& model) {
  return std::ranges::any_of(model.inputs(),
                             [](const ModelInput& input) { return IsTokenInput(input) && !FindTokenRole(input.name); });
}

}  // namespace

absl::StatusOr<FoundAlphabet> FindAlphabet(const TrainConfig& config, const OnnxModel& model,
                                           const std::optional<Preprocess>& before, const LossSpec& loss) {
  const SequenceLoss wanted = FindSequenceLoss(loss);
  if (!wanted.named && (!wanted.open || TakesTokens(model))) return FoundAlphabet{};
  if (before.has_value() && !before->alphabet.texts.empty() && config.class_map.empty())
    return FoundAlphabet{.alphabet = std::make_shared<const Alphabet>(before->alphabet.texts, before->alphabet.blank),
                         .expects_texts = true};
  const SequenceOutput output = FindSequenceOutput(model, wanted.output);
  if (!output.possible && !wanted.named) return FoundAlphabet{};
  auto found = FindClassNames(config, model);
  if (!found.ok() || !found->has_value()) {
    if (!found.ok() && wanted.named) return found.status();
    return FoundAlphabet{.expects_texts = wanted.named};
  }
  ClassNames& names = **found;
  const int64_t classes = output.classes > 0 ? output.classes : CountImportedClasses(config, model, wanted.output);
  if (classes == 0 && !wanted.named) return FoundAlphabet{};
  if (classes == 0) return Invalid(names.where, ": how many classes the output has is not known (`loss` ctc@OUTPUT)");
  std::optional<int64_t> blank = wanted.blank;
  if (!blank.has_value() && names.blank_is_last && std::ssize(names.names) + 1 == classes) blank = classes - 1;
  const PictureForm form = names.pictures;
  auto alphabet = MakeAlphabet(std::move(names.names), classes, blank);
  if (!alphabet.ok() && !wanted.named) return FoundAlphabet{};  // a file of something else
  if (!alphabet.ok()) return Annotate(alphabet.status(), StrCat(names.where, ": "));
  std::string note = StrCat("labels are texts of the ", classes, " classes in ", names.where, "; class ",
                            (*alphabet)->blank(), " is the blank (`class_map`, `loss` ctc:blank=N)");
  return FoundAlphabet{
      .alphabet = *std::move(alphabet), .note = std::move(note), .expects_texts = true, .pictures = form};
}

void PadTextLabels(int64_t padding, BoundData* one, BoundData* other) {
  const auto length = [](const BoundData& data) -> int64_t {
    return data.label.info.present && data.label.info.sample.rank() == 1 ? data.label.info.sample.shape[0] : 0;
  };
  const int64_t longest = std::max(length(*one), length(*other));
  for (BoundData* data : {one, other}) {
    if (length(*data) == 0 || length(*data) == longest) continue;
    data->dataset = WithPadding(data->dataset, data->label.columns[0], longest, padding);
    data->label.info.sample.shape[0] = longest;
  }
}

}  // namespace onnxtrain
