// onnxtrain: a table of subcommands behind one command line.
#include <cstdio>
#include <string>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/text_file.h"
#include "tools/onnxtrain/version.h"

namespace onnxtrain::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "trains a model on data (also without the word)", RunTrain},
    {"eval", "loss and accuracy on data", RunEval},
    {"predict", "writes the model's predictions as CSV", RunPredict},
    {"grad", "writes loss, outputs and every gradient of one batch as .npz", RunGrad},
    {"inspect", "shows the model: inputs, operators, weights and which are trained, the loss that fits", RunInspect},
    {"compare", "checks the backends against each other, another framework's values or finite differences", RunCompare},
    {"export", "writes a model with other weights", RunExport},
    {"plan", "what a training step needs: memory by kind, recomputation, the largest micro-batch that fits", RunPlan},
    {"bench", "times a training step and its operators against what the machine reaches", RunBench},
};

std::vector<CommandSpec> Specs() {
  std::vector<CommandSpec> specs;
  for (const Command& c : kCommands) specs.push_back({c.name, FlagsOf(c.name)});
  return specs;
}

absl::Status PrintHelp(const std::string& command, bool overview) {
  std::string text;
  if (overview) {
    text =
        "onnxtrain trains ONNX models.\n\n  onnxtrain --model x.onnx --data train.npz --eval-data test.npz --epochs 3 "
        "--out runs/a\n"
        "  onnxtrain --model x.onnx            a try on synthetic data\n"
        "  onnxtrain SUBCOMMAND --model x.onnx …\n\nsubcommands (each has its own --help)\n";
    for (const Command& c : kCommands)
      StrAppend(&text, "  ", c.name, std::string(10 - std::string_view(c.name).size(), ' '), c.summary, "\n");
    text += "\nflags of train\n";
  } else {
    for (const Command& c : kCommands) {
      if (command == c.name) text = StrCat("onnxtrain ", c.name, ": ", c.summary, "\n");
    }
  }
  return Print(text + FlagHelp(command));
}

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const Arguments args,
                   ParseArguments(words, Specs(), [](const std::string& path) { return ReadTextFile(path, 1 << 20); }));
  if (args.version) {
    RETURN_IF_ERROR(Print(StrCat("onnxtrain ", kVersion, "\n")));
    return kDone;
  }
  if (args.help) {
    RETURN_IF_ERROR(PrintHelp(args.command, words[0] != args.command));
    return kDone;
  }
  RETURN_IF_ERROR(SetFlags(args));
  for (const Command& c : kCommands) {
    if (args.command == c.name) return c.run();
  }
  return kBadInput;
}

// Messages are one line, whatever a library or a file name put into them.
std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) line += c == '\n' || c == '\r' ? ' ' : c;
  return line;
}

}  // namespace
}  // namespace onnxtrain::cli

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::WARNING;
  google::InitGoogleLogging(argv[0]);
  onnxtrain::cli::IgnoreBrokenPipes();
  const auto code = onnxtrain::cli::Run({argv + 1, argv + argc});
  if (code.ok()) return *code;
  std::fprintf(stderr, "onnxtrain: error: %s\n",
               onnxtrain::cli::OneLine(onnxtrain::ToStd(code.status().message())).c_str());
  return onnxtrain::cli::kBadInput;
}
