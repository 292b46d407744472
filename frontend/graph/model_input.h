// The declared inputs of a model, before it is imported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain {

// The kind of an ONNX value: a tensor (neither flag), a sequence of tensors, an optional tensor or an optional
// sequence.
struct ValueForm {
  bool optional = false, sequence = false;

  bool is_tensor() const { return !optional && !sequence; }
};

struct ModelInput {
  std::string name;
  DType dtype;
  std::vector<int64_t> dims;           // -1: free
  std::vector<std::string> dim_names;  // "": fixed or unnamed
  bool has_shape = true;
  ValueForm form;  // for sequences and optionals, dtype and dims describe the tensors
  // For an input of strings: the strings that the model compares elements with. The graph receives the index of each
  // string in this list, -1 for any other string. Null for an input of numbers.
  std::shared_ptr<const std::vector<std::string>> texts = {};
  bool takes_missing = false;  // the model fills in missing values, which are NaN
};

// Returns the element type as shown to users: "f32", "string".
inline std::string TypeText(const ModelInput& input) {
  return input.texts == nullptr ? std::string(ToString(input.dtype)) : "string";
}

// The inputs of a language model whose rows hold several samples, which do not see each other.
struct PackedInputs {
  std::vector<std::string> tokens;  // i64 [batch, length], a number per token: ids, positions, types; empty: rows
                                    // are single samples
  std::map<std::string, double> constants;  // masks of padding and the number that they have at tokens
  bool separates = false;                   // a mask of pairs of tokens is fed that keeps samples apart

  bool operator==(const PackedInputs&) const = default;
};

}  // namespace onnxtrain
