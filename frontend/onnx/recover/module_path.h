// Reads module paths and roles from the names of nodes and weights that exporters write.
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

// Return the part after the last dot ("weight" of "layers.0.norm.weight") and the part before it, or "".
std::string_view LastPart(std::string_view path);
std::string_view ParentOf(std::string_view path);

// Returns true if an exporter made the name up: "onnx::MatMul_264", "val_23", "1042".
bool IsGeneratedName(std::string_view name);

// Returns true for names that older exporters of PyTorch give to values they computed: "onnx::Add_123",
// "const_fold_opt__45".
bool IsComputedName(std::string_view name);

// Returns true if the name is one of a Constant node, which graph optimizers turn into an initializer:
// "/layer/act/Constant_1_output_0" by PyTorch's tracer, "helper.constant.3" by Paddle's exporter.
bool IsTracedConstantName(std::string_view name);

// Returns true if the name ends in a word for a parameter: "logit_scale", "layers.0.gamma", "dense/bias:0".
bool IsParameterName(std::string_view name);

// Returns true if the name ends in the name of a known buffer that nothing trains: "final_logits_bias".
bool IsBufferName(std::string_view name);

// Returns "add" of "add_12": torch.fx names nodes after their targets.
std::string_view StripNumber(std::string_view name);

// Orders names by the numbers in them: "n.2" before "n.10". torch.fx and PyTorch number nodes and modules in order.
struct ByNumber {
  bool operator()(std::string_view a, std::string_view b) const;
};

// Returns true if the numbers of a folded value, computed from one parameter and `sources`, differ from the
// parameter's: "exp_2", "mul" or a view of such a value, but not a view or a lookup of the parameter. A sum counts as
// the parameter unless a source was rounded. Names that the exporter generated ("val_12") count as views.
bool IsArithmetic(const std::string& name, const std::vector<std::string>& sources);

// Returns true if the folded value is a part of a parameter that was selected by position: "select_1", "getitem".
bool IsPart(const std::string& name);

// Returns true if constant folding gathered the value from a parameter by indices.
bool IsLookedUp(const std::string& name, const std::vector<std::string>& sources);

// Returns the operators that computed the folded value, sorted, without those that only reshape.
std::vector<std::string_view> ListSteps(const std::string& name, const std::vector<std::string>& sources);

// Returns true if `steps` form one softplus, which torch.onnx writes as a function of several named nodes.
bool IsSoftplus(const std::vector<std::string_view>& steps);

// Returns true if the folded value may depend on an element of its parameter several times. `sources` lack the
// parameter. False if all operators are reshapes or functions of single numbers. Values that the exporter named itself
// count as operands.
bool MayRepeat(const std::string& name, const std::vector<std::string>& sources);

// Returns true if the exporter generated the name of the value: "val_12".
bool IsExporterName(const std::string& name);

}  // namespace onnxtrain
