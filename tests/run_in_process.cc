// Runs the program within the process of a test, for Scratch::Run.
#include <fcntl.h>
#include <unistd.h>
#include <wordexp.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tools/scratch.h"
#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Points a descriptor at a file while it lives.
class Redirection {
 public:
  Redirection(int descriptor, const char* path, int flags) : descriptor_(descriptor), saved_(dup(descriptor)) {
    std::fflush(nullptr);
    const int file = open(path, flags | O_CLOEXEC, 0600);
    EXPECT_GE(dup2(file, descriptor_), 0) << path;
    close(file);
  }
  ~Redirection() {
    std::fflush(nullptr);
    dup2(saved_, descriptor_);
    close(saved_);
  }
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;

 private:
  int descriptor_, saved_;
};

// Restores the environment, which the program changes for the libraries that it loads.
class SavedEnvironment {
 public:
  SavedEnvironment() : variables_(Read()) {}
  ~SavedEnvironment() {
    for (const auto& [name, value] : Read()) {
      if (!variables_.contains(name)) unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  SavedEnvironment(const SavedEnvironment&) = delete;
  SavedEnvironment& operator=(const SavedEnvironment&) = delete;

 private:
  static std::map<std::string, std::string> Read() {
    std::map<std::string, std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const size_t equals = text.find('=');
      if (equals != text.npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return variables;
  }
  std::map<std::string, std::string> variables_;
};

class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~WorkingFolder() { fs::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  fs::path before_;
};

std::vector<std::string> SplitWords(const std::string& line) {
  wordexp_t words = {};
  EXPECT_EQ(wordexp(line.c_str(), &words, WRDE_NOCMD | WRDE_UNDEF), 0) << "needs RunProcess: " << line;
  const std::vector<std::string> split(words.we_wordv, words.we_wordv + words.we_wordc);
  wordfree(&words);
  return split;
}

}  // namespace

Outcome Scratch::Run(const std::string& line) const {
  int code = -1;
  {
    const WorkingFolder folder(folder_);
    const SavedEnvironment environment;
    const std::vector<std::string> words = SplitWords(line);
    const Redirection in(STDIN_FILENO, "/dev/null", O_RDONLY);
    const Redirection out(STDOUT_FILENO, ".out", O_WRONLY | O_CREAT | O_TRUNC);
    const Redirection err(STDERR_FILENO, ".err", O_WRONLY | O_CREAT | O_TRUNC);
    code = cli::RunProgram(words);
  }
  return {code, ReadAll(Path(".out")), ReadAll(Path(".err"))};
}

}  // namespace onnxtrain
