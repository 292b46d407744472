// What the name of an fx node tells of its operator: torch.fx calls nodes after their targets, as "exp_2".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain {

// Returns "add" of "add_12".
std::string_view StripNumber(std::string_view name);

// Orders names by the numbers in them: "n.2" before "n.10". torch.fx numbers nodes, and PyTorch modules, as they come.
struct ByNumber {
  bool operator()(std::string_view a, std::string_view b) const;
};

// Whether a value with this name, which constant folding computed of one parameter and `sources`, is other numbers than
// the parameter's: those of "exp_2", "mul" or of a view of such a value, but not those of a view or a lookup.
// A sum trains as its parameter does, unless a part of it was rounded. Values that the exporter names itself ("val_12")
// are taken for views.
bool IsArithmetic(const std::string& name, const std::vector<std::string>& sources);

// Whether such a value is a part of a parameter that was selected by position: "select_1", "getitem".
bool IsPart(const std::string& name);

// Whether constant folding looked such a value up in a parameter by indices.
bool IsLookedUp(const std::string& name, const std::vector<std::string>& sources);

// The operators that computed such a value, sorted, without those that give other shapes.
std::vector<std::string_view> ListSteps(const std::string& name, const std::vector<std::string>& sources);

// Whether constant folding may have read elements of one parameter several times on the way to such a value by
// `sources`, which are without the parameter: not where all are functions of single numbers and other shapes. Values
// that the exporter names itself are taken for operands of the others.
bool MayRepeat(const std::string& name, const std::vector<std::string>& sources);

// Whether the exporter itself named a value: as "val_12".
bool IsExporterName(const std::string& name);

}  // namespace onnxtrain
