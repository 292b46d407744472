// Globs over weights, as --train, --freeze, --reinit, --lr and --no-decay take them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// The modules that a name lies in, outermost first. Of an initializer "layer1.0.conv1.weight": layer1, layer1.0,
// layer1.0.conv1. Of a node "/layer1/layer1.0/conv1/Conv", where scopes repeat what they lie in: the same. Of a name with
// slashes "model/dense/kernel:0": model, model/dense and, with dots, model.dense.
std::vector<std::string> ModulesOf(std::string_view name);

// `consumer` is "Conv NODE", the weight's consuming node, or empty. A pattern (fnmatch's *, ?, […], or the name itself)
// may match the weight's name, the node's name with or without operator, or a module of either.
bool MatchesWeight(const std::string& pattern, const std::string& name, const std::string& consumer);

// The patterns of one flag, and which of them have met a weight.
class WeightGlobs {
 public:
  WeightGlobs(std::string_view flag, std::vector<std::string> patterns)
      : flag_(flag), patterns_(std::move(patterns)), hits_(patterns_.size()) {}

  // The first pattern that matches, or null. Every pattern that matches is counted.
  const std::string* Match(const std::string& name, const std::string& consumer);
  // An error that names a pattern which matched nothing.
  absl::Status CheckAllHit() const;

 private:
  std::string flag_;
  std::vector<std::string> patterns_;
  std::vector<int> hits_;
};

}  // namespace onnxtrain
