// Small models of token ids [batch, length].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

using tiny::Message;

inline Message Int64Input(const std::string& name, const std::vector<int64_t>& shape) {
  Message dims;
  const char* const names[] = {"batch", "length"};
  for (size_t i = 0; i < shape.size(); ++i)
    dims.Sub(1, shape[i] < 0 ? Message().Bytes(2, names[i]) : Message().Int(1, static_cast<uint64_t>(shape[i])));
  return Message().Bytes(1, name).Sub(2, Message().Sub(1, Message().Int(1, 7).Sub(2, dims)));
}

inline Message Tensor(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
  Message tensor;
  for (const uint64_t d : shape) tensor.Int(1, d);
  return tensor.Int(2, 1).Bytes(8, name).Bytes(
      9, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

inline Message Node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
  Message node;
  for (const std::string& input : inputs) node.Bytes(1, input);
  return node.Bytes(2, output).Bytes(3, output + "_node").Bytes(4, op);
}

inline constexpr int64_t kWidth = 8, kPositions = 16;

inline Message TokenGraph(int64_t rows, int64_t outputs) {
  const auto r = static_cast<uint64_t>(rows), o = static_cast<uint64_t>(outputs);
  return Message()
      .Bytes(2, "tokens")
      .Sub(5, Tensor("embedding", {r, kWidth}, tiny::Uniform(rows * kWidth, 0.5f, 1)))
      .Sub(5, Tensor("head", {kWidth, o}, tiny::Uniform(outputs * kWidth, 0.5f, 2)))
      .Sub(11, Int64Input("input_ids", {-1, -1}));
}

inline void SaveTokenModel(const std::string& path, Message graph) {
  graph.Sub(12, Message().Bytes(1, "logits").Sub(2, Message().Sub(1, Message().Int(1, 1))));
  const Message opset = Message().Bytes(1, "").Int(2, 13);
  WriteAll(path, Message().Int(1, 7).Bytes(2, "tiny").Sub(7, graph).Sub(8, opset).text());
}

// logits[batch, length, rows] = embedding[ids] (+ positions[position_ids]) · head: the next token from the last one.
inline void SaveDecoder(const std::string& path, int64_t rows, bool positions = false) {
  Message graph = TokenGraph(rows, rows);
  graph.Sub(1, Node("Gather", {"embedding", "input_ids"}, positions ? "e" : "x"));
  if (positions) graph.Sub(1, Node("Gather", {"places", "position_ids"}, "p")).Sub(1, Node("Add", {"e", "p"}, "x"));
  graph.Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  if (positions) graph.Sub(5, Tensor("places", {kPositions, kWidth}, tiny::Uniform(kPositions * kWidth, 0.5f, 3)));
  if (positions) graph.Sub(11, Int64Input("position_ids", {-1, -1}));
  SaveTokenModel(path, graph);
}

// Reduces axis 1 of the embeddings, which stays with `keep`.
inline Message MeanOverTokens(const std::string& output, bool keep) {
  const Message axes = Message().Bytes(1, "axes").Int(8, 1).Int(20, 7);
  const Message keepdims = Message().Bytes(1, "keepdims").Int(3, keep ? 1 : 0).Int(20, 2);
  return Node("ReduceMean", {"e"}, output).Sub(5, axes).Sub(5, keepdims);
}

// logits[batch, length, rows] = (embedding[ids] + their mean over all tokens) · head.
inline void SaveEncoder(const std::string& path, int64_t rows) {
  Message graph = TokenGraph(rows, rows);
  graph.Sub(1, Node("Gather", {"embedding", "input_ids"}, "e"))
      .Sub(1, MeanOverTokens("m", true))
      .Sub(1, Node("Add", {"e", "m"}, "x"))
      .Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  SaveTokenModel(path, graph);
}

// logits[batch, classes] = mean over all tokens of embedding[ids] · head.
inline void SaveTextClassifier(const std::string& path, int64_t rows, int64_t classes) {
  Message graph = TokenGraph(rows, classes);
  graph.Sub(1, Node("Gather", {"embedding", "input_ids"}, "e"))
      .Sub(1, MeanOverTokens("x", false))
      .Sub(1, Node("MatMul", {"x", "head"}, "logits"));
  SaveTokenModel(path, graph);
}

}  // namespace onnxtrain
