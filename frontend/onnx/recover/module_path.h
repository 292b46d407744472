// Reads module paths and roles from the names that exporters give nodes and weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

// Splits "/layer1/layer1.0/conv1" at slashes.
std::vector<std::string> SplitModule(std::string_view path);

// Returns the scopes around a node: "layer1/layer1.0/conv1" of "/layer1/layer1.0/conv1/Conv"; "" without slashes.
std::string ScopePath(std::string_view node);

// Returns the module that a node is in, with dots: "layer1.0.conv1". Scopes that repeat the scope around them count
// once.
std::string DottedModule(std::string_view node);

// Return "weight" and "layers.0.norm" of "layers.0.norm.weight"; without dots, the path and "".
std::string_view LastPart(std::string_view path);
std::string_view ParentOf(std::string_view path);

// Whether an exporter made the name up: "onnx::MatMul_264", "val_23", "1042".
bool IsGeneratedName(std::string_view name);

// Whether older exporters of PyTorch give such a name to what they computed: "onnx::Add_123", "const_fold_opt__45".
bool IsComputedName(std::string_view name);

// Returns whether PyTorch's tracer calls the value of a Constant node so, "/layer/act/Constant_1_output_0", which
// optimizers of graphs turn into initializers, or Paddle's exporter a number of its own, "helper.constant.3".
bool IsTracedConstantName(std::string_view name);

// Whether the name ends in a word for a parameter: "logit_scale", "layers.0.gamma", "dense/bias:0".
bool IsParameterName(std::string_view name);

// Whether the name ends in one that libraries of PyTorch's models give to a buffer of numbers that nothing trains:
// "final_logits_bias".
bool IsBufferName(std::string_view name);

}  // namespace onnxtrain
