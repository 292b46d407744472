#include "optim/generate/write_text.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/text/text_encoding.h"

namespace onnxtrain {

absl::StatusOr<std::vector<std::vector<int64_t>>> WriteText(TextDecoder& decoder,
                                                            std::span<const std::vector<int64_t>> prompts,
                                                            const GenerationSpec& spec, int64_t first,
                                                            const TokenListener& listener) {
  const auto rows = std::ssize(prompts);
  std::vector<std::vector<int64_t>> written(rows), next(prompts.begin(), prompts.end());
  next.resize(decoder.rows());
  std::vector<TokenSampler> samplers;
  for (int64_t row = 0; row < rows; ++row) {
    if (prompts[row].empty()) return Invalid("the prompt has no tokens");
    samplers.emplace_back(spec.sampling, first + row);
  }
  const auto is_open = [](const std::vector<int64_t>& tokens) { return !tokens.empty(); };
  while (std::ranges::any_of(next, is_open)) {
    RETURN_IF_ERROR(decoder.Append(next));
    for (int64_t row = 0; row < rows; ++row) {
      if (next[row].empty()) continue;
      next[row].clear();
      const bool full = std::ssize(written[row]) >= spec.max_new_tokens || decoder.length(row) >= decoder.capacity();
      if (full) continue;
      const int64_t token = samplers[row].Choose(decoder.logits(row));
      if (listener != nullptr) RETURN_IF_ERROR(listener(row, token));
      if (std::ranges::find(spec.stop, token) != spec.stop.end()) continue;
      written[row].push_back(token);
      if (std::ssize(written[row]) < spec.max_new_tokens) next[row] = {token};
    }
  }
  return written;
}

absl::StatusOr<std::vector<WrittenText>> WriteAnswers(TextDecoder& decoder, const Prompts& prompts,
                                                      std::span<const std::vector<int64_t>> asked,
                                                      const GenerationSpec& spec, int64_t number,
                                                      const std::atomic<bool>* stop) {
  std::vector<WrittenText> answers(asked.size());
  for (size_t first = 0; first < asked.size(); first += decoder.rows()) {
    const auto group = asked.subspan(first, std::min<size_t>(decoder.rows(), asked.size() - first));
    const auto listen = [&](int64_t row, int64_t token) -> absl::Status {
      if (stop != nullptr && stop->load()) return absl::CancelledError("stopped by a signal");
      answers[first + row].ended = std::ranges::find(spec.stop, token) != spec.stop.end();
      return absl::OkStatus();
    };
    for (int64_t row = 0; row < decoder.rows(); ++row) decoder.Truncate(row, 0);
    ASSIGN_OR_RETURN(const auto written, WriteText(decoder, group, spec, number + static_cast<int64_t>(first), listen));
    for (size_t row = 0; row < group.size(); ++row) {
      answers[first + row].tokens = std::ssize(written[row]);
      answers[first + row].text = RepairUtf8(prompts.Join(written[row]));  // the last character may be incomplete
    }
  }
  return answers;
}

GenerationSpec MakeGenerationSpec(const TrainConfig& config, const Prompts& prompts) {
  return {.max_new_tokens = config.max_new_tokens,
          .sampling = {config.temperature, config.top_p, config.top_k, config.seed},
          .stop = prompts.stop()};
}

}  // namespace onnxtrain
