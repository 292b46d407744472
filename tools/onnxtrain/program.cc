#include "tools/onnxtrain/commands/command.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/files.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/version.h"
#include "frontend/passes/pass.h"
#include "optim/plan/folders.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"

namespace onnxtrain::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", kTaskTrain, "trains a model on data (the default subcommand)", RunTrain},
    {"eval", kTaskEval, "evaluates loss, accuracy and metrics on data", RunEval},
    {"predict", kTaskPredict, "writes the model's predictions as CSV", RunPredict},
    {"generate", kTaskGenerate, "writes text: an answer to a prompt, or a chat on the terminal", RunGenerate},
    {"grad", kTaskGrad, "writes loss, outputs and every gradient of one batch (.npz), or their graph (.onnx)", RunGrad},
    {"inspect", kTaskInspect, "shows inputs, operators, weights and which are trained, the loss that fits", RunInspect},
    {"compare", kTaskCompare, "compares the backends with each other, with another framework or finite differences",
     RunCompare},
    {"export", kTaskExport | kTaskGraph,
     "writes a model with other weights, or its training step as a graph for other runtimes", RunExport},
    {"plan", kTaskPlan | kTaskTrain,
     "plans the memory of a run, which has the same flags: by kind, recomputation, the largest micro-batch that fits",
     RunPlan},
    {"bench", kTaskBench,
     "times a training step and its operators against what the machine reaches; with data: loading", RunBench},
    {"tokenize", kTaskTokenize, "writes text as a shard of token ids, which language models train on", RunTokenize},
    {"monitor", kTaskMonitor, "follows a run from another terminal: monitor RUN", RunMonitor, "runs"},
    {"compare-runs", kTaskCompareRuns, "puts runs into one table, and into one page with --out: compare-runs A B …",
     RunCompareRuns, "runs"},
    {"launch", 0, "trains with several processes on this machine: launch --nproc N -- FLAGS", nullptr, "", RunLaunch,
     LaunchHelp},
    {"completion", 0, "prints a completion script: completion bash, zsh or fish", nullptr, "", RunReference,
     ReferenceHelp},
    {"reference", 0, "prints a reference page: reference man, flags, python or data-formats", nullptr, "", RunReference,
     ReferenceHelp},
};

const Command& FindCommand(std::string_view name) {
  return *std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Command& c) { return c.name == name; });
}

std::vector<CommandSpec> ListCommands() {
  std::vector<CommandSpec> specs;
  for (const Command& c : kCommands) specs.push_back({c.name, ListFlags(c.task), c.words});
  return specs;
}

std::string Overview() {
  std::string text =
      "onnxtrain trains ONNX models.\n\n"
      "  onnxtrain --model x.onnx --data train.npz --eval-data test.npz --epochs 3 --out runs/a\n"
      "  onnxtrain --model x.onnx            a trial run on synthetic data\n"
      "  onnxtrain SUBCOMMAND --model x.onnx …\n\nsubcommands (each has its own --help)\n";
  for (const Command& c : kCommands)
    StrAppend(&text, "  ", c.name, std::string(14 - std::string_view(c.name).size(), ' '), c.summary, "\n");
  return text + "\nflags of train\n";
}

absl::Status PrintHelp(const Command& command, bool overview) {
  if (command.help != nullptr) return Print(command.help());
  const std::string heading = overview ? Overview() : StrCat("onnxtrain ", command.name, ": ", command.summary, "\n");
  return Print(heading + FlagHelp(command.task));
}

// Returns the error for exhausted memory, with its purpose if known.
absl::Status OutOfMemory(const std::exception& error) {
  const std::string_view what = error.what();
  return absl::ResourceExhaustedError(StrCat("out of memory", what.starts_with("std::") ? "" : StrCat(": ", what)));
}

absl::StatusOr<int> RunGuarded(const Command& command, const TrainConfig& config) {
  try {
    return command.run(config);
  } catch (const std::bad_alloc& error) {
    return Annotate(OutOfMemory(error), StrCat(config.model, ": "));
  } catch (const std::length_error& error) {  // a container would exceed the address space
    return Annotate(OutOfMemory(error), StrCat(config.model, ": "));
  }
}

// Drops the words after a subcommand that parses its own, except --help.
std::vector<std::string> WordsForParser(const std::vector<std::string>& words) {
  const bool whole = words.empty() || !std::ranges::any_of(kCommands, [&](const Command& c) {
                       return c.run_words != nullptr && c.name == words[0];
                     });
  if (whole) return words;
  const bool help = words.size() > 1 && (words[1] == "--help" || words[1] == "-h");
  return help ? std::vector{words[0], words[1]} : std::vector{words[0]};
}

// Returns the configuration from the flags, and replaces a model folder by its model file. Prints notes on synonyms.
absl::StatusOr<TrainConfig> ReadConfig(const Command& command, const Arguments& args) {
  Rank rank;
  if (command.task == kTaskTrain) {
    ASSIGN_OR_RETURN(rank, ReadRank());
  }
  ASSIGN_OR_RETURN(TrainConfig config, ParseConfig(args, rank.size));
  ASSIGN_OR_RETURN(const FoundModel model, FindModelFile(config.model));
  config.model = model.path;
  if (rank.rank == 0 && !model.others.empty())
    LogInfo(config, StrCat("model      ", model.path, "; the folder also holds ", absl::StrJoin(model.others, ", ")));
  const std::vector<std::string> synonyms = DescribeSynonyms(args, rank.size);
  if (rank.rank == 0 && !synonyms.empty()) LogInfo(config, StrCat("flags      ", absl::StrJoin(synonyms, "; ")));
  return config;
}

// Reads presets/NAME from the installation where the current folder has none.
absl::StatusOr<std::string> ReadFlagFile(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  std::error_code ignored;
  if (path.starts_with("presets/") && !std::filesystem::exists(path, ignored)) {
    const std::filesystem::path installed = LibraryFolder() / "../share/onnxtrain" / path;
    if (std::filesystem::exists(installed, ignored)) return ReadTextFile(installed.string(), kMaxBytes);
  }
  return ReadTextFile(path, kMaxBytes);
}

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const Arguments args, ParseArguments(WordsForParser(words), ListCommands(), ReadFlagFile));
  if (args.version) {
    const bool known = kCommit[0] != 0;
    RETURN_IF_ERROR(Print(StrCat("onnxtrain ", kVersion, known ? " (" : "", kCommit, known ? ")" : "", "\n")));
    return kDone;
  }
  const Command& command = FindCommand(args.command);
  if (args.help) {
    RETURN_IF_ERROR(PrintHelp(command, words[0] != args.command));
    return kDone;
  }
  if (command.run_words != nullptr) return command.run_words(words);
  ASSIGN_OR_RETURN(TrainConfig config, ReadConfig(command, args));
  if ((FindField("data")->tasks & command.task) != 0) {
    RETURN_IF_ERROR(CheckNamesNoArrayFile(config));
    config = WithFolderRoot(std::move(config));
  }
  if (config.verify_passes) SetVerifyPasses(true);
  return RunGuarded(config.dry_run ? FindCommand("plan") : command, config);
}

int ReportStop() {
  std::fputs("onnxtrain: stopped by a signal while preparing the model\n", stderr);
  return kStopped;
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

bool IsTrainCommand(const char* first_word) {
  return first_word == nullptr || first_word[0] == '-' || std::string_view(first_word) == kCommands[0].name;
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) line += c == '\n' || c == '\r' ? ' ' : c;
  return line;
}

int RunProgram(const std::vector<std::string>& words) {
  const auto code = Run(words);
  if (code.ok()) return *code;
  if (absl::IsCancelled(code.status())) return ReportStop();
  const std::string message = FieldsToFlags(ToStd(code.status().message()));
  std::fprintf(stderr, "onnxtrain: error: %s\n", OneLine(message).c_str());
  return kBadInput;
}

}  // namespace onnxtrain::cli
