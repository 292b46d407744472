#include "tests/fuzz/targets.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/graph/parse.h"
#include "frontend/graph/print.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/check.h"
#include "tests/fuzz/data_targets.h"
#include "tests/fuzz/scratch.h"
#include "tools/onnxtrain/flags/flags_prepass.h"

namespace onnxtrain {
namespace {

bool RunModel(std::string_view bytes) {
  const auto model = OnnxModel::Load(WriteScratch("model.onnx", bytes));
  if (!Accepts(model.status())) return false;
  (*model)->nodes();
  CHECK((*model)->sha256().size() == 64);
  for (const std::string& name : (*model)->InitializerNames()) CHECK((*model)->Initializer(name) != nullptr) << name;
  return true;
}

bool RunImport(std::string_view bytes) {
  const auto model = OnnxModel::Load(WriteScratch("import.onnx", bytes));
  if (!Accepts(model.status()) || !Accepts(CheckOperators(**model, {}))) return false;
  const auto imported = Import(**model, {.batch = 2, .training = true});
  if (!Accepts(imported.status())) return false;
  const absl::Status valid = Verify(imported->graph);
  CHECK(valid.ok()) << valid;
  return true;
}

bool RunGraph(std::string_view bytes) {
  const auto graph = Parse(bytes, {.max_splat_bytes = kMaxFuzzBytes});
  if (!Accepts(graph.status())) return false;
  Accepts(Verify(*graph));
  const auto again = Parse(Print(*graph), {.max_splat_bytes = kMaxFuzzBytes});
  CHECK(again.ok()) << again.status();
  CHECK(Print(*again) == Print(*graph));
  return true;
}

// One word per line. The bytes are also the content of every flag file.
bool RunFlags(std::string_view bytes) {
  static const std::vector<cli::FlagSpec> flags = {{.name = "model"},
                                                   {.name = "epochs"},
                                                   {.name = "batch_size"},
                                                   {.name = "lr", .repeatable = true},
                                                   {.name = "shuffle", .boolean = true}};
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(bytes), '\n');
  const auto read = [&](const std::string&) -> absl::StatusOr<std::string> { return std::string(bytes); };
  return Accepts(cli::ParseArguments(words, {{"train", flags}, {"plan", flags}}, read).status());
}

constexpr FuzzTarget kTargets[] = {
    {"model", RunModel}, {"import", RunImport}, {"graph", RunGraph}, {"flags", RunFlags}};

}  // namespace

std::span<const FuzzTarget> FuzzTargets() {
  static const auto* const kAll = [] {
    auto* all = new std::vector<FuzzTarget>(std::begin(kTargets), std::end(kTargets));
    all->insert(all->end(), DataFuzzTargets().begin(), DataFuzzTargets().end());
    return all;
  }();
  return *kAll;
}

}  // namespace onnxtrain
