// Reads the metadata about weights and nodes that PyTorch's exporter (torch.onnx.export with dynamo=True) writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/read/proto_util.h"

namespace onnxtrain {

// The fx node that an ONNX node was translated from. Several ONNX nodes may share it.
struct FxNode {
  std::string name;               // "linear_1"
  std::string target;             // "torch.ops.aten.linear.default"
  std::vector<std::string> args;  // values of the exported program: "p_fc_weight"
  std::string module;             // the module that calls it: "encoder.layers.0.norm1"
  std::string module_class;       // its class: "torch.nn.modules.normalization.LayerNorm"
  // The outermost module around it of a library of models: "model" where a user's module holds one of transformers as
  // `model`, "" where the program is one.
  std::optional<std::string> library_module;
  int64_t padding_row = -1;  // the row of an embedding that is not trained; -1: none
};

// Returns null if the metadata of a node describes no fx node.
std::shared_ptr<const FxNode> ParseFxNode(const Metadata& metadata);

// An input of the exported program that is no user input.
struct SignatureEntry {
  enum class Kind : uint8_t { kParameter, kBuffer, kConstant };
  Kind kind = Kind::kParameter;
  std::string target;  // "encoder.layers.0.norm1.weight"

  bool operator==(const SignatureEntry&) const = default;
};
using TorchSignature = std::map<std::string, SignatureEntry>;  // by placeholder: "p_encoder_layers_0_norm1_weight"

// Parses a graph signature, as text with a line per input or as the repr of ExportGraphSignature (before PyTorch 2.7).
TorchSignature ParseSignature(std::string_view text);

// The metadata of one initializer, from its value_info.
struct TorchWeight {
  std::string placeholder;               // "": none
  std::vector<std::string> folded_from;  // the values that constant folding has read
};

struct TorchMetadata {
  TorchSignature signature;  // empty: the file was not written by torch.export
  std::map<std::string, TorchWeight> weights;
};

TorchMetadata ReadTorchMetadata(const onnx::ModelProto& model);

}  // namespace onnxtrain
