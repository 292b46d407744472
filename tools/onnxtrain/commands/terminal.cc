#include "tools/onnxtrain/commands/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace onnxtrain::cli {

std::optional<TerminalSize> StdoutTerminal() {
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return TerminalSize();
  return TerminalSize{size.ws_col, size.ws_row};
}

}  // namespace onnxtrain::cli
