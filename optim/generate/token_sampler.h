// Chooses the next token from its scores.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace onnxtrain {

struct SamplingSpec {
  double temperature = 0;  // scores are divided by it; 0: the token with the greatest score
  double top_p = 1;        // draws among the most probable tokens that together reach this probability
  int64_t top_k = 0;       // draws among so many of the most probable tokens; 0: all
  int64_t seed = 42;
};

// Draws of one text. Equal scores and seeds give equal tokens on every machine.
class TokenSampler {
 public:
  // `text`: the number of the text among those with this seed.
  TokenSampler(const SamplingSpec& spec, int64_t text);

  int64_t Choose(std::span<const float> scores);

 private:
  struct Candidate {
    int64_t token;
    double weight;  // exp of its score, relative to the greatest one
  };
  void KeepMostProbable();

  SamplingSpec spec_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace onnxtrain
