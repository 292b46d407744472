// Matches globs against weights, to choose trained, frozen, re-initialized and undecayed weights and their rates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// Returns the modules that contain a name, outermost first. "layer1.0.conv1.weight" yields layer1, layer1.0,
// layer1.0.conv1; so does "/layer1/layer1.0/conv1/Conv", whose scopes repeat the scope around them.
// "model/dense/kernel:0" yields model, model/dense and, with dots, model.dense.
std::vector<std::string> ListModules(std::string_view name);

// Returns true if a pattern (fnmatch's *, ?, […]) matches the weight's name, its name in the exported module (`alias`),
// the name of its consuming node with or without the operator, or a module of these. `consumer` is "Conv NODE" or
// empty.
bool MatchesWeight(const std::string& pattern, const std::string& name, const std::string& consumer,
                   const std::string& alias = "");

// The patterns of one configuration field, with the number of weights that each has matched.
class WeightGlobs {
 public:
  WeightGlobs(std::string_view field, std::vector<std::string> patterns)
      : field_(field), patterns_(std::move(patterns)), match_counts_(patterns_.size()) {}

  // Returns the first matching pattern, or null. Counts every matching pattern. `weight` is an ImportedWeight or a
  // WeightDecision.
  template <typename Weight>
  const std::string* Match(const Weight& weight) {
    return Match(weight.name, weight.consumer, weight.alias);
  }
  // Fails, naming the pattern, if one has matched nothing.
  absl::Status CheckAllMatched() const;

 private:
  const std::string* Match(const std::string& name, const std::string& consumer, const std::string& alias);

  std::string field_;
  std::vector<std::string> patterns_;
  std::vector<int> match_counts_;
};

}  // namespace onnxtrain
