// tools/test_summary.py: what a run of the tests did not check is counted.
#include "tests/paths.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using TestSummary = Scratch;

TEST_F(TestSummary, CountsSkipsByReason) {
  WriteAll(Path("a.xml"),
           "<testsuites><testsuite>"
           "<testcase name='passes' status='run'/>"
           "<testcase name='Fails' classname='Suite' status='run'><failure message='x'/></testcase>"
           "<testcase name='switched_off' status='notrun'/>"
           "<testcase name='needs' status='run'>"
           "<skipped message='../../t.cc:1&#x0A;NEEDS ../shared: models is not there'/></testcase>"
           "<testcase name='cannot' status='run'><skipped message='../../t.cc:2&#x0A;no bf16'/></testcase>"
           "</testsuite></testsuites>");
  const std::string script = StrCat("/usr/bin/python3 ", RepoPath("tools/test_summary.py"), " ", folder_);
  ASSERT_EQ(std::system((script + " > " + Path("out")).c_str()), 0);
  EXPECT_EQ(ReadAll(Path("out")),
            "  skipped 1: NEEDS ../shared: models is not there\n"
            "  skipped 1: no bf16\n"
            "NOT CHECKED: 1 tests need files of ../shared (or of the folder in ONNXTRAIN_SHARED)\n"
            "  failed: Suite.Fails\n"
            "1 tests passed, 1 failed, 2 skipped (1 of them need ../shared)\n");
}

}  // namespace
}  // namespace onnxtrain
