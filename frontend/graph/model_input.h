// The declared inputs of a model, before it is imported.
#pragma once

#include <cstdint>
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
};

}  // namespace onnxtrain
