// Runs the ONNX project's conformance cases on both backends: each passes or is listed in the manifest. Listed cases
// are few, exist, fail, and are not float cases of differentiable operators.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "tests/conformance/manifest.h"
#include "tests/paths.h"
#include "tests/shared_files.h"
#include "tests/test_device.h"
#include "tools/onnx_conformance/run_case.h"
#include "tools/op_table/op_table.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxShare = 0.12;  // of a collection, and of a suite of more than 30 cases, in the manifest

struct Collection {
  std::string name, folder;
  bool shared;  // in ../shared, which may be absent; the other is a Debian package that tools/setup.sh installs
};

const Collection kCollections[] = {
    {"libonnx-testdata", "/usr/share/libonnx-testdata/data", false},
    {"shared", SharedPath("conformance"), true},
};
constexpr std::string_view kSuites[] = {"node", "simple", "pytorch-converted", "pytorch-operator", "light"};
constexpr std::string_view kBackends[] = {"cpu", "torch"};

Backend* BackendNamed(std::string_view name) {
  static auto* backends = new std::map<std::string, std::unique_ptr<Backend>, std::less<>>;
  auto it = backends->find(name);
  if (it == backends->end()) it = backends->emplace(name, CreateBackend(name, TestOptions(name, 2)).value()).first;
  return it->second.get();
}

std::map<std::string, const OutOfScope*> Listed() {
  std::map<std::string, const OutOfScope*> listed;
  for (const OutOfScope& group : kManifest) {
    for (std::string_view name : group.cases)
      EXPECT_TRUE(listed.emplace(std::string(name), &group).second) << name << " is listed twice";
  }
  return listed;
}

std::vector<fs::path> ListCases(const Collection& collection, std::string_view suite) {
  const auto cases = FindCases(fs::path(collection.folder) / suite);
  return cases.ok() ? *cases : std::vector<fs::path>();
}

struct Counts {
  int passed = 0, listed = 0, wrong = 0;
  int all() const { return passed + listed + wrong; }
};

// One case: it passes, or it is listed, not both unless its listing says so.
void RunOne(const fs::path& path, Backend* backend, const std::map<std::string, const OutOfScope*>& listed,
            Counts* counts) {
  const std::string name = path.stem().string();
  const absl::Status status = RunCase(path, backend);
  const auto at = listed.find(name);
  const bool is_listed = at != listed.end();
  if (status.ok() != is_listed || (is_listed && at->second->may_pass)) {
    ++(status.ok() ? counts->passed : counts->listed);
    return;
  }
  ++counts->wrong;
  ADD_FAILURE() << path << (status.ok() ? " passes but is listed in the manifest" : StrCat(": ", status.message()));
}

Counts RunSuite(const Collection& collection, std::string_view suite, std::string_view backend) {
  static const auto* const kListed = new std::map<std::string, const OutOfScope*>(Listed());
  Counts counts;
  for (const fs::path& path : ListCases(collection, suite)) RunOne(path, BackendNamed(backend), *kListed, &counts);
  if (counts.all() == 0) return counts;
  std::printf("%s/%s on %s: %d passed, %d failed, %d out of scope\n", collection.name.c_str(),
              std::string(suite).c_str(), std::string(backend).c_str(), counts.passed, counts.wrong, counts.listed);
  // `simple` is 23 cases, of which 6 are of strings and some of sequences of unknown length.
  const double share = static_cast<double>(counts.listed) / counts.all();
  EXPECT_TRUE(counts.all() <= 30 || share <= kMaxShare) << collection.name << " " << suite << ": " << share;
  return counts;
}

class Conformance : public testing::TestWithParam<std::tuple<Collection, std::string_view>> {};

TEST_P(Conformance, EveryCasePassesOrStandsInTheManifest) {
  const auto& [collection, backend] = GetParam();
  if (collection.shared) SKIP_WITHOUT_SHARED("conformance");
  ASSERT_TRUE(fs::exists(collection.folder)) << "run tools/setup.sh";
  Counts total;
  for (std::string_view suite : kSuites) {
    const Counts counts = RunSuite(collection, suite, backend);
    total.passed += counts.passed, total.listed += counts.listed, total.wrong += counts.wrong;
  }
  std::printf("%s on %s: %d passed, %d failed, %d out of scope\n", collection.name.c_str(),
              std::string(backend).c_str(), total.passed, total.wrong, total.listed);
  EXPECT_GT(total.all(), 500) << collection.folder;
  EXPECT_LE(total.listed, kMaxShare * total.all()) << collection.name;
}

INSTANTIATE_TEST_SUITE_P(Collections, Conformance,
                         testing::Combine(testing::ValuesIn(kCollections), testing::ValuesIn(kBackends)),
                         [](const auto& info) {
                           return StrCat(std::get<0>(info.param).shared ? "shared_" : "debian_",
                                         std::get<1>(info.param));
                         });

// A case whose inputs are all constants of the graph runs on the host alone: that is no pass of a backend.
TEST(RunCase, CountsNoCaseThatTheHostEvaluates) {
  const fs::path node = fs::path(kCollections[0].folder) / "node";
  for (std::string_view backend : kBackends) {
    EXPECT_TRUE(absl::IsUnimplemented(RunCase(node / "test_nonzero_example", BackendNamed(backend))));
    EXPECT_TRUE(RunCase(node / "test_reshape_reordered_all_dims", BackendNamed(backend)).ok());
  }
  EXPECT_TRUE(RunCase(node / "test_nonzero_example", nullptr).ok());
}

// The forms that operators had in the first opsets, which neither collection has: opsets/make_cases.py.
TEST(Opsets, FormsOfTheFirstOpsetsAreComputed) {
  const auto cases = FindCases(RepoPath("tests/conformance/opsets"));
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 3u);
  for (const fs::path& path : *cases) {
    for (std::string_view backend : kBackends)
      EXPECT_TRUE(RunCase(path, BackendNamed(backend)).ok()) << path << RunCase(path, BackendNamed(backend));
  }
}

TEST(Manifest, NamesCasesThatExist) {
  std::set<std::string> known;
  for (const Collection& collection : kCollections) {
    if (collection.shared) SKIP_WITHOUT_SHARED("conformance");
    for (std::string_view suite : kSuites) {
      for (const fs::path& path : ListCases(collection, suite)) known.insert(path.stem().string());
    }
  }
  for (const auto& [name, group] : Listed()) EXPECT_TRUE(known.contains(name)) << name;
}

bool FeedsFloats(const OnnxModel& model) {
  for (const OnnxModel::Input& input : model.inputs()) {
    if (IsFloat(input.dtype)) return true;
  }
  return false;
}

// The operators of the model that have a gradient. A model that cannot even be read has none.
std::vector<std::string> Differentiable(const fs::path& path) {
  std::vector<std::string> ops;
  const auto model = OnnxModel::Load((path / "model.onnx").string());
  if (!model.ok() || !FeedsFloats(**model)) return ops;
  for (const auto& [name, count] : (*model)->op_histogram()) {
    const OnnxOp* op = FindOnnxOp("", name);
    if (op != nullptr && HasGradient(*op).value_or(false)) ops.push_back(name);
  }
  return ops;
}

TEST(Manifest, HoldsNoFloatCaseOfADifferentiableOperator) {
  const auto listed = Listed();
  for (const Collection& collection : kCollections) {
    for (std::string_view suite : kSuites) {
      for (const fs::path& path : ListCases(collection, suite)) {
        const auto it = listed.find(path.stem().string());
        if (it == listed.end() || it->second->even_if_differentiable) continue;
        for (const std::string& op : Differentiable(path)) ADD_FAILURE() << path << ": " << op << " has a gradient";
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain
