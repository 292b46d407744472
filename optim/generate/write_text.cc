#include "optim/generate/write_text.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::vector<std::vector<int64_t>>> WriteText(TextDecoder& decoder,
                                                            std::span<const std::vector<int64_t>> prompts,
                                                            const GenerationSpec& spec, int64_t first,
                                                            const TokenListener& listener) {
  const auto rows = std::ssize(prompts);
  std::vector<std::vector<int64_t>> written(rows), next(prompts.begin(), prompts.end());
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

}  // namespace onnxtrain
