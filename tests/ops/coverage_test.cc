// The table is complete: every operator has a case, says what its gradient is, and can be run by every backend.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "exceptions.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "run.h"

namespace onnxtrain::cases {
namespace {

// Backends' own rows have a dot in their names: "cpu.PackWeight".
std::vector<const OpRow*> CanonicalOps() {
  std::vector<const OpRow*> rows;
  for (const OpRow* row : AllOps()) {
    if (row->name.find('.') == std::string_view::npos) rows.push_back(row);
  }
  return rows;
}

TEST(Coverage, EveryOperatorHasACase) {
  std::set<std::string_view> covered;
  for (const Case& c : AllCases()) covered.insert(c.op);
  for (const OpRow* row : CanonicalOps()) {
    const bool excepted = std::ranges::any_of(
        kExceptions, [&](const Exception& e) { return e.mode == Mode::kCase && e.name == row->name; });
    EXPECT_NE(covered.contains(row->name), excepted) << row->name;
  }
}

TEST(Coverage, CaseNamesAreUniqueAndBeginWithTheOperator) {
  std::set<std::string_view> names;
  for (const Case& c : AllCases()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_TRUE(c.name == c.op || c.name.starts_with(c.op + "_")) << c.name;
  }
}

TEST(Coverage, EveryRowStatesItsGradient) {
  for (const OpRow* row : CanonicalOps()) {
    EXPECT_EQ(row->grad_status == GradStatus::kFormula, row->gradient != nullptr) << row->name;
    EXPECT_TRUE(row->grad_status != GradStatus::kDecomposition || row->decompose != nullptr) << row->name;
  }
}

// An operator with a gradient has a case that tests it, for every input that can have one.
TEST(Coverage, EveryGradientIsTested) {
  std::set<std::string_view> tested;
  for (const Case& c : AllCases()) {
    if (!DifferentiableInputs(c).empty()) tested.insert(c.op);
  }
  for (const OpRow* row : CanonicalOps()) {
    const bool has = row->grad_status == GradStatus::kFormula || row->grad_status == GradStatus::kDecomposition;
    EXPECT_TRUE(!has || tested.contains(row->name)) << row->name;
  }
}

TEST(Coverage, EveryBackendRunsEveryCaseOrItsDecomposition) {
  for (std::string_view name : {"torch", "cpu"}) {
    for (const Case& c : AllCases()) {
      for (bool wide : {false, true}) {
        auto legal = BackendNamed(name).Legalize(MakeGraph(c, wide));
        EXPECT_TRUE(legal.ok()) << name << " " << c.name << (wide ? " in float64: " : ": ") << legal.status();
      }
    }
  }
}

TEST(Coverage, ExceptionsNameWhatExists) {
  for (const Exception& e : kExceptions) {
    bool found = false;
    for (const Case& c : AllCases()) found |= c.name == e.name || c.op == e.name;
    EXPECT_TRUE(found) << e.name;
    EXPECT_FALSE(e.reason.empty()) << e.name;
  }
}

}  // namespace
}  // namespace onnxtrain::cases
