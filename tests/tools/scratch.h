// A folder that is gone after the test, and the program in it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace onnxtrain {

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void WriteAll(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Outcome {
  int code = -1;  // exit code, or -signal
  std::string out, err;
};

// Expects that the program has refused its line, with this part in the message.
inline void ExpectRefused(const Outcome& run, const std::string& part) {
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "onnxtrain-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  // Tries again where a thread that nothing waits for, as one that asks a rank's store, has removed its file meanwhile.
  ~Scratch() override {
    std::error_code error;
    do {
      std::filesystem::remove_all(folder_, error);
    } while (error == std::errc::no_such_file_or_directory);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  bool Exists(const std::string& name) const { return std::filesystem::exists(Path(name)); }

  // Runs `onnxtrain LINE` in the folder through a shell; `prefix` comes before the program ("timeout -s INT 1").
  Outcome Run(const std::string& line, const std::string& prefix = "") const {
    const std::string program = std::string(ONNXTRAIN_BINARY_DIR) + "/bin/onnxtrain";
    const std::string command =
        "cd '" + folder_ + "' && " + prefix + " '" + program + "' " + line + " >.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), ReadAll(Path(".out")), ReadAll(Path(".err"))};
  }

  std::string folder_;
};

}  // namespace onnxtrain
