// The parts of a state that ranks write to a checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "optim/step/session.h"
#include "optim/step/state.h"

namespace onnxtrain {

inline NamedArrays ReadParts(Session& session) {
  NamedArrays parts;
  const std::vector<StateTensor> listed = session.StateParts().value();
  for (const StateTensor& part : listed) parts.emplace_back(part.name, ReadRegion(part.region).value());
  return parts;
}

// Of what each rank has in the end.
template <typename Trained>
std::vector<NamedArrays> ListParts(const std::vector<Trained>& ranks) {
  std::vector<NamedArrays> parts;
  for (const Trained& trained : ranks) parts.push_back(trained.parts);
  return parts;
}

// The parts of all ranks have every element of the tensors once.
inline void ExpectParts(const std::vector<NamedArrays>& ranks, const std::map<std::string, HostTensor>& tensors) {
  std::map<std::string, HostTensor> whole;
  std::map<std::string, int64_t> missing;
  for (const auto& [name, tensor] : tensors) {
    whole.emplace(name, HostTensor(tensor.type()));
    missing[name] = tensor.size();
  }
  for (const NamedArrays& parts : ranks) {
    for (const auto& [name, value] : parts) {
      const StatePart part = ParsePartName(name).value();
      ASSERT_TRUE(whole.contains(part.tensor)) << name;
      const absl::Status put = PutRuns(value, part.runs, &whole.at(part.tensor));
      EXPECT_TRUE(put.ok()) << name << " " << put;
      missing[part.tensor] -= value.size();
    }
  }
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(missing[name], 0) << name;
    EXPECT_TRUE(std::ranges::equal(whole.at(name).bytes(), tensor.bytes())) << name;
  }
}

}  // namespace onnxtrain
