// The declared inputs of a model, before it is imported.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain {

// Whether a value is a tensor (neither flag), a sequence of tensors, an optional tensor, or an optional sequence.
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
  ValueForm form;  // dtype and dims describe its tensors
  // Of an input of strings: those that the model compares with. An element is the place of its string, -1 for others.
  // Null: it is of numbers.
  std::shared_ptr<const std::vector<std::string>> texts = {};
  bool takes_missing = false;  // the model fills in missing values, which are NaN
};

// The element type for people: "f32", "string".
inline std::string TypeText(const ModelInput& input) {
  return input.texts == nullptr ? std::string(ToString(input.dtype)) : "string";
}

}  // namespace onnxtrain
