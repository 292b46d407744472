#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "optim/generate/write_text.h"

namespace onnxtrain {

TokenSampler::TokenSampler(const SamplingSpec& spec, int64_t text)
    : spec_(spec), random_(static_cast<uint64_t>(spec.seed) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(text)) {}

int64_t TokenSampler::Choose(std::span<const float> scores) {
  const auto best = std::ranges::max_element(scores);
  if (spec_.temperature == 0) return best - scores.begin();
  candidates_.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp((static_cast<double>(scores[i]) - *best) / spec_.temperature);
    if (weight > 0) candidates_.push_back({static_cast<int64_t>(i), weight});
  }
  KeepMostProbable();
  const double sum = std::accumulate(candidates_.begin(), candidates_.end(), 0.0,
                                     [](double before, const Candidate& c) { return before + c.weight; });
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.token;
  }
  return candidates_.back().token;
}

// Applies top_k, then top_p to what is left, as transformers does.
void TokenSampler::KeepMostProbable() {
  const auto count = static_cast<int64_t>(candidates_.size());
  if (spec_.top_k <= 0 && spec_.top_p >= 1) return;
  std::ranges::stable_sort(candidates_, std::greater<>(), &Candidate::weight);
  if (spec_.top_k > 0 && spec_.top_k < count) candidates_.resize(spec_.top_k);
  const double sum = std::accumulate(candidates_.begin(), candidates_.end(), 0.0,
                                     [](double before, const Candidate& c) { return before + c.weight; });
  size_t kept = 0;
  for (double reached = 0; kept < candidates_.size() && reached < spec_.top_p * sum; ++kept)
    reached += candidates_[kept].weight;
  candidates_.resize(std::max<size_t>(kept, 1));
}

}  // namespace onnxtrain
