#include "optim/plan/language_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/token_shard.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/data/text/token_blocks.h"
#include "frontend/ops/row.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/data_setup.h"

namespace onnxtrain {
namespace {

bool NamesLabels(const std::string& name) {
  static const std::set<std::string> kNames = {"labels", "label", "targets", "target", "target_ids", "lm_labels"};
  return kNames.contains(absl::AsciiStrToLower(name));
}

// Returns true if the output `name` has the shape of token logits: [batch, length, tokens].
bool IsTokenLogits(const ImportedModel& model, const std::string& name, int64_t length) {
  if (name.starts_with("present")) return false;
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.rank() == 3 && type.shape[0] == kTrialBatch && type.shape[1] == length;
}

// Returns true if the output `name` has the shape [batch, classes], as in models that classify texts.
bool ScoresSamples(const ImportedModel& model, const std::string& name) {
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.rank() == 2 && type.shape[0] == kTrialBatch;
}

bool IsScalarLoss(const ImportedModel& model, const std::string& name) {
  const Type& type = model.graph.type(model.graph.FindOutput(name)->value);
  return IsFloat(type.dtype) && type.elements() == 1;
}

// Returns true if the model slices `input`, as models do that shift their labels by one position.
bool CutsInput(const Graph& graph, const std::string& input) {
  std::vector<bool> moved(graph.values().size(), false);
  if (const GraphInput* found = graph.FindInput(input)) moved[found->value] = true;
  for (const Node& node : graph.nodes()) {
    const bool reads = !node.inputs.empty() && node.inputs[0] != kNoValue && moved[node.inputs[0]];
    const OpRow& row = *FindOp(node.op);
    if (!reads || !(row.moves_data || row.copies)) continue;
    const auto elements = [&](ValueId v) { return graph.type(v).elements(); };
    if (row.moves_data && elements(node.outputs[0]) < elements(node.inputs[0])) return true;
    moved[node.outputs[0]] = true;
  }
  return false;
}

std::optional<ValueRange> FindRange(const ImportedModel& model, const std::string& input) {
  std::vector<FeedSpec> feeds = {{.feed = input}};
  AddValueChecks(model, &feeds);
  return feeds[0].range;
}

int64_t CountRows(const ImportedModel& model, const std::string& input) {
  const auto range = FindRange(model, input);
  return range.has_value() ? static_cast<int64_t>(range->max) + 1 : 0;
}

// Assigns the token inputs to their roles. Returns false if several could be the ids.
bool SortInputs(const OnnxModel& model, LanguageModel* found) {
  for (const ModelInput& input : model.inputs()) {
    const bool positions = IsTokenInput(input) && FindTokenRole(input.name) == TokenRole::kPositions;
    if (positions) found->positions = input.name;
    if (IsPairMask(input)) found->pair_mask = input.name;
    if (!IsTokenInput(input) || FindTokenRole(input.name).has_value()) continue;
    std::string& place = NamesLabels(input.name) ? found->label_input : found->ids;
    if (!place.empty()) return false;
    place = input.name;
  }
  return !found->ids.empty();
}

LengthLimit FindLimit(const OnnxModel& model, const ImportedModel& imported) {
  int64_t rows = FindPositionRows(imported.graph, kTrialLength);
  for (const ModelInput& input : model.inputs()) {
    const bool positions = IsTokenInput(input) && FindTokenRole(input.name) == TokenRole::kPositions;
    const int64_t own = positions ? CountRows(imported, input.name) : 0;
    if (own > 0 && (rows == 0 || own < rows)) rows = own;
  }
  return {rows};
}

}  // namespace

absl::StatusOr<std::optional<LanguageModel>> FindLanguageModel(const TrainConfig& config, const OnnxModel& model,
                                                               const LossSpec& loss) {
  LanguageModel found;
  if (!SortInputs(model, &found)) return std::nullopt;
  const auto imported = ImportAtTrialLength(config, model);
  if (!imported.ok()) return std::nullopt;  // the import with the data's length reports the error
  ASSIGN_OR_RETURN(found.limit, FindDeclaredLength(config, model));
  const int64_t length = found.limit.length > 0 ? found.limit.length : kTrialLength;
  const auto is_trained = [&](const std::string& name) { return loss.logits.empty() || name == loss.logits; };
  const auto has_logits = [&](const std::string& name) {
    return is_trained(name) && IsTokenLogits(*imported, name, length);
  };
  const auto is_loss = [&](const std::string& name) { return is_trained(name) && IsScalarLoss(*imported, name); };
  const auto classifies = [&](const std::string& name) { return is_trained(name) && ScoresSamples(*imported, name); };
  if (std::ranges::any_of(imported->outputs, classifies)) return std::nullopt;
  if (std::ranges::none_of(imported->outputs, has_logits)) {
    const auto own = std::ranges::find_if(imported->outputs, is_loss);
    if (found.label_input.empty() || own == imported->outputs.end()) return std::nullopt;
    found.own_loss = *own;
  }
  if (!found.limit.exact) found.limit = FindLimit(model, *imported);
  found.rows = CountRows(*imported, found.ids);
  found.shifts_labels = CutsInput(imported->graph, found.label_input);
  return found;
}

namespace {

// Tolerance, relative to the change of later values: rounding may change earlier values of a causal model, such as one
// that computes by FFT.
constexpr double kRounding = 1e-5;
constexpr int64_t kSamples = 1;

// Replaces the tokens from position `from` on by a single one of `count` ids, different from the first of them. A
// permutation of the tokens could leave pooled values unchanged.
HostTensor ReplaceTokens(const HostTensor& ids, int64_t from, int64_t count) {
  HostTensor replaced = ids.Clone();
  const int64_t length = ids.shape()[1];
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t first = ids.IntAt(i / length * length + from);
    if (i % length >= from) replaced.SetInt(i, (first + 1) % count);
  }
  return replaced;
}

struct Changes {
  double before = 0, behind = 0;  // the greatest change of a value before position `at`, and from there on
};
Changes CompareHalves(const HostTensor& a, const HostTensor& b, int64_t at) {
  Changes changes;
  const int64_t length = a.shape()[1], inner = a.size() / (a.shape()[0] * length);
  for (int64_t i = 0; i < a.size(); ++i) {
    double& change = i / inner % length < at ? changes.before : changes.behind;
    change = std::max(change, std::abs(a.At(i) - b.At(i)));  // NaN is ignored
  }
  return changes;
}

std::optional<size_t> FindFeed(const TrainData& data, const std::string& name) {
  const auto feed = std::ranges::find(data.specs, name, &FeedSpec::feed);
  return feed == data.specs.end() ? std::nullopt : std::optional<size_t>(feed - data.specs.begin());
}

// Returns the number of ids that the input may have; 0: unknown.
int64_t CountIds(const FeedSpec& feed, const HostTensor& ids) {
  if (feed.range.has_value()) return static_cast<int64_t>(feed.range->max) + 1;
  int64_t max = 0;
  for (int64_t i = 0; i < ids.size(); ++i) max = std::max(max, ids.IntAt(i));
  return max + 1;
}

// Returns one output and frees the others; a scalar if there is none of this name.
absl::StatusOr<HostTensor> PredictOutput(Session& session, const GlobalBatch& batch, const std::string& output) {
  ASSIGN_OR_RETURN(Evaluation e, session.Predict(batch));
  const auto found = e.outputs.find(output);
  return found == e.outputs.end() ? HostTensor::Scalar(DType::kFloat32, 0) : std::move(found->second);
}

// A sample that is a pair of answers has two rows.
bool HasTokens(const HostTensor& output, const HostTensor& ids) {
  return output.type().rank() >= 3 && output.size() > 0 && output.shape()[0] % ids.shape()[0] == 0 &&
         output.shape()[1] == ids.shape()[1];
}

}  // namespace

absl::Status CheckCausal(Session& session, const TrainData& data, const std::string& ids) {
  const auto feed = FindFeed(data, ids);
  if (!feed.has_value()) return absl::OkStatus();
  const int64_t samples = session.fixed_batch() > 0 ? session.fixed_batch() : std::min(session.micro_batch(), kSamples);
  ASSIGN_OR_RETURN(GlobalBatch batch, ReadGlobalBatch(data, samples));
  const HostTensor tokens = batch.tensor(*feed).Clone();
  const int64_t count = CountIds(data.specs[*feed], tokens), half = tokens.shape()[1] / 2;
  if (half == 0 || count < 2) return absl::OkStatus();
  const std::string& output = session.loss().output();
  ASSIGN_OR_RETURN(const HostTensor as_read, PredictOutput(session, batch, output));
  if (!HasTokens(as_read, tokens)) return absl::OkStatus();
  batch.Set(*feed, ReplaceTokens(tokens, half, count));
  ASSIGN_OR_RETURN(const HostTensor replaced, PredictOutput(session, batch, output));
  const Changes changes = CompareHalves(as_read, replaced, half);
  if (!(changes.before > kRounding * changes.behind)) return absl::OkStatus();
  return Invalid("output '", output, "' sees the tokens behind each position, so that it would copy its labels, the ",
                 "next tokens, from input '", ids, "': it is no causal language model. A masked language model trains ",
                 "on data that holds tokens with masks and labels (`input` ", ids, "=COLUMN, `label` COLUMN)");
}

namespace {

// The block length of models without a position table.
constexpr int64_t kBlockLength = 1024;
// An embedding table of at most this many rows may have a vocabulary of characters.
constexpr int64_t kCharacterRows = 256;

bool CanBeCharacters(int64_t characters, int64_t rows) {
  return characters <= rows && rows <= std::max(kCharacterRows, 2 * characters);
}

// Makes the data of a language model.
class DataMaker {
 public:
  DataMaker(const TrainConfig& config, const LanguageModel& model, const BlockRequest& request, TextSetup* setup)
      : config_(config), model_(model), request_(request), setup_(*setup) {}

  absl::StatusOr<LanguageData> Run(std::shared_ptr<const Dataset> data) {
    const bool ids = setup_.columns.empty() || IsTokenSequence(*data);
    RETURN_IF_ERROR(ids ? UseSequence(std::move(data)) : Tokenize(data));
    RETURN_IF_ERROR(CheckTable());
    RETURN_IF_ERROR(ChooseLength());
    blocks_.ignore_index = request_.ignore_index;
    blocks_.separate = separates() && blocks_.end_of_text.has_value() && several_documents_;
    const auto made = std::make_shared<const TokenBlocks>(sequences_, blocks_);
    if (made->size() == 0) return Invalid(tokens_, " tokens are too few to predict one");
    out_.unit.tokens_per_sample = blocks_.length;
    RETURN_IF_ERROR(Split(*made));
    Describe(made->size());
    out_.blocks = made;
    return std::move(out_);
  }

 private:
  bool Splits() const { return request_.fit && !config_.eval_split.empty() && config_.eval_data.empty(); }

  absl::Status UseSequence(std::shared_ptr<const Dataset> data) {
    ASSIGN_OR_RETURN(const std::optional<ShardInfo> info, ReadShardInfo(SourcePath(request_.path)));
    ASSIGN_OR_RETURN(blocks_.max_id, FindMaxId(*data));
    if (setup_.tokenizer != nullptr) blocks_.end_of_text = FindEndOfText(*setup_.tokenizer);
    if (info.has_value()) {
      vocabulary_ = info->vocabulary;
      blocks_.end_of_text = info->end_of_text;
      out_.unit.bytes_per_token =
          static_cast<double>(info->bytes) / static_cast<double>(std::max(data->size(), int64_t{1}));
    }
    several_documents_ = !info.has_value() || info->documents > 1;
    tokens_ = data->size();
    sequences_ = {std::move(data)};
    return absl::OkStatus();
  }

  absl::Status FindTokenizer(const Dataset& data) {
    if (setup_.tokenizer != nullptr) return absl::OkStatus();
    if (setup_.from_characters || request_.fit) {
      ASSIGN_OR_RETURN(auto chars, MakeFromChars(data, setup_.columns, model_.rows));
      const int64_t count = chars->id_count();
      if (setup_.from_characters || CanBeCharacters(count, model_.rows)) setup_.tokenizer = std::move(chars);
    }
    if (setup_.tokenizer != nullptr) return absl::OkStatus();
    return Invalid("`text`: needs a `tokenizer` (tokenizer.json, vocab.txt, …, or chars)");
  }

  // Splits documents of tables as eval_split says, and turns each part into one sequence.
  absl::Status Tokenize(const std::shared_ptr<const Dataset>& data) {
    setup_.columns = ResolveColumns(*data, setup_.columns);
    if (setup_.columns.size() > 1) return Invalid("`text`: a language model reads one column");
    const auto column = std::ranges::find(data->columns(), setup_.columns[0], &Column::name);
    if (column == data->columns().end()) return UnknownTextColumnError(setup_.columns[0], data->columns());
    if (!column->text) return NotTextError(*column);
    RETURN_IF_ERROR(FindTokenizer(*data));
    const auto found = FindSource(request_.path);
    const bool by_document = Splits() && data->size() > 1 && found.ok() && found->source->is_table;
    std::vector<std::vector<int64_t>> parts(1, std::vector<int64_t>(data->size()));
    std::iota(parts[0].begin(), parts[0].end(), int64_t{0});
    if (by_document) {
      ASSIGN_OR_RETURN(out_.held_out, HoldOutSamples(config_, *data, *request_.options));
      parts = {out_.held_out->rows.train, out_.held_out->rows.eval};
    }
    const DocumentTokenizer tokenizer(*data, static_cast<int>(column - data->columns().begin()), *setup_.tokenizer,
                                      config_.on_bad_sample == "skip", CpuCount());
    DocumentTokens totals;
    for (const std::vector<int64_t>& rows : parts) {
      ASSIGN_OR_RETURN(const DocumentTokens part, tokenizer.Run(rows));
      if (part.ids.size() < 2) return Invalid("a part of the data has ", part.ids.size(), " tokens");
      blocks_.max_id = std::max<int64_t>(blocks_.max_id, *std::ranges::max_element(part.ids));
      sequences_.push_back(MakeTokenSequence(SourcePath(request_.path), part.ids));
      tokens_ += std::ssize(part.ids);
      totals.bytes += part.bytes;
      totals.characters += part.characters;
      totals.documents += part.documents;
      totals.unreadable.insert(totals.unreadable.end(), part.unreadable.begin(), part.unreadable.end());
    }
    vocabulary_ = setup_.tokenizer->id_count();
    blocks_.pad = setup_.tokenizer->pad();
    blocks_.end_of_text = tokenizer.end_of_text();
    several_documents_ = totals.documents > 1;
    out_.unit.bytes_per_token = static_cast<double>(totals.bytes) / static_cast<double>(tokens_);
    out_.unit.tokens_are_characters = totals.characters == tokens_;
    out_.notes.push_back(absl::StrFormat("text '%s': %s; %s tokens of %s document%s, %.2f bytes each",
                                         setup_.columns[0], setup_.tokenizer->description(), FormatWithCommas(tokens_),
                                         FormatWithCommas(totals.documents), totals.documents == 1 ? "" : "s",
                                         out_.unit.bytes_per_token));
    if (!totals.unreadable.empty())
      out_.notes.push_back(StrCat("left out ", totals.unreadable.size(), " documents that cannot be tokenized (",
                                  data->Describe(totals.unreadable[0]), " …; `on_bad_sample` skip)"));
    return absl::OkStatus();
  }

  absl::Status CheckTable() const {
    if (model_.rows == 0) return absl::OkStatus();
    if (vocabulary_ > model_.rows)
      return Invalid(setup_.tokenizer != nullptr ? "`tokenizer`: " : "", "the vocabulary has ", vocabulary_,
                     " tokens, but the model's embedding table has ", model_.rows, " rows");
    if (blocks_.max_id < model_.rows) return absl::OkStatus();
    return Invalid("token id ", blocks_.max_id, " is out of range: the model's embedding table has ", model_.rows,
                   " rows");
  }

  absl::Status ChooseLength() {
    const LengthLimit& limit = model_.limit;
    int64_t asked = setup_.max_length > 0 ? setup_.max_length : request_.trained_length;
    if (asked > 0 && limit.length > 0 && (limit.exact ? asked != limit.length : asked > limit.length))
      return Invalid("`max_length` ", asked, ": the model takes ", limit.exact ? "" : "at most ", limit.length,
                     " tokens");
    if (asked == 0) asked = limit.length > 0 ? limit.length : kBlockLength;
    constexpr int64_t kMultiple = 8;
    const int64_t needed = (std::max<int64_t>(tokens_ - 1, 1) + kMultiple - 1) / kMultiple * kMultiple;
    blocks_.length = limit.exact ? limit.length : std::min(asked, needed);
    setup_.max_length = asked;
    return absl::OkStatus();
  }

  absl::Status Split(const TokenBlocks& blocks) {
    if (out_.held_out.has_value()) {  // documents, split into parts of one sequence each
      const auto fill = [&](size_t s, std::vector<int64_t>* rows) {
        const auto [first, end] = blocks.GetBlockRange(s);
        rows->resize(end - first);
        std::iota(rows->begin(), rows->end(), first);
      };
      fill(0, &out_.held_out->rows.train);
      fill(1, &out_.held_out->rows.eval);
    } else if (Splits()) {
      ASSIGN_OR_RETURN(out_.held_out, HoldOutSamples(config_, blocks, *request_.options));
    }
    return absl::OkStatus();
  }

  void Note(std::string line) { out_.notes.push_back(std::move(line)); }

  std::string ExplainLength() const {
    if (model_.limit.exact) return ", which the model's inputs are fixed to";
    if (model_.limit.length == blocks_.length) return ", the positions of the model";
    return blocks_.length < setup_.max_length ? ", all that there is" : "";
  }

  void Describe(int64_t samples) {
    Note(StrCat("language model: ", FormatWithCommas(samples), " samples of ", blocks_.length, " tokens",
                ExplainLength(), " (`max_length`), labels are the next tokens"));
    if (!model_.label_input.empty())
      Note(StrCat("input '", model_.label_input,
                  model_.shifts_labels ? "' ← the tokens, which the model shifts itself" : "' ← the next tokens"));
    if (several_documents_) DescribeBorders();
  }

  bool separates() const { return !model_.positions.empty() || !model_.pair_mask.empty(); }

  void DescribeBorders() {
    if (blocks_.separate && !model_.pair_mask.empty())
      Note(StrCat("documents do not see each other (input '", model_.pair_mask, "')"));
    if (blocks_.separate && model_.pair_mask.empty())
      Note(StrCat("positions begin at 0 in each document (input '", model_.positions,
                  "'); whether attention ends there too is the model's affair: it takes no mask of pairs of tokens"));
    if (!separates())
      Note(StrCat("tokens of a sample see earlier documents: the model takes neither positions nor a mask of pairs of ",
                  "tokens"));
    if (!blocks_.end_of_text.has_value())
      Note(StrCat("documents follow each other without an end-of-text token, ", "which the tokenizer does not have"));
  }

  const TrainConfig& config_;
  const LanguageModel& model_;
  const BlockRequest& request_;
  TextSetup& setup_;
  BlockOptions blocks_;
  std::vector<std::shared_ptr<const Dataset>> sequences_;
  int64_t tokens_ = 0, vocabulary_ = 0;
  bool several_documents_ = false;
  LanguageData out_;
};

}  // namespace

absl::StatusOr<LanguageData> MakeLanguageData(const TrainConfig& config, const LanguageModel& model,
                                              const BlockRequest& request, std::shared_ptr<const Dataset> data,
                                              TextSetup* setup) {
  return DataMaker(config, model, request, setup).Run(std::move(data));
}

}  // namespace onnxtrain
