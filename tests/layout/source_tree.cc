#include "tests/layout/source_tree.h"
#include "tests/paths.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace onnxtrain::layout {
namespace {

namespace fs = std::filesystem;

SourceFile ReadSource(const fs::path& path, const fs::path& root) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return {fs::relative(path, root).string(), text.str()};
}

bool HasExtension(const fs::path& path, const std::vector<std::string_view>& extensions) {
  const std::string extension = path.filename() == "CMakeLists.txt" ? ".cmake" : path.extension().string();
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

bool IsWordChar(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }

// Returns the position after the next `end` at or after `from`.
size_t After(const std::string& source, const std::string& end, size_t from) {
  const size_t at = source.find(end, from);
  return at == std::string::npos ? source.size() : at + end.size();
}

// Returns the position after the next `end` that no backslash escapes.
size_t AfterUnescaped(const std::string& source, char end, size_t i) {
  while (i < source.size() && source[i] != end) i += source[i] == '\\' ? 2 : 1;
  return std::min(i + 1, source.size());
}

// Returns the position after the comment, preprocessor line or literal that starts at `i`, or `i` where none does.
size_t SkipNonCode(const std::string& s, size_t i) {
  if (s.compare(i, 2, "//") == 0) return After(s, "\n", i);
  if (s.compare(i, 2, "/*") == 0) return After(s, "*/", i);
  if (s[i] == '#') return AfterUnescaped(s, '\n', i);
  if (s.compare(i, 2, "R\"") == 0)
    return After(s, std::string(")").append(s, i + 2, s.find('(', i) - i - 2).append("\""), i);
  return s[i] == '"' || s[i] == '\'' ? AfterUnescaped(s, s[i], i + 1) : i;
}

size_t AfterWord(const std::string& s, size_t i) {
  const bool number = std::isdigit(static_cast<unsigned char>(s[i]));
  while (i < s.size() && (IsWordChar(s[i]) || (number && s[i] == '\''))) ++i;
  return i;
}

}  // namespace

std::vector<SourceFile> ReadSources(const std::vector<std::string_view>& extensions) {
  const fs::path root = RepoPath();
  std::vector<SourceFile> sources;
  const auto add = [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file() && HasExtension(entry.path(), extensions))
      sources.push_back(ReadSource(entry.path(), root));
  };
  for (const auto& entry : fs::directory_iterator(root)) add(entry);
  for (const char* folder : {"frontend", "backends", "optim", "capi", "tools", "tests", "cmake"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) add(entry);
  }
  return sources;
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Tokenize(const std::string& s) {
  std::vector<std::string> tokens;
  for (size_t i = 0; i < s.size();) {
    if (const size_t after = SkipNonCode(s, i); after > i) {
      i = after;
      continue;
    }
    const size_t end = IsWordChar(s[i]) ? AfterWord(s, i) : i + (s.compare(i, 2, "::") == 0 ? 2 : 1);
    if (!std::isspace(static_cast<unsigned char>(s[i]))) tokens.push_back(s.substr(i, end - i));
    i = end;
  }
  return tokens;
}

}  // namespace onnxtrain::layout
