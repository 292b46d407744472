// The program behind its command line, as a function that main and tests call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain::cli {

// Runs a subcommand on the words after the program's name. Prints results on stdout, and progress and errors on stderr.
// Returns the exit code. Sets environment variables and handles signals, so that a process runs one at a time.
int RunProgram(const std::vector<std::string>& words);

// Returns whether the words after the program's name train: the subcommand is the first word, where there is one.
bool IsTrainCommand(const char* first_word);

// Replaces line breaks: messages are one line, whatever a library or a file name put into them.
std::string OneLine(std::string_view text);

}  // namespace onnxtrain::cli
