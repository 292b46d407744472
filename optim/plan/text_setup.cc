#include "optim/plan/text_setup.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/machine.h"
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/source.h"
#include "optim/plan/folders.h"
#include "optim/plan/model_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {
namespace {

// Returns the shape of an input for a trial: kTrialLength for token inputs, and for both axes of pair masks.
Shape TrialShape(const ModelInput& input) {
  Shape shape = input.dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_length = i + 2 >= shape.size() && i > 0;
    if (shape[i] < 0) shape[i] = is_length ? kTrialLength : 1;
  }
  shape[0] = kTrialBatch;
  return shape;
}

}  // namespace

bool IsTokenInput(const ModelInput& input) {
  return input.has_shape && input.dims.size() == 2 && IsInteger(input.dtype) && input.form.is_tensor();
}

bool IsPairMask(const ModelInput& input) {
  const bool pairs = input.has_shape && (input.dims.size() == 3 || input.dims.size() == 4) && input.form.is_tensor();
  return pairs && absl::AsciiStrToLower(input.name).find("mask") != std::string::npos;
}

absl::StatusOr<ImportedModel> ImportAtTrialLength(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(ImportOptions import, MakeImportOptions(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (IsTokenInput(input) || IsPairMask(input)) import.input_shapes[input.name] = TrialShape(input);
  }
  import.batch = kTrialBatch;
  import.half_weights = true;
  ASSIGN_OR_RETURN(import.outputs, LossOutputs(model, MakeOutputSpec(config, model)));
  return Import(model, import);
}

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

absl::StatusOr<LengthLimit> FindDeclaredLength(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const auto dims, ParseDims(config, model));
  for (const ModelInput& input : model.inputs()) {
    if (!IsTokenInput(input)) continue;
    const auto given = input.dim_names.size() == 2 ? dims.find(input.dim_names[1]) : dims.end();
    if (input.dims[1] >= 0) return LengthLimit{input.dims[1], true};
    if (given != dims.end()) return LengthLimit{given->second, true};
  }
  return LengthLimit();
}

absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(const LengthLimit declared, FindDeclaredLength(config, model));
  if (declared.exact) return declared;
  const auto imported = ImportAtTrialLength(config, model);
  if (!imported.ok()) return LengthLimit();  // the import with the data's length reports the error
  return LengthLimit{FindPositionRows(imported->graph, kTrialLength)};
}

namespace {

constexpr const char* kChars[] = {"chars", "char"};
// The length limit of models without a position table; longer samples are rarely intended.
constexpr int64_t kMaxLength = 4096;

absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadKnown(const TrainConfig& config, const TextPreprocess& before) {
  const std::filesystem::path folder = std::filesystem::path(PreprocessPath(config.model)).parent_path();
  ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer((folder / before.tokenizer).string()));
  if (TokenizerDigest(*tokenizer) != before.sha256)
    return Invalid((folder / before.tokenizer).string(),
                   ": is not the tokenizer that the model was trained with (`tokenizer` names another one)");
  return tokenizer;
}

std::string DescribeLimit(const LengthLimit& limit) {
  if (limit.exact) return ", which the model's inputs are fixed to";
  return limit.length > 0 ? ", the positions of the model" : "";
}

Source::Tokens FindTokens(const std::string& path) {
  const auto found = path.empty() ? absl::NotFoundError("") : FindSource(path);
  return found.ok() ? found->source->tokens : Source::Tokens::kNone;
}

// Returns the length that samples are truncated to.
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
                                                               const std::vector<std::string>& columns, int64_t rows) {
  std::set<char32_t> chars;
  for (size_t c = 0; c < data.columns().size(); ++c) {
    if (std::ranges::find(columns, data.columns()[c].name) == columns.end() || !data.columns()[c].text) continue;
    for (int64_t i = 0; i < data.size(); ++i) {
      const auto text = data.ReadText(i, static_cast<int>(c));
      if (text.ok()) RETURN_IF_ERROR(Annotate(CollectChars(*text, &chars), StrCat(data.Describe(i), ": ")));
    }
  }
  const auto count = static_cast<int64_t>(chars.size());
  return MakeCharTokenizer(chars, rows == 0 || count < rows);
}

absl::StatusOr<TextSetup> MakeTextSetup(const TrainConfig& config, const std::optional<Preprocess>& before,
                                        const std::string& path, bool may_fit) {
  TextSetup setup{.columns = config.text, .max_length = config.max_length};
  const TextPreprocess known = before.has_value() ? before->text : TextPreprocess();
  const Source::Tokens kind = FindTokens(path);
  if (setup.columns.empty() && kind != Source::Tokens::kIds) setup.columns = known.columns;
  if (setup.columns.empty() && kind == Source::Tokens::kDocuments) setup.columns = {"text"};
  if (setup.columns.size() > 2) return Invalid("`text`: one column, or two of a pair, not ", setup.columns.size());
  if (setup.max_length == 0) setup.max_length = known.max_length;
  setup.loss_on = known.loss_on;
  setup.chat_template = known.chat_template;
  const bool chars = std::ranges::find(kChars, config.tokenizer) != std::end(kChars);
  if (chars && !std::filesystem::exists(config.tokenizer)) {
    setup.from_characters = true;
    if (!may_fit) return Invalid("`tokenizer` chars: only training makes a tokenizer of its data");
  } else if (!config.tokenizer.empty()) {
    auto tokenizer = LoadTokenizer(config.tokenizer);
    if (!tokenizer.ok()) return Annotate(tokenizer.status(), "`tokenizer`: ");
    setup.tokenizer = *std::move(tokenizer);
  } else if (!setup.columns.empty() && !known.columns.empty()) {
    ASSIGN_OR_RETURN(setup.tokenizer, LoadKnown(config, known));
  } else if (!setup.columns.empty()) {
    setup.found_in = FindTokenizerFolder(config.model);
    if (setup.found_in.empty()) return setup;
    ASSIGN_OR_RETURN(setup.tokenizer, LoadTokenizer(setup.found_in));
  }
  return setup;
}

absl::StatusOr<TokenizedText> AddTokens(const TrainConfig& config, const OnnxModel& model, TextSetup* setup,
                                        std::shared_ptr<const Dataset> data, std::vector<std::string>* notes) {
  setup->columns = ResolveColumns(*data, setup->columns);
  if (setup->from_characters) {
    ASSIGN_OR_RETURN(setup->tokenizer, MakeFromChars(*data, setup->columns, 0));
  }
  if (setup->tokenizer == nullptr) {
    const bool may_be_table = data->columns().size() == 1;
    return Invalid("`text`: needs a `tokenizer` (tokenizer.json, vocab.txt, …, or chars)",
                   may_be_table ? "; csv:FILE.txt reads a table" : "");
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
