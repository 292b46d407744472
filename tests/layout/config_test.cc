// One configuration: flags are known to tools/onnxtrain alone, and the library names fields.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "tests/layout/source_tree.h"

namespace onnxtrain::layout {
namespace {

bool IsComment(const std::string& line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size())).starts_with("//");
}

void ExpectNoLine(const std::regex& pattern, const std::regex& paths) {
  int files = 0;
  for (const SourceFile& file : ReadSources({".h", ".cc"})) {
    if (!std::regex_search(file.path, paths)) continue;
    ++files;
    for (const std::string& line : SplitLines(file.text)) {
      EXPECT_TRUE(IsComment(line) || !std::regex_search(line, pattern)) << file.path << ": " << line;
    }
  }
  EXPECT_GT(files, 50);
}

// logtostderr and minloglevel are glog's.
TEST(Config, NoGlobalFlags) {
  ExpectNoLine(std::regex("\\bFLAGS_(?!logtostderr|minloglevel)\\w|\\b(DEFINE|DECLARE)_\\w+\\(|gflags"),
               std::regex("^(frontend|backends|optim|tools/onnxtrain)/"));
}

TEST(Config, TheLibraryNamesFieldsAndNoFlags) {
  ExpectNoLine(std::regex("\"[^\"]*--[a-z][a-z-]+[^\"]*\""), std::regex("^(frontend|backends|optim)/"));
}

}  // namespace
}  // namespace onnxtrain::layout
