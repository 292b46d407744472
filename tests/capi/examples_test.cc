// The examples of the Python package, one per framework: exported, trained here, loaded back and compared. A framework
// that is not installed is told: ONNXTRAIN_PYTHON names a Python that has it.
#include "tests/paths.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

struct Framework {
  std::string script, modules;
};

std::ostream& operator<<(std::ostream& out, const Framework& framework) { return out << framework.script; }

class Examples : public Scratch, public testing::WithParamInterface<Framework> {
 protected:
  // The exit code; what is printed goes to `log`.
  int RunPython(const std::string& arguments) const {
    const char* const chosen = std::getenv("ONNXTRAIN_PYTHON");
    const std::string python = chosen != nullptr ? chosen : "/usr/bin/python3";
    const std::string source = RepoPath(), library = BinaryPath("lib/libonnxtrain_c.so");
    const std::string line = "cd " + folder_ + " && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + source +
                             "/python ONNXTRAIN_LIBRARY=" + library + " " + python + " " + arguments + " > log 2>&1";
    return WEXITSTATUS(std::system(line.c_str()));
  }
};

TEST_P(Examples, TrainAndLoadBack) {
  if (RunPython("-c 'import " + GetParam().modules + "'") != 0)
    GTEST_SKIP() << "NEEDS a Python with " << GetParam().modules << " (ONNXTRAIN_PYTHON)";
  EXPECT_EQ(RunPython(RepoPath(StrCat("python/examples/", GetParam().script, ".py"))), 0) << ReadAll(Path("log"));
}

INSTANTIATE_TEST_SUITE_P(All, Examples,
                         testing::Values(Framework{"pytorch", "torch"}, Framework{"keras_model", "keras, onnx"},
                                         Framework{"scikit_learn", "sklearn, skl2onnx"}),
                         [](const auto& info) { return info.param.script; });

}  // namespace
}  // namespace onnxtrain
