// The generated pages of the reference are current, and completion scripts complete.
#include <cstdlib>

#include "tests/paths.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

class Reference : public Scratch {
 protected:
  std::string Page(const std::string& words) {
    const Outcome page = Run(words);
    EXPECT_EQ(page.code, 0) << page.err;
    return page.out;
  }

  // The words that bash completes after these.
  std::string Complete(const std::string& words) {
    WriteAll(Path("completion.bash"), Page("completion bash"));
    WriteAll(Path("complete.bash"),
             "source completion.bash; COMP_WORDS=(" + words +
                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _onnxtrain; echo -n ${COMPREPLY[*]}");
    const std::string command = "cd '" + folder_ + "' && bash complete.bash >completed";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return ReadAll(Path("completed"));
  }
};

TEST_F(Reference, PageOfFlagsIsCurrent) {
  EXPECT_EQ(ReadAll(RepoPath("docs/reference/flags.md")), Page("reference flags"))
      << "run: build/release/bin/onnxtrain reference flags > docs/reference/flags.md";
}

TEST_F(Reference, FlagsOfThePythonPackageAreCurrent) {
  EXPECT_EQ(ReadAll(RepoPath("python/onnxtrain/_flags.py")), Page("reference python")) << "run: tools/docs.sh pages";
}

TEST_F(Reference, KindsOfDataAreCurrent) {
  EXPECT_NE(ReadAll(RepoPath("docs/reference/data-formats.md")).find(Page("reference data-formats")), std::string::npos)
      << "replace the table of kinds by that of: onnxtrain reference data-formats";
}

TEST_F(Reference, BashCompletesSubcommandsFlagsAndValues) {
  EXPECT_EQ(Complete("onnxtrain e"), "eval export");
  EXPECT_EQ(Complete("onnxtrain --lr-s"), "--lr-scale --lr-scale-base --lr-scheduler");
  EXPECT_EQ(Complete("onnxtrain --mixed-precision b"), "bf16");
  EXPECT_EQ(Complete("onnxtrain --mixed-precision = b"), "bf16");
  EXPECT_EQ(Complete("onnxtrain predict --no-q"), "--no-quiet");
  EXPECT_EQ(Complete("onnxtrain monitor --lr"), "");  // of other subcommands
}

TEST_F(Reference, ManualPageHasEveryGroupAndExitCode) {
  const std::string page = Page("reference man");
  for (const char* part : {".TH ONNXTRAIN 1", ".SS Model", ".SS Run", "\\fB\\-\\-batch\\-size\\fR N", ".B 75"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST_F(Reference, RefusesUnknownPages) {
  ExpectRefused(Run("reference nope"), "reference: expected one of man, flags, python, data-formats");
  ExpectRefused(Run("completion"), "completion: expected one of bash, zsh, fish");
  EXPECT_EQ(Run("completion --help").code, 0);
}

}  // namespace
}  // namespace onnxtrain
