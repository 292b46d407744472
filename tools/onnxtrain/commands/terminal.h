// The terminal that stdout is.
#pragma once

#include <cstddef>
#include <optional>

namespace onnxtrain::cli {

struct TerminalSize {
  size_t columns = 80, rows = 24;
};
// nullopt where stdout is a file or a pipe.
std::optional<TerminalSize> StdoutTerminal();

}  // namespace onnxtrain::cli
