// Where the initializers of a file come from: the parameters, buffers and constants of the program that was exported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace onnxtrain {

struct ParsedNode;

struct WeightOrigin {
  enum class Kind : uint8_t {
    kUnknown,    // the file does not say
    kParameter,  // also what constant folding made of one
    kBuffer,
    kConstant,      // of the program, or one that the exporter derived
    kStandardizer,  // shifts or scales the inputs of the model
  };
  Kind kind = Kind::kUnknown;
  std::string module_name;  // "encoder.layers.0.norm1.weight"; "": not known
};
using WeightOrigins = std::unordered_map<std::string, WeightOrigin>;  // by initializer

// An input of a node that reads an initializer.
struct WeightReader {
  ParsedNode* node = nullptr;
  size_t input = 0;
};

// The same in terms of the file: by an output of the node.
struct FileReader {
  std::string node;
  size_t input = 0;
};

// A weight that the exporter merged into another initializer, because their bytes were equal. The graph reads it by a
// name of its own; the file does not.
struct SplitWeight {
  std::string name, merged;
  std::vector<FileReader> readers;
};

// Two initializers that are trained as one weight.
struct WeightTie {
  enum class Form : uint8_t { kEqual, kTransposed, kComplement };  // kComplement: 1 − weight
  std::string weight, copy;
  Form form = Form::kEqual;
};

// An initializer whose rows are copies of the rows of a weight [rows, length]: the exporter looked constant indices up
// in a table.
struct RowCopies {
  std::string weight, copy;
  std::vector<int64_t> shape;  // of the copy
  size_t axis = 0;             // of the copy, along which its rows lie
  std::vector<int64_t> rows;   // of the weight, by position on the other axes, in row-major order
};

// Nodes of the file that stand for those of several modules. The graph has copies of them, which the readers read.
struct SplitNodes {
  std::vector<std::pair<std::string, std::string>> outputs;  // of the file's nodes and of their copies, in order
  std::vector<FileReader> readers;                           // of the last copy, or of the copy of what they read
};

enum class ParameterFunction : uint8_t { kExp, kNegatedExp, kSigmoid, kTanh };

// An initializer that the exporter computed of one weight.
struct ComputedFunction {
  std::string weight, value;
  ParameterFunction function = ParameterFunction::kExp;
};

// An initializer that the exporter concatenated of parts: weights of their own, transposes of others, zeros.
struct JoinedWeight {
  struct Part {
    enum class Form : uint8_t { kOwn, kTransposed, kZeros };
    Form form = Form::kOwn;
    int64_t extent = 0;  // along the first axis of the value
    std::string weight;
  };
  std::string value;
  std::vector<Part> parts;
};

// Where the weights that are trained differ from the initializers of the file.
struct SharedWeights {
  std::vector<SplitNodes> nodes;
  std::vector<SplitWeight> splits;
  std::vector<WeightTie> ties;     // a node makes the copy of the weight
  std::vector<RowCopies> lookups;  // nodes look the copies up
  std::vector<ComputedFunction> functions;
  std::vector<JoinedWeight> joined;
};

}  // namespace onnxtrain
