// Finds which parameter of a program that torch.export described each node of the file reads.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {

// One input of a node that is an initializer.
struct TorchRead {
  const ParsedNode* node = nullptr;
  size_t input = 0;
  std::string weight;
  std::string placeholder;  // the parameter that it reads; "": not known
  bool derived = false;     // it reads a constant that was merged with a parameter
};

// The reads of floating-point initializers, matched to the placeholders of the program's parameters. Exporters merge
// initializers of equal bytes, so that one may stand for several parameters, and fold parameters into others.
struct TorchReads {
  const TorchMetadata* metadata = nullptr;
  std::map<std::string, std::string> placeholder_of;  // by the parameter's name in the program
  std::vector<std::unique_ptr<TorchRead>> all;
  std::map<std::string, std::vector<TorchRead*>> by_weight;
  std::map<std::string, std::string> identity;                  // the placeholder that an initializer is named after
  std::map<std::string, std::vector<std::string>> folded_from;  // placeholders of parameters, by initializer
  std::set<std::string> folded_constants;                       // initializers folded from no parameter
  std::vector<std::string> looked_up;      // initializers computed from parameters and further values
  std::vector<const TorchRead*> computed;  // of constants that were computed from a parameter
  std::set<std::string> known;             // nodes of the program that the file computes; inputs

  // Returns what the program says of a placeholder, which is in its signature.
  const SignatureEntry& Entry(const std::string& placeholder) const { return metadata->signature.at(placeholder); }
  // Returns the placeholder that an initializer is named after; null if there is none.
  const std::string* Identity(const std::string& weight) const;
  // Returns true for the name of a parameter in the program.
  bool IsParameter(const std::string& name) const;
  std::vector<std::string> WithoutParameters(std::vector<std::string> names) const;
  // Returns true if an initializer was folded from several parameters.
  bool IsMadeOfSeveral(const std::string& weight) const;
};

// The result refers to the index.
TorchReads MatchTorchReads(const WeightIndex& index);

}  // namespace onnxtrain
