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

// Returns true if an exporter made the name up: "onnx::MatMul_264", "val_23", "1042".
bool IsGeneratedName(std::string_view name);

// Returns true for names that older exporters of PyTorch give to values they computed: "onnx::Add_123",
// "const_fold_opt__45".
bool IsComputedName(std::string_view name);

// Returns whether PyTorch's tracer calls the value of a Constant node so, "/layer/act/Constant_1_output_0", which
// optimizers of graphs turn into initializers, or Paddle's exporter a number of its own, "helper.constant.3".
bool IsTracedConstantName(std::string_view name);

// Returns true if the name ends in a word for a parameter: "logit_scale", "layers.0.gamma", "dense/bias:0".
bool IsParameterName(std::string_view name);

// Returns true if the name ends in the name of a known buffer that nothing trains: "final_logits_bias".
bool IsBufferName(std::string_view name);

// Returns "add" of "add_12": torch.fx names nodes after their targets.
std::string_view StripNumber(std::string_view name);

// Orders names by the numbers in them: "n.2" before "n.10". torch.fx numbers nodes, and PyTorch modules, as they come.
struct ByNumber {
  bool operator()(std::string_view a, std::string_view b) const;
};

// Returns true if a value of this name, which constant folding computed from one parameter and `sources`, has other
// numbers than the parameter: "exp_2", "mul" or a view of such a value, but not a view or a lookup of the parameter. A
// sum counts as the parameter unless a part of it was rounded. Names by the exporter itself ("val_12") count as views.
bool IsArithmetic(const std::string& name, const std::vector<std::string>& sources);

// Returns true if such a value is a part of a parameter that was selected by position: "select_1", "getitem".
bool IsPart(const std::string& name);

// Returns true if constant folding looked such a value up in a parameter by indices.
bool IsLookedUp(const std::string& name, const std::vector<std::string>& sources);

// The operators that computed such a value, sorted, without those that give other shapes.
std::vector<std::string_view> ListSteps(const std::string& name, const std::vector<std::string>& sources);

// Returns true if `steps` make up one softplus, which torch.onnx writes as a function of several named nodes.
bool IsSoftplus(const std::vector<std::string_view>& steps);

// Returns true if constant folding may have read elements of one parameter several times on the way to such a value by
// `sources`, which are without the parameter: not where all are functions of single numbers and other shapes. Values
// that the exporter names itself are taken for operands of the others.
bool MayRepeat(const std::string& name, const std::vector<std::string>& sources);

// Returns true if the exporter itself named a value: as "val_12".
bool IsExporterName(const std::string& name);

}  // namespace onnxtrain
