#include "tests/fuzz/seeds.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "frontend/base/strings.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSeeds = 60;  // of a target

struct Seeds {
  Seeds() {
    std::string name = (fs::temp_directory_path() / "onnxtrain_seeds_XXXXXX").string();
    folder = mkdtemp(name.data());
    const std::string script = RepoPath("tests/fuzz/make_seeds.py");
    ok = std::system(StrCat("/usr/bin/python3 '", script, "' '", folder.string(), "'").c_str()) == 0;
  }
  ~Seeds() { fs::remove_all(folder); }
  fs::path folder;
  bool ok = false;
};

}  // namespace

fs::path SeedsFolder() {
  static const Seeds seeds;
  return seeds.ok ? seeds.folder : fs::path();
}

std::vector<std::string> ReadSeeds(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> contents;
  for (size_t i = 0; i < paths.size(); i += (paths.size() + kMaxSeeds - 1) / kMaxSeeds) {
    std::ifstream in(paths[i], std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return contents;
}

}  // namespace onnxtrain
