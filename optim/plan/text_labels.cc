// Finds the characters that the classes of a model stand for, and the length of labels that are texts.
#include <algorithm>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/text_labels.h"
#include "frontend/data/sources/file.h"
#include "frontend/onnx/edit/output_layer.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/config/loss_text.h"
#include "optim/plan/open_data.h"
#include "optim/plan/training_data.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

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

// Returns the classes of an output [N,T,C] or [T,N,C]: its declared extent, else that of the last layer. 0: unknown, or
// the output has another shape. `declared`: the model must declare the shape.
int64_t CountSequenceClasses(const OnnxModel& model, const std::string& output, bool declared) {
  constexpr size_t kRank = 3;
  for (const ParsedValue& value : model.parsed().graph.outputs) {
    if ((!output.empty() && value.name != output) || !value.dtype.has_value() || !IsFloat(*value.dtype)) continue;
    if (value.has_shape ? value.dims.size() != kRank : declared) continue;
    if (value.has_shape && value.dims.back() > 0) return value.dims.back();
    const auto layer = FindOutputLayer(model, value.name);
    return layer.ok() ? layer->targets : 0;
  }
  return 0;
}

// The names of classes, and the file or the metadata where they were found.
struct Found {
  std::vector<std::string> names;
  std::string where;
  bool blank_is_last = false;
};

// Returns the characters in the metadata of models of PP-OCR, one per line.
std::vector<std::string> CharactersInMetadata(const OnnxModel& model) {
  const std::string& text = FindModelMetadata(model, "character");
  if (text.empty()) return {};
  std::vector<std::string> names = absl::StrSplit(text, '\n');
  for (std::string& name : names) {
    if (name.ends_with('\r')) name.pop_back();
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  return names;
}

absl::StatusOr<std::optional<Found>> FindNames(const TrainConfig& config, const OnnxModel& model) {
  if (!config.class_map.empty()) {
    auto names = ReadAlphabetNames(config.class_map);
    if (!names.ok()) return Annotate(names.status(), "`class_map`: ");
    return Found{.names = *std::move(names), .where = config.class_map};
  }
  if (std::vector<std::string> names = CharactersInMetadata(model); !names.empty())
    return Found{.names = std::move(names), .where = "the model's metadata (character)"};
  // NeMo and DeepSpeech put the blank behind the characters.
  constexpr std::pair<const char*, bool> kFiles[] = {
      {"vocab.json", false}, {"tokens.txt", true}, {"labels.json", false}, {"alphabet.txt", true}};
  for (const auto& [file, blank_is_last] : kFiles) {
    const std::string path = (fs::path(model.path()).parent_path() / file).string();
    if (model.in_memory() || !IsRegularFile(path)) continue;
    ASSIGN_OR_RETURN(std::vector<std::string> names, ReadAlphabetNames(path));
    return Found{.names = std::move(names), .where = path, .blank_is_last = blank_is_last};
  }
  return std::nullopt;
}

bool TakesTokens(const OnnxModel& model) { return std::ranges::any_of(model.inputs(), IsTokenInput); }

}  // namespace

absl::StatusOr<FoundAlphabet> FindAlphabet(const TrainConfig& config, const OnnxModel& model,
                                           const std::optional<Preprocess>& before, const LossSpec& loss) {
  const SequenceLoss wanted = FindSequenceLoss(loss);
  if (!wanted.named && (!wanted.open || TakesTokens(model))) return FoundAlphabet{};
  if (before.has_value() && !before->alphabet.texts.empty() && config.class_map.empty())
    return FoundAlphabet{.alphabet = std::make_shared<const Alphabet>(before->alphabet.texts, before->alphabet.blank),
                         .expects_texts = true};
  const int64_t classes = CountSequenceClasses(model, wanted.output, !wanted.named);
  if (classes == 0 && !wanted.named) return FoundAlphabet{};
  auto found = FindNames(config, model);
  if (!found.ok() || !found->has_value()) {
    if (!found.ok() && wanted.named) return found.status();
    return FoundAlphabet{.expects_texts = wanted.named};
  }
  Found& names = **found;
  if (classes == 0) return Invalid(names.where, ": how many classes the output has is not known (`loss` ctc@OUTPUT)");
  std::optional<int64_t> blank = wanted.blank;
  if (!blank.has_value() && names.blank_is_last && std::ssize(names.names) + 1 == classes) blank = classes - 1;
  auto alphabet = MakeAlphabet(std::move(names.names), classes, blank);
  if (!alphabet.ok() && !wanted.named) return FoundAlphabet{};  // a file of something else
  if (!alphabet.ok()) return Annotate(alphabet.status(), StrCat(names.where, ": "));
  std::string note = StrCat("labels are texts of the ", classes, " classes in ", names.where, "; class ",
                            (*alphabet)->blank(), " is the blank (`class_map`, `loss` ctc:blank=N)");
  return FoundAlphabet{.alphabet = *std::move(alphabet), .note = std::move(note), .expects_texts = true};
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
