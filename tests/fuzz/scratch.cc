#include "tests/fuzz/scratch.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "frontend/base/log.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

// Is left behind, with its last files, by a crash.
class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / StrCat("onnxtrain_fuzz_", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  // Makes a new file: ext4 writes one that is overwritten to the disk when it is closed.
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::filesystem::remove(path_ / name);
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

bool Accepts(const absl::Status& status) {
  if (status.ok()) return true;
  CHECK(!status.message().empty());
  CHECK(status.message().find('\n') == absl::string_view::npos) << ToStd(status.message());
  return false;
}

std::string WriteScratch(const std::string& name, std::string_view bytes) {
  static const ScratchFolder folder;
  return folder.Write(name, bytes);
}

}  // namespace onnxtrain
