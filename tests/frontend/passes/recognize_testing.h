// What the tests of recognize share: a graph as text, the composites that are found in it, and the same numbers.
#pragma once

#include "frontend/passes/eliminate.h"
#include "frontend/passes/pipeline.h"
#include "frontend/passes/recognize.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {

struct RecognizeCase {
  std::string_view what, inputs, before, found;
};

// "Gelu 2, LayerNorm 1"
inline std::string FoundCounts(const std::map<std::string, int>& found) {
  std::string out;
  for (const auto& [op, count] : found) StrAppend(&out, out.empty() ? "" : ", ", op, " ", count);
  return out;
}

inline std::string Constants(std::initializer_list<std::pair<std::string_view, std::string_view>> constants) {
  std::string out;
  for (const auto& [name, value] : constants)
    StrAppend(&out, "%", name, ": f32[] = Constant() {value=f32[](", value, ")}; ");
  return out;
}

inline void CheckRecognized(const RecognizeCase& c, const std::string& constants = "") {
  SCOPED_TRACE(std::string(c.what));
  const Graph before = MustParse(GraphText(c.inputs, constants + std::string(c.before)));
  const auto clean = CleanUp(before);
  ASSERT_TRUE(clean.ok()) << clean.status();
  std::map<std::string, int> found;
  const auto after = Recognize(*clean, &found);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(FoundCounts(found), c.found) << Print(*clean);
  ExpectSameNumbers(before, Dce(*after), 1e-4);
}

}  // namespace onnxtrain
