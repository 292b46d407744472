// Models that nobody should send: small files that declare large tensors.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace onnxtrain {

struct BadModel {
  std::string what;
  onnx::ModelProto model;
};

// One kilobyte each; every operator that makes a tensor of a given size, for several sizes.
std::vector<BadModel> BombModels();

}  // namespace onnxtrain
