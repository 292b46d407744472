// Every include follows the dependency rules between folders and keeps third-party libraries behind their fences.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace onnxtrain::layout {
namespace {

using Names = std::vector<std::string>;

// Folder → other folders whose headers it may include.
const std::map<std::string, Names> kMayInclude = {
    {"frontend/base", {}},
    {"frontend/graph", {"frontend/base"}},
    {"frontend/ops", {"frontend/base", "frontend/graph"}},
    {"frontend/plugin", {"frontend/base", "frontend/graph", "frontend/ops"}},
    {"frontend/passes", {"frontend/base", "frontend/graph", "frontend/ops"}},
    {"frontend/onnx", {"frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"frontend/data", {"frontend/base", "frontend/graph"}},
    {"backends", {"frontend/base", "frontend/graph", "frontend/ops", "frontend/passes", "frontend/plugin"}},
    {"backends/cpu", {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"backends/torch", {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes"}},
    {"optim",
     {"backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes", "frontend/plugin",
      "frontend/onnx", "frontend/data"}},
    {"capi",
     {"optim", "backends", "frontend/base", "frontend/graph", "frontend/ops", "frontend/passes", "frontend/plugin",
      "frontend/onnx", "frontend/data"}},
};

// Third-party headers (regular expression) → files that may include them (regular expression on the path).
struct Fence {
  std::string header, allowed;
};
const std::vector<Fence> kFences = {
    {"^(onnx/|google/protobuf/)", "^frontend/onnx/.*\\.(cc|h)$"},
    {"^(ATen|c10|torch|caffe2)/", "^backends/(torch|comm)/"},
    {"^(dnnl|oneapi/)", "^backends/cpu/"},
    {"^(unsupported/)?Eigen/",
     "(ops/matmul|audio/spectrogram|kernels/determinant|(ops|kernels)/leading_directions|plan/adapter_init|record/"
     "adapter_summary)\\.cc$"},
    {"^gflags/", "^tools/"},
    {"^glog/", "^frontend/base/log\\.h$"},
    {"^nlohmann/", "^(frontend/data|optim|tools)/"},
    {"^openssl/", "^frontend/base/"},
    {"^(zip|zlib|zstd|archive|archive_entry|sndfile|samplerate)\\.h", "^frontend/data/"},
    {"^(jpeglib|jerror|png|gif_lib|tiffio)\\.h|^webp/", "^frontend/data/image/"},
    {"^unicode/", "^frontend/data/text/"},
    {"^(arrow|parquet)/", "^frontend/data/arrow/module/"},
    {"^sentencepiece_processor\\.h", "^frontend/data/text/sentencepiece/module\\.cc$"},
};

std::string ParentFolder(const std::string& path) {
  for (const char* top :
       {"frontend/base", "frontend/graph", "frontend/ops", "frontend/plugin", "frontend/passes", "frontend/onnx",
        "frontend/data", "backends/cpu", "backends/torch", "backends", "optim", "capi", "tools", "tests"}) {
    if (path.starts_with(std::string(top) + "/")) return top;
  }
  return "";
}

struct Include {
  std::string file, header;
};

// Returns the includes of everything but the tests.
std::vector<Include> ListIncludes() {
  const std::regex pattern("^\\s*#\\s*include\\s*[<\"]([^>\"]+)[>\"]");
  std::vector<Include> includes;
  for (const SourceFile& file : ReadSources({".h", ".cc"})) {
    if (file.path.starts_with("tests/")) continue;
    std::smatch match;
    for (const std::string& line : SplitLines(file.text)) {
      if (std::regex_search(line, match, pattern)) includes.push_back({file.path, match[1]});
    }
  }
  return includes;
}

bool Contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Fences, ProjectHeaders) {
  const auto includes = ListIncludes();
  ASSERT_GT(includes.size(), 100u);
  for (const Include& i : includes) {
    const std::string from = ParentFolder(i.file), to = ParentFolder(i.header);
    if (to.empty() || from == to || from == "tools") continue;
    ASSERT_TRUE(kMayInclude.contains(from)) << i.file;
    EXPECT_TRUE(Contains(kMayInclude.at(from), to)) << i.file << " includes " << i.header;
  }
}

TEST(Fences, ThirdPartyHeaders) {
  for (const Include& i : ListIncludes()) {
    for (const Fence& fence : kFences) {
      if (!std::regex_search(i.header, std::regex(fence.header))) continue;
      EXPECT_TRUE(std::regex_search(i.file, std::regex(fence.allowed))) << i.file << " includes " << i.header;
    }
  }
}

}  // namespace
}  // namespace onnxtrain::layout
