#include "frontend/onnx/recover/parametrizations.h"

#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kTrain = "`train`", kTie = "`tie` none";

// Later rows see the graph that earlier ones have built: weights of modules that an exporter merged are split before
// values are compared, and equal ones that remain are tied at the end.
constexpr Parametrization kRows[] = {
    {"node of another module", "", MatchMergedNodes, BuildMergedNodes, WriteMergedNodes},
    {"part of another module", "", MatchMergedParts, BuildMergedNodes, WriteMergedNodes},
    {"exported module", kTrain, MatchOrigins, BuildOrigin},
    {"merged weight", "", MatchMergedWeights, BuildSplit, WriteSplit},
    {"removed bias", "", MatchRemovedBiases, BuildSplit, WriteSplit},
    {"table of positions", kTrain, MatchPositionTables, BuildOrigin},
    {"running statistic", kTrain, MatchRunningStatistics, BuildOrigin},
    {"traced constant", kTrain, MatchTracedConstants, BuildOrigin},
    {"copy within a module", "", MatchSharedCopies, BuildSharedCopy},
    {"standardizer", kTrain, MatchStandardizers, BuildOrigin},
    {"mean of a normalization", kTrain, MatchMeans, BuildOrigin},
    {"random frequencies", kTrain, MatchFrequencies, BuildOrigin},
    {"known name", kTrain, MatchKnownNames, BuildOrigin},
    {"number of a formula", kTrain, MatchNumbers, BuildOrigin},
    {"module of its reader", "", MatchModules, BuildOrigin},
    {"fresh weight of a module", "", MatchFreshWeights, BuildSplit, WriteSplit},
    {"copy of a constant", kTrain, MatchFixedCopies, BuildOrigin},
    {"scale of a product", "", MatchProductScales, BuildProductScale},
    {"stored numbers", "", MatchStoredNumbers, nullptr},
    {"quantized weight", "", MatchQuantizedWeights, nullptr, WriteQuantized},
    {"padding row", kTrain, MatchPaddingRows, BuildMarkedNodes},
    {"single bias", "", MatchSingleBiases, BuildMarkedNodes},
    {"function of a parameter", "", MatchFunctions, BuildFunction, WriteFunction},
    {"repeated rows", kTie, MatchRepeatedRows, BuildRepeatedRows, WriteRepeatedRows},
    {"joined parts", kTie, MatchJoinedParts, BuildJoinedParts, WriteJoinedParts},
    {"tied by request", "`tie`", MatchGivenTies, BuildTie, WriteTie},
    {"stored twice", kTie, MatchStoredTwice, BuildTie, WriteTie},
    {"head of the embedding", kTie, MatchHeads, BuildTie, WriteTie},
    {"complement", kTie, MatchComplements, BuildComplement, WriteTie},
    {"computed twice", kTie, MatchComputedTwice, BuildTie, WriteTie},
    {"low-rank update", "`lora_target`", MatchLowRank, BuildLowRank, WriteLowRank},
};

std::string CountWithExample(const std::vector<std::string>& names) {
  return StrCat(names.size(), " ('", Printable(names[0]), names.size() > 1 ? "', …)" : "')");
}

void NoteMissing(const TorchNaming& naming, OnnxModel::Parsed* model) {
  if (!naming.missing.empty())
    model->notes.push_back(
        StrCat("parameters of the exported module that the file does not hold: ", CountWithExample(naming.missing),
               ", folded into others and not trained (PyTorch: optimize=False keeps them)"));
  if (!naming.unread.empty())
    model->notes.push_back(
        StrCat("parameters of the exported module that nothing in the file reads: ", CountWithExample(naming.unread),
               ", unused, or removed with an operation that changed nothing while they were 0 or 1 "
               "(PyTorch: optimize=False keeps them)"));
}

// Notes values that train differently from the module: expressions of several parameters, or of one that is stored as
// well. Rows that were gathered from one parameter train as in the module.
void NoteFolded(std::vector<FoldedWeight> folded, OnnxModel::Parsed* model) {
  constexpr size_t kMost = 4;
  const auto joined_weights = ListForms<JoinedWeight>(model->graph.records);
  std::erase_if(folded, [&](const FoldedWeight& f) {
    const bool joined =
        std::ranges::any_of(joined_weights, [&](const JoinedWeight* joined) { return joined->value == f.name; });
    return joined || (f.parameters.size() == 1 && !model->graph.initializers.contains(f.name));
  });
  for (size_t i = 0; i < std::min(folded.size(), kMost); ++i) {
    std::string parameters;
    for (const std::string& name : folded[i].parameters)
      StrAppend(&parameters, parameters.empty() ? "'" : ", '", Printable(name), "'");
    model->notes.push_back(StrCat("the exporter computed '", Printable(folded[i].name), "' from ", parameters,
                                  ": it trains as a value of its own (PyTorch: optimize=False keeps the expression)"));
  }
  if (folded.size() > kMost)
    model->notes.push_back(
        StrCat("further values that the exporter computed from parameters: ", folded.size() - kMost));
}

}  // namespace

std::span<const Parametrization> GetParametrizations() { return kRows; }

absl::Status RecoverWeights(const TorchMetadata& metadata, OnnxModel::Parsed* model) {
  WeightIndex index(metadata, model);
  WeightRecords& records = model->graph.records;
  for (const Parametrization& row : kRows) {
    ASSIGN_OR_RETURN(WeightRecords found, row.matches(&index));
    for (WeightRecord& record : found) {
      record.row = &row;
      if (row.build != nullptr) row.build(record, &index);
      records.push_back(std::move(record));
    }
    if (!found.empty() && row.build != nullptr && row.build != BuildOrigin) index.Refresh();
  }
  index.Finish();
  NoteFolded(index.naming.folded, model);
  NoteMissing(index.naming, model);
  return absl::OkStatus();
}

absl::Status WriteStoredForms(const WeightRecords& records, StoredWeights* weights) {
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->row->write != nullptr) RETURN_IF_ERROR(record->row->write(*record, weights));
  }
  return absl::OkStatus();
}

WeightForm DescribeForm(const OnnxModel& model, const std::string& weight) {
  const WeightRecords& records = model.parsed().graph.records;
  const auto last = std::find_if(records.rbegin(), records.rend(), [&](const WeightRecord& record) {
    const auto* tie = std::get_if<WeightTie>(&record.form);
    return record.weight == weight || (tie != nullptr && tie->weight == weight);
  });
  if (last == records.rend()) return {.row = "plain"};
  const auto* origin = std::get_if<WeightOrigin>(&last->form);
  const bool trained = origin != nullptr &&
                       (origin->kind == WeightOrigin::Kind::kUnknown || origin->kind == WeightOrigin::Kind::kParameter);
  return {.row = std::string(last->row->name), .why = last->why, .flag = trained ? "" : std::string(last->row->flag)};
}

}  // namespace onnxtrain
