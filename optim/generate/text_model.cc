#include "optim/generate/text_model.h"

#include <algorithm>
#include <optional>

#include "frontend/base/status.h"
#include "optim/plan/language_data.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/surgery.h"

namespace onnxtrain {

absl::StatusOr<TextModel> OpenTextModel(const TrainConfig& config, const std::optional<Preprocess>& before) {
  TextModel opened;
  ASSIGN_OR_RETURN(opened.model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(opened.loss, MakeLossSpec(config, *opened.model, before));
  if (!HasSurgery(config)) return opened;
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, opened.model, nullptr, opened.loss.logits));
  opened.model = std::move(surgery.model);
  if (!surgery.logits.empty()) opened.loss.logits = surgery.logits;
  return opened;
}

absl::StatusOr<std::unique_ptr<TextDecoder>> MakeDecoder(const TrainConfig& config, const Prompts& prompts,
                                                         const DecoderRequest& request) {
  ASSIGN_OR_RETURN(const auto language, FindLanguageModel(config, *request.model, request.loss));
  if (!language.has_value())
    return Invalid(request.model->path(), ": is no language model that predicts the next token");
  const LengthLimit& limit = language->limit;
  const int64_t positions = prompts.greatest_length();
  const bool both = limit.length > 0 && positions > 0;
  const DecoderOptions options{
      .rows = request.rows,
      .capacity = request.capacity,
      .exact_length = limit.exact ? limit.length : 0,
      .greatest_length = both ? std::min(limit.length, positions) : std::max(limit.length, positions),
      .vocabulary = language->rows,
      .logits = config.logits,
      .compute = request.compute};
  return TextDecoder::Create(request.model, request.backend, request.session, options);
}

}  // namespace onnxtrain
