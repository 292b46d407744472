#include "optim/auto/text_setup.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/machine.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "optim/auto/model_setup.h"
#include "optim/loss.h"

namespace onnxtrain {
namespace {

constexpr char kChars[] = "chars";
// Of models without a table of positions: longer samples are rarely meant.
constexpr int64_t kMaxLength = 4096;

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadKnown(const TrainConfig& config, const TextPreprocess& before) {
  const std::filesystem::path folder = std::filesystem::path(PreprocessPath(config.model)).parent_path();
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer((folder / before.tokenizer).string()));
  if (TokenizerDigest(*tokenizer) != before.sha256)
    return Invalid((folder / before.tokenizer).string(),
                   ": is not the tokenizer that the model was trained with (`tokenizer` names another one)");
  return tokenizer;
}

// The names of columns that are given by name or 0-based index.
std::vector<std::string> ResolveColumns(const Dataset& data, std::vector<std::string> names) {
  const std::vector<Column>& columns = data.columns();
  for (std::string& name : names) {
    const bool known = std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; });
    const auto index = ParseInt(name);
    if (!known && index.ok() && *index >= 0 && *index < std::ssize(columns)) name = columns[*index].name;
  }
  return names;
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeFromChars(const Dataset& data,
                                                               const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (size_t c = 0; c < data.columns().size(); ++c) {
    if (std::ranges::find(names, data.columns()[c].name) == names.end() || !data.columns()[c].text) continue;
    for (int64_t i = 0; i < data.size(); ++i) {
      if (auto text = data.ReadText(i, static_cast<int>(c)); text.ok()) texts.push_back(*std::move(text));
    }
  }
  return MakeCharTokenizer({texts.begin(), texts.end()});
}

bool IsTokenInput(const ModelInput& input) {
  return input.has_shape && input.dims.size() == 2 && IsInteger(input.dtype) && input.form.is_tensor();
}

// The rows of a table that constant indices 0, 1, 2, … (or from an offset on) of `length` select; 0: there is none.
int64_t FindPositionRows(const Graph& graph, int64_t length) {
  int64_t limit = 0;
  for (const Node& node : graph.nodes()) {
    const HostTensor* indices = node.op == "Gather" ? graph.FindConstant(node.inputs[1]) : nullptr;
    if (indices == nullptr || indices->size() == 0) continue;
    std::set<int64_t> values;
    for (int64_t i = 0; i < indices->size(); ++i) values.insert(indices->IntAt(i));
    const bool positions =
        *values.begin() >= 0 && std::ssize(values) == length && *values.rbegin() - *values.begin() == length - 1;
    const int64_t rows = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")] - *values.begin();
    if (positions && (limit == 0 || rows < limit)) limit = rows;
  }
  return limit;
}

// Imports the model with samples of `length` tokens.
absl::StatusOr<ImportedModel> ImportAtLength(const TrainConfig& config, const OnnxModel& model, int64_t length) {
  constexpr int64_t kBatch = 2;
  ASSIGN_OR_RETURN(ImportOptions import, MakeImportOptions(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (IsTokenInput(input)) import.input_shapes[input.name] = {kBatch, input.dims[1] < 0 ? length : input.dims[1]};
  }
  import.batch = kBatch;
  const LossSpec loss{.name = config.loss.empty() ? "auto" : config.loss, .logits = config.logits};
  ASSIGN_OR_RETURN(import.outputs, LossOutputs(model, loss));
  return Import(model, import);
}

std::string DescribeLimit(const LengthLimit& limit) {
  if (limit.exact) return ", which the model's inputs are fixed to";
  return limit.length > 0 ? ", the positions of the model" : "";
}

// The length that samples are truncated to.
absl::StatusOr<int64_t> ChooseLength(int64_t asked, const LengthLimit& limit) {
  if (asked > 0 && limit.length > 0 && asked > limit.length)
    return Invalid("`max_length` ", asked, ": the model takes at most ", limit.length, " tokens");
  if (limit.exact) return limit.length;
  if (asked > 0) return asked;
  return limit.length > 0 ? limit.length : kMaxLength;
}

std::string DescribeTokens(const TokenizedText& text, const TextSetup& setup, const LengthLimit& limit) {
  const auto samples = static_cast<double>(text.dataset->size());
  return absl::StrFormat(
      "text '%s': %s; %.1f tokens a sample, %d the longest; %.2f%% of the samples truncated to %d%s "
      "(`max_length`)",
      absl::StrJoin(setup.columns, "', '"), setup.tokenizer->description(), static_cast<double>(text.tokens) / samples,
      text.longest, 100 * static_cast<double>(text.truncated) / samples, setup.max_length, DescribeLimit(limit));
}

}  // namespace

absl::StatusOr<TextSetup> MakeTextSetup(const TrainConfig& config, const std::optional<Preprocess>& before,
                                        bool may_fit) {
  TextSetup setup{.columns = config.text, .max_length = config.max_length};
  const TextPreprocess known = before.has_value() ? before->text : TextPreprocess();
  if (setup.columns.empty()) setup.columns = known.columns;
  if (setup.columns.empty()) {
    if (!config.tokenizer.empty()) return Invalid("`tokenizer`: has no effect: which columns are text? (`text`)");
    if (config.max_length > 0) return Invalid("`max_length`: has no effect: which columns are text? (`text`)");
    return setup;
  }
  if (setup.columns.size() > 2) return Invalid("`text`: one column, or two of a pair, not ", setup.columns.size());
  if (setup.max_length == 0) setup.max_length = known.max_length;
  if (config.tokenizer == kChars && !std::filesystem::exists(kChars)) {
    return may_fit ? absl::StatusOr<TextSetup>(setup)
                   : Invalid("`tokenizer` chars: only training makes a tokenizer of its data");
  }
  if (!config.tokenizer.empty()) {
    auto tokenizer = LoadTokenizer(config.tokenizer);
    if (!tokenizer.ok()) return Annotate(tokenizer.status(), "`tokenizer`: ");
    setup.tokenizer = *std::move(tokenizer);
  } else if (!known.columns.empty()) {
    ASSIGN_OR_RETURN(setup.tokenizer, LoadKnown(config, known));
  } else {
    return Invalid("`text`: needs a `tokenizer` (tokenizer.json, vocab.txt, …, or chars)");
  }
  return setup;
}

absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model) {
  constexpr int64_t kLength = 16;
  ASSIGN_OR_RETURN(const auto dims, ParseDims(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (!IsTokenInput(input)) continue;
    const auto given = input.dim_names.size() == 2 ? dims.find(input.dim_names[1]) : dims.end();
    if (input.dims[1] >= 0) return LengthLimit{input.dims[1], true};
    if (given != dims.end()) return LengthLimit{given->second, true};
  }
  const auto imported = ImportAtLength(config, model, kLength);
  if (!imported.ok()) return LengthLimit();  // the error comes with the length of the data
  return LengthLimit{FindPositionRows(imported->graph, kLength)};
}

absl::StatusOr<TokenizedText> AddTokens(const TrainConfig& config, const OnnxModel& model, TextSetup* setup,
                                        std::shared_ptr<const Dataset> data, std::vector<std::string>* notes) {
  setup->columns = ResolveColumns(*data, setup->columns);
  if (setup->tokenizer == nullptr) {
    ASSIGN_OR_RETURN(setup->tokenizer, MakeFromChars(*data, setup->columns));
  }
  ASSIGN_OR_RETURN(const LengthLimit limit, FindLengthLimit(config, model));
  ASSIGN_OR_RETURN(setup->max_length, ChooseLength(setup->max_length, limit));
  const TextOptions options{.columns = setup->columns,
                            .max_length = setup->max_length,
                            .skip_bad = config.on_bad_sample == "skip",
                            .threads = CpuCount(),
                            .fixed_length = limit.exact ? limit.length : 0};
  ASSIGN_OR_RETURN(TokenizedText text, TokenizeColumns(std::move(data), *setup->tokenizer, options));
  notes->push_back(DescribeTokens(text, *setup, limit));
  return text;
}

absl::Status CheckVocabulary(const Tokenizer& tokenizer, const std::optional<ValueRange>& range) {
  if (!range.has_value()) return absl::OkStatus();
  const auto rows = static_cast<int64_t>(range->max) + 1;
  if (tokenizer.id_count() <= rows) return absl::OkStatus();
  return Invalid("`tokenizer`: has ", tokenizer.id_count(), " tokens, but the model's embedding table has ", rows,
                 " rows");
}

std::string TokenizerDigest(const Tokenizer& tokenizer) {
  Sha256 digest;
  for (const auto& [name, bytes] : tokenizer.files()) {
    digest.Update(std::as_bytes(std::span(name)));
    digest.Update(std::as_bytes(std::span(bytes)));
  }
  return digest.Hex();
}

}  // namespace onnxtrain
