// Hostile models: small files that declare large tensors.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace onnxtrain {

struct BadModel {
  std::string what;
  onnx::ModelProto model;
  bool imports = false;  // the tensor stays an expression that is never computed
  bool is_read = true;   // inspect describes the file
};

// Makes models of about one kilobyte: one for every operator whose output size is a parameter, and several sizes.
std::vector<BadModel> OversizedModels();

}  // namespace onnxtrain
