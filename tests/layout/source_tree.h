// The text of the project's sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain::layout {

struct SourceFile {
  std::string path;  // relative to the root of the repository
  std::string text;
};

// Returns the files with one of the extensions, for example ".cc", below the source folders, and with them the files of
// the root. CMakeLists.txt counts as ".cmake".
std::vector<SourceFile> ReadSources(const std::vector<std::string_view>& extensions);

std::vector<std::string> SplitLines(const std::string& text);

// Splits C++ source into words and punctuation, without comments, preprocessor lines and literals.
std::vector<std::string> Tokenize(const std::string& source);

}  // namespace onnxtrain::layout
