// Writes small ONNX models byte by byte (protobuf's wire format), so that these tests need no exporter.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace onnxtrain::tiny {

// A protobuf message being written.
class Message {
 public:
  Message& Int(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
    return *this;
  }
  Message& Bytes(int field, const std::string& value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    text_ += value;
    return *this;
  }
  Message& Sub(int field, const Message& value) { return Bytes(field, value.text_); }
  Message& Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[4];
    std::memcpy(bytes, &value, 4);
    text_.append(bytes, 4);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void Varint(uint64_t v) {
    for (; v >= 128; v >>= 7) text_ += static_cast<char>(v | 128);
    text_ += static_cast<char>(v);
  }
  std::string text_;
};

struct Weight {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::string file = {};   // of its external data, beside the model; "": the values are in the model
  int type = 1;            // of TensorProto
  std::string bytes = {};  // for other types than float, in place of `values`
};

struct Op {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::vector<int64_t>> ints = {};  // attributes that are lists of integers
  std::map<std::string, int64_t> numbers = {};            // attributes that are one
  std::string domain = {};                                // "": ai.onnx
  std::map<std::string, std::vector<std::string>> texts = {};
  std::map<std::string, std::vector<float>> floats = {};
  std::map<std::string, float> factors = {};   // attributes that are one float
  std::map<std::string, Message> graphs = {};  // attributes that are bodies
};

// A float model; -1 in the input's shape is the batch, -2, -3 … are other free dimensions.
struct Model {
  std::string input = "x";
  std::vector<int64_t> input_shape = {-1, 4};
  std::map<std::string, std::vector<int64_t>> more_inputs;
  std::set<std::string> text_inputs = {}, int_inputs = {};  // of strings, of int64; the others are of float
  std::vector<std::string> outputs = {"y"};
  std::vector<Op> nodes;
  std::vector<Weight> weights;
  std::string producer = "tiny";
  std::map<std::string, std::string> metadata = {};
  std::vector<int64_t> output_shape = {};  // of all outputs; empty: not declared

  // Returns the graph, and writes external data beside `path`. A body without inputs has the input "".
  Message Graph(const std::string& path = "") const {
    Message graph;
    for (const Op& op : nodes) {
      Message node;
      for (const std::string& i : op.inputs) node.Bytes(1, i);
      for (const std::string& o : op.outputs) node.Bytes(2, o);
      for (const auto& [name, values] : op.ints) {
        Message attribute;
        attribute.Bytes(1, name).Int(20, 7);
        for (const int64_t value : values) attribute.Int(8, static_cast<uint64_t>(value));
        node.Sub(5, attribute);
      }
      for (const auto& [name, value] : op.numbers)
        node.Sub(5, Message().Bytes(1, name).Int(3, static_cast<uint64_t>(value)).Int(20, 2));
      for (const auto& [name, values] : op.texts) {
        Message attribute;
        attribute.Bytes(1, name).Int(20, 8);
        for (const std::string& value : values) attribute.Bytes(9, value);
        node.Sub(5, attribute);
      }
      for (const auto& [name, values] : op.floats) {
        Message attribute;
        attribute.Bytes(1, name).Int(20, 6);
        for (const float value : values) attribute.Float(7, value);
        node.Sub(5, attribute);
      }
      for (const auto& [name, value] : op.factors) node.Sub(5, Message().Bytes(1, name).Float(2, value).Int(20, 1));
      for (const auto& [name, body] : op.graphs) node.Sub(5, Message().Bytes(1, name).Sub(6, body).Int(20, 5));
      if (!op.domain.empty()) node.Bytes(7, op.domain);
      graph.Sub(1, node.Bytes(3, op.outputs[0] + "_node").Bytes(4, op.type));
    }
    graph.Bytes(2, "tiny");
    for (const Weight& w : weights) {
      Message tensor;
      for (int64_t d : w.shape) tensor.Int(1, static_cast<uint64_t>(d));
      const std::string floats(reinterpret_cast<const char*>(w.values.data()), w.values.size() * sizeof(float));
      const std::string& raw = w.type == 1 ? floats : w.bytes;
      tensor.Int(2, static_cast<uint64_t>(w.type)).Bytes(8, w.name);
      if (w.file.empty()) {
        tensor.Bytes(9, raw);
      } else {
        tensor.Sub(13, Message().Bytes(1, "location").Bytes(2, w.file)).Int(14, 1);
        std::ofstream(path.substr(0, path.rfind('/') + 1) + w.file, std::ios::binary) << raw;
      }
      graph.Sub(5, tensor);
    }
    if (!input.empty()) graph.Sub(11, ValueInfo(input, input_shape));
    for (const auto& [name, shape] : more_inputs) graph.Sub(11, ValueInfo(name, shape));
    for (const std::string& o : outputs) graph.Sub(12, ValueInfo(o, output_shape, !output_shape.empty()));
    return graph;
  }

  void Save(const std::string& path) const {
    Message model;
    model.Int(1, 7).Bytes(2, producer).Sub(7, Graph(path)).Sub(8, Message().Bytes(1, "").Int(2, 13));
    for (const auto& [key, value] : metadata) model.Sub(14, Message().Bytes(1, key).Bytes(2, value));
    std::set<std::string> domains;
    for (const Op& op : nodes) domains.insert(op.domain);
    domains.erase("");
    for (const std::string& domain : domains) model.Sub(8, Message().Bytes(1, domain).Int(2, 1));
    std::ofstream(path, std::ios::binary) << model.text();
  }

 private:
  static std::string FreeName(int64_t d) { return d == -1 ? "batch" : "free" + std::to_string(-d); }
  Message ValueInfo(const std::string& name, const std::vector<int64_t>& shape, bool has_shape = true) const {
    Message dims, tensor;
    for (int64_t d : shape)
      dims.Sub(1, d < 0 ? Message().Bytes(2, FreeName(d)) : Message().Int(1, static_cast<uint64_t>(d)));
    tensor.Int(1, text_inputs.contains(name) ? 8 : int_inputs.contains(name) ? 7 : 1);
    if (has_shape) tensor.Sub(2, dims);
    return Message().Bytes(1, name).Sub(2, Message().Sub(1, tensor));
  }
};

// Uniform numbers in [-bound, bound) that are the same everywhere.
inline std::vector<float> Uniform(size_t n, float bound, uint32_t seed) {
  std::vector<float> values(n);
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = bound * (static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return values;
}

// x[batch,4] → 16 → classes; `tail` is "", "Softmax" or "Sigmoid".
inline Model Mlp(int64_t classes, const std::string& tail = "") {
  Model m;
  const std::string logits = tail.empty() ? "y" : "logits";
  m.nodes = {{"MatMul", {"x", "w1"}, {"h0"}},
             {"Add", {"h0", "b1"}, {"h1"}},
             {"Relu", {"h1"}, {"h"}},
             {"MatMul", {"h", "w2"}, {"o"}},
             {"Add", {"o", "b2"}, {logits}}};
  if (!tail.empty()) m.nodes.push_back({tail, {logits}, {"y"}});
  m.weights = {{"w1", {4, 16}, Uniform(64, 0.5f, 1)},
               {"b1", {16}, std::vector<float>(16, 0.1f)},
               {"w2", {16, classes}, Uniform(16 * classes, 0.5f, 2)},
               {"b2", {classes}, std::vector<float>(classes, 0)}};
  return m;
}

// Mlp of x²: 3e38 is a finite sample whose gradient is not.
inline Model SquaredMlp(int64_t classes) {
  Model m = Mlp(classes);
  m.nodes[0].inputs[0] = "squared";
  m.nodes.insert(m.nodes.begin(), {"Mul", {"x", "x"}, {"squared"}});
  return m;
}

// x[batch,1024] → 2048 → 2048 → 16 classes: large enough that a copy of anything shows.
inline Model Wide(const std::vector<int64_t>& widths = {1024, 2048, 2048, 16}) {
  Model m{.input_shape = {-1, widths[0]}};
  std::string at = "x";
  const int last = static_cast<int>(widths.size()) - 2;
  for (int i = 0; i <= last; ++i) {
    const std::string w = "w" + std::to_string(i), product = "p" + std::to_string(i);
    m.weights.push_back({w, {widths[i], widths[i + 1]}, Uniform(widths[i] * widths[i + 1], 0.05f, 7 + i)});
    m.nodes.push_back({"MatMul", {at, w}, {product}});
    at = i == last ? "y" : "h" + std::to_string(i);
    m.nodes.push_back({i == last ? "Softmax" : "Tanh", {product}, {at}});
  }
  return m;
}

inline constexpr int kDeepLayers = 12, kDeepWidth = 64;

// x[batch,64] → 12 × (product, bias, Tanh, with Dropout behind it or not) → 4 classes.
inline Model Deep(bool dropout) {
  Model m{.input_shape = {-1, kDeepWidth}};
  std::string at = "x";
  for (int i = 0; i <= kDeepLayers; ++i) {
    const int64_t width = i == kDeepLayers ? 4 : kDeepWidth;
    const std::string n = std::to_string(i), w = "w" + n, b = "b" + n, product = "p" + n, sum = "s" + n;
    m.weights.push_back({w, {kDeepWidth, width}, Uniform(kDeepWidth * width, 0.2f, 7 + i)});
    m.weights.push_back({b, {width}, Uniform(width, 0.1f, 99 + i)});
    m.nodes.push_back({"MatMul", {at, w}, {product}});
    m.nodes.push_back({"Add", {product, b}, {sum}});
    at = i == kDeepLayers ? "y" : "h" + n;
    m.nodes.push_back({i == kDeepLayers ? "Softmax" : "Tanh", {sum}, {at}});
    if (!dropout || i == kDeepLayers) continue;
    m.nodes.push_back({"Dropout", {at}, {"d" + n}});
    at = "d" + n;
  }
  return m;
}

}  // namespace onnxtrain::tiny
