// Who may include whom. Reads every include of the tree and holds it against the table of the architecture.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Folder → project folders whose headers it may include, besides its own.
const std::map<std::string, Names> kMayInclude = {
    {"frontend/base", {}},
    {"frontend/graph", {"frontend/base"}},
    {"frontend/ops", {"frontend/base", "frontend/graph"}},
    {"frontend/passes", {"frontend/base", "frontend/graph", "frontend/ops"}},
    {"frontend/onnx", {"frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"frontend/data", {"frontend/base", "frontend/graph"}},
    {"backends", {"frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"backends/cpu", {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"backends/torch", {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"optim", {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes", "frontend/onnx", "frontend/data"}},
};

// Third-party headers that only some files may include: pattern → files (regular expressions on the path).
struct Fence {
  std::string header, allowed;
};
const std::vector<Fence> kFences = {
    {"^(onnx/|google/protobuf/)", "^frontend/onnx/.*\\.(cc|h)$"},
    {"^(ATen|c10|torch|caffe2)/", "^backends/(torch|comm)/"},
    {"^(dnnl|oneapi/)", "^backends/cpu/"},
    {"^gflags/", "^tools/"},
    {"^glog/", "^frontend/base/log\\.h$"},
    {"^nlohmann/", "^(frontend/data|optim|tools)/"},
    {"^(zip|zlib)\\.h", "^frontend/data/"},
};

std::string FolderOf(const std::string& path) {
  for (const char* top : {"frontend/base", "frontend/graph", "frontend/ops", "frontend/passes", "frontend/onnx", "frontend/data",
                          "backends/cpu", "backends/torch", "backends", "optim", "tools", "tests"}) {
    if (path.starts_with(std::string(top) + "/")) return top;
  }
  return "";
}

struct Include {
  std::string file, header;
};

std::vector<Include> AllIncludes() {
  const fs::path root = ONNXTRAIN_SOURCE_DIR;
  const std::regex pattern("^\\s*#\\s*include\\s*[<\"]([^>\"]+)[>\"]");
  std::vector<Include> includes;
  for (const char* top : {"frontend", "backends", "optim", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      std::ifstream file(entry.path());
      std::smatch match;
      for (std::string line; std::getline(file, line);) {
        if (std::regex_search(line, match, pattern)) includes.push_back({fs::relative(entry.path(), root).string(), match[1]});
      }
    }
  }
  return includes;
}

bool Contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Fences, ProjectHeaders) {
  const auto includes = AllIncludes();
  ASSERT_GT(includes.size(), 100u);
  for (const Include& i : includes) {
    const std::string from = FolderOf(i.file), to = FolderOf(i.header);
    if (to.empty() || from == to || from == "tools") continue;
    ASSERT_TRUE(kMayInclude.contains(from)) << i.file;
    EXPECT_TRUE(Contains(kMayInclude.at(from), to)) << i.file << " includes " << i.header;
  }
}

TEST(Fences, ThirdPartyHeaders) {
  for (const Include& i : AllIncludes()) {
    for (const Fence& fence : kFences) {
      if (!std::regex_search(i.header, std::regex(fence.header))) continue;
      EXPECT_TRUE(std::regex_search(i.file, std::regex(fence.allowed))) << i.file << " includes " << i.header;
    }
  }
}

}  // namespace
