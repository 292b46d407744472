#include "optim/plan/language_data.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/token_shard.h"
#include "frontend/data/text/documents.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/data/text/token_blocks.h"
#include "optim/record/telemetry/format.h"

namespace onnxtrain {
namespace {

// Of models without a table of positions.
constexpr int64_t kBlockLength = 1024;
// A vocabulary that is not much larger than the characters of a text is one of characters.
constexpr int64_t kCharacterRows = 256;

bool CanBeCharacters(int64_t characters, int64_t rows) {
  return characters <= rows && rows <= std::max(kCharacterRows, 2 * characters);
}

// Makes data of a language model.
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

  // Documents of tables are divided as eval_split says, and each part becomes a sequence.
  absl::Status Tokenize(const std::shared_ptr<const Dataset>& data) {
    setup_.columns = ResolveColumns(*data, setup_.columns);
    if (setup_.columns.size() > 1) return Invalid("`text`: a language model reads one column");
    const auto column = std::ranges::find(data->columns(), setup_.columns[0], &Column::name);
    if (column == data->columns().end()) return NoTextColumn(setup_.columns[0], data->columns());
    if (!column->text) return NoText(*column);
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
    out_.notes.push_back(absl::StrFormat("text '%s': %s; %s tokens of %s documents, %.2f bytes each", setup_.columns[0],
                                         setup_.tokenizer->description(), FormatWithCommas(tokens_),
                                         FormatWithCommas(totals.documents), out_.unit.bytes_per_token));
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
    if (out_.held_out.has_value()) {  // documents, of which each part is a sequence
      const auto fill = [&](size_t s, std::vector<int64_t>* rows) {
        const auto [first, end] = blocks.BlocksOf(s);
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
