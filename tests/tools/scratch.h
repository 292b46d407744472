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

#include "frontend/base/strings.h"
#include "tests/paths.h"

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

// Returns the prefix of a run whose calls of the file system fail as the settings say (fault_shim.c).
template <typename... Settings>
std::string WithFaultShim(const Settings&... settings) {
  return StrCat("env LD_PRELOAD=", BinaryPath("lib/libfault_shim.so"), " ", settings...);
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

  // Runs `onnxtrain LINE` in the folder, in this process (run_in_process.cc, of the library tests_scratch). The line is
  // split and expanded as a shell does it, without pipes, lists and redirections.
  Outcome Run(const std::string& line) const;
  // Runs the line in a process of its own, through a shell: for signals, kills, environment, memory and pipes. `prefix`
  // comes before the program ("timeout -s INT 1").
  Outcome RunProcess(const std::string& line, const std::string& prefix = "") const {
    const std::string command = StrCat("cd '", folder_, "' && ", prefix, " '", BinaryPath("bin/onnxtrain"), "' ", line,
                                       " >.out 2>.err </dev/null");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), ReadAll(Path(".out")), ReadAll(Path(".err"))};
  }

  std::string folder_;
};

}  // namespace onnxtrain
