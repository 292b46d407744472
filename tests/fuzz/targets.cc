#include "tests/fuzz/targets.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/graph/text_form.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/mixed_precision.h"
#include "frontend/passes/pipeline.h"
#include "tests/fuzz/data_targets.h"
#include "tests/fuzz/scratch.h"
#include "tools/onnxtrain/flags/flags.h"

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

void ExpectValid(const Graph& graph) {
  const absl::Status valid = Verify(graph);
  CHECK(valid.ok()) << valid;
}

absl::StatusOr<Graph> ImportGraph(std::string_view bytes) {
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load(WriteScratch("import.onnx", bytes)));
  RETURN_IF_ERROR(CheckOperators(*model, {}));
  ASSIGN_OR_RETURN(ImportedModel imported, Import(*model, {.batch = 2, .training = true}));
  ExpectValid(imported.graph);
  return std::move(imported.graph);
}

bool RunImport(std::string_view bytes) { return Accepts(ImportGraph(bytes).status()); }

// The passes of a training step over a model, with the gradient of all its outputs by everything that has one.
bool RunTraining(std::string_view bytes) {
  auto graph = ImportGraph(bytes);
  if (graph.ok()) graph = Canonicalize(*std::move(graph));
  if (!Accepts(graph.status())) return false;
  ExpectValid(*graph);
  std::vector<Seed> seeds;
  for (const GraphOutput& output : graph->outputs()) {
    if (IsFloat(graph->type(output.value).dtype)) seeds.push_back({output.value});
  }
  std::vector<ValueId> inputs;
  for (const GraphInput& input : graph->inputs()) {
    if (IsFloat(graph->type(input.value).dtype)) inputs.push_back(input.value);
  }
  const auto gradients = Differentiate(&*graph, seeds, inputs);
  if (!Accepts(gradients.status())) return true;
  for (const auto& [input, gradient] : *gradients) graph->AddOutput(StrCat("gradient ", input), gradient);
  ExpectValid(*graph);
  graph = CleanUp(*std::move(graph));
  if (!Accepts(graph.status())) return true;
  ExpectValid(*graph);
  const auto mixed = MixedPrecision(*graph, DType::kBFloat16);
  if (Accepts(mixed.status())) ExpectValid(*mixed);
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
    {"model", RunModel}, {"import", RunImport}, {"passes", RunTraining}, {"graph", RunGraph}, {"flags", RunFlags}};

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
