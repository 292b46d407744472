// The builder that gradients and decompositions of a library append nodes with.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "frontend/ops/builder.h"
#include "frontend/plugin/library.h"
#include "frontend/plugin/onnxtrain_plugin.h"
#include "frontend/plugin/plugin_node.h"

namespace onnxtrain {

// What a library builds on: a node, its values (invalid: absent), and the gradients that arrive.
struct BuildRequest {
  Builder& b;
  PluginNode& node;
  std::span<const Val> inputs;
  std::span<const Val> outputs = {};
  std::span<const Val> output_grads = {};
};

using BuildFn = int (*)(const OnnxtrainBuildArgs* args, int32_t* results, OnnxtrainMessage* message);

// Calls the library. Returns its results; one without a number, or after an error, which b.status() tells, is invalid.
std::vector<Val> Build(const BuildRequest& request, BuildFn build, size_t results);

}  // namespace onnxtrain
