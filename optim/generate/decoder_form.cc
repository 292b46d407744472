#include "optim/generate/decoder_form.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/names.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/text_setup.h"

namespace onnxtrain {
namespace {

// Pairs of texts in the names of a cache's inputs and outputs.
constexpr std::array<std::pair<const char*, const char*>, 4> kCacheNames = {{{"past_key_values", "present"},
                                                                             {"past_key_values", "present_key_values"},
                                                                             {"past_", "present_"},
                                                                             {"past", "present"}}};

bool HasOutput(const OnnxModel& model, const std::string& name) {
  return std::ranges::find(model.outputs(), name) != model.outputs().end();
}

// Returns the output that continues a cache; "" if none has its name.
std::string FindPresent(const OnnxModel& model, const std::string& past) {
  for (const auto& [input, output] : kCacheNames) {
    const std::string name = absl::StrReplaceAll(past, {{input, output}});
    if (name != past && HasOutput(model, name)) return name;
  }
  return "";
}

// Returns the axis of a cache that is its length, with the batch in front: the only free one, or the only one that is
// named so; -1 if there is none.
int FindLengthAxis(const ModelInput& input, int batch_axis) {
  const auto names_length = [](const std::string& name) {
    return absl::StrContains(name, "past") || absl::StrContains(name, "seq");
  };
  std::vector<int> free, named;
  for (int i = 0; i < std::ssize(input.dims); ++i) {
    if (i == batch_axis || input.dims[i] >= 0) continue;
    free.push_back(i);
    if (names_length(input.dim_names[i])) named.push_back(i);
  }
  const std::vector<int>& found = free.size() == 1 ? free : named;
  if (found.size() != 1) return -1;
  return found[0] < batch_axis ? found[0] + 1 : found[0];
}

class FormFinder {
 public:
  explicit FormFinder(const OnnxModel& model) : model_(model), natural_(FindDefaultInputs(model.inputs())) {}

  absl::StatusOr<DecoderForm> Find() {
    for (const ModelInput& input : model_.inputs()) RETURN_IF_ERROR(Add(input));
    if (form_.ids.empty()) return Invalid(model_.path(), ": has no input of token ids [batch, length]");
    if (!form_.empty_cache.empty()) {  // a cache is continued as a whole
      std::ranges::move(form_.cache, std::back_inserter(form_.empty_cache));
      form_.cache.clear();
    }
    return form_;
  }

 private:
  absl::Status Add(const ModelInput& input) {
    if (natural_.fixed.contains(input.name)) return AddNatural(input);
    if (IsPairMask(input)) return Set(input, &form_.pair_mask);
    if (IsTokenInput(input)) return AddTokens(input);
    if (!IsInteger(input.dtype) || input.dims.size() > 1) return Refuse(input);
    if (FindTokenRole(input.name) == TokenRole::kPositions) return Set(input, &form_.order);
    if (input.dims.empty() || input.dims[0] == 1) return form_.zeros.push_back(input.name), absl::OkStatus();
    return Refuse(input);
  }

  absl::Status AddNatural(const ModelInput& input) {
    const auto axis = natural_.batch_axes.find(input.name);
    if (axis == natural_.batch_axes.end()) return Set(input, &form_.branch);
    const CacheTensor cache = {.past = input.name,
                               .present = FindPresent(model_, input.name),
                               .empty = natural_.fixed.at(input.name),
                               .batch_axis = axis->second,
                               .length_axis = FindLengthAxis(input, axis->second)};
    const bool continues = !cache.present.empty() && cache.length_axis > 0;
    (continues ? form_.cache : form_.empty_cache).push_back(cache);
    return absl::OkStatus();
  }

  absl::Status AddTokens(const ModelInput& input) {
    const std::optional<TokenRole> role = FindTokenRole(input.name);
    if (!role.has_value()) return Set(input, &form_.ids);
    switch (*role) {
      case TokenRole::kMask:
        return Set(input, &form_.mask);
      case TokenRole::kPadding:
        return Set(input, &form_.padding);
      case TokenRole::kPositions:
        return Set(input, &form_.positions);
      default:
        return form_.zeros.push_back(input.name), absl::OkStatus();
    }
  }

  absl::Status Set(const ModelInput& input, std::string* place) const {
    if (!place->empty())
      return Invalid(model_.path(), ": inputs '", *place, "' and '", input.name, "' have the same role");
    *place = input.name;
    return absl::OkStatus();
  }

  absl::Status Refuse(const ModelInput& input) const {
    return Invalid(model_.path(), ": input '", input.name, "' is none of a decoder of text");
  }

  const OnnxModel& model_;
  const DefaultInputs natural_;
  DecoderForm form_;
};

}  // namespace

absl::StatusOr<DecoderForm> FindDecoderForm(const OnnxModel& model) { return FormFinder(model).Find(); }

}  // namespace onnxtrain
