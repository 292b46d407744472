#include "optim/plan/chat_data.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/chat/builtin_templates.h"
#include "frontend/data/chat/chat_text.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/text/token_rows.h"
#include "frontend/data/text/token_text.h"
#include "optim/plan/folders.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/packing.h"

namespace onnxtrain {
namespace {

using Kind = DialogueForm::Kind;

constexpr std::pair<const char*, LossOn> kLossOn[] = {{"auto", LossOn::kAuto},
                                                      {"completion", LossOn::kCompletion},
                                                      {"assistant", LossOn::kAssistant},
                                                      {"all", LossOn::kAll}};
constexpr int64_t kMostTemplateBytes = int64_t{1} << 20;
constexpr int64_t kDefaultLength = 1024;  // as TRL's

LossOn ParseLossOn(const std::string& text) {
  const auto* found = std::ranges::find(kLossOn, text, [](const auto& row) { return std::string_view(row.first); });
  return found == std::end(kLossOn) ? LossOn::kAuto : found->second;
}

// The samples of some rows of the data.
struct EncodedRows {
  AnsweredSamples samples, rejected;  // `rejected`: of pairs, as many
  int64_t too_long = 0, identical = 0, truncated = 0, unanswered = 0, trained = 0;
  std::vector<std::string> unreadable;  // reasons
};

class ChatMaker {
 public:
  ChatMaker(const TrainConfig& config, const LanguageModel& model, const BlockRequest& request,
            const DialogueForm& form, std::shared_ptr<const Dataset> data, TextSetup* setup)
      : config_(config), model_(model), request_(request), form_(form), data_(std::move(data)), setup_(*setup) {}

  absl::StatusOr<LanguageData> Run() {
    setup_.columns = {form_.first};
    if (!form_.second.empty()) setup_.columns.push_back(form_.second);
    RETURN_IF_ERROR(FindTokenizer());
    RETURN_IF_ERROR(ChooseTemplate());
    RETURN_IF_ERROR(ChooseLength());
    RETURN_IF_ERROR(MakeParts());
    RETURN_IF_ERROR(MakeRows());
    Describe();
    return std::move(out_);
  }

 private:
  absl::Status FindTokenizer() {
    const std::string folder = setup_.tokenizer == nullptr ? FindTokenizerFolder(config_.model) : "";
    if (!folder.empty()) {
      ASSIGN_OR_RETURN(setup_.tokenizer, LoadTokenizer(folder));
      Note(StrCat("the tokenizer is the one in ", folder, " (`tokenizer`)"));
    }
    if (setup_.tokenizer == nullptr)
      return Invalid("column '", form_.first, "' holds dialogues, which need a `tokenizer` (a tokenizer.json in the ",
                     "model's folder)");
    ASSIGN_OR_RETURN(settings_, ReadChatSettings(*setup_.tokenizer));
    const auto end = settings_.end().empty() ? FindEndOfText(*setup_.tokenizer) : std::nullopt;
    if (end.has_value()) settings_.special_tokens["eos_token"] = TokenText(*setup_.tokenizer).names()[*end];
    return absl::OkStatus();
  }

  // Returns true if prompts that are no lists of messages stay plain text.
  bool is_plain() const { return may_be_plain() && setup_.chat_template.empty(); }
  bool may_be_plain() const { return form_.kind == Kind::kCompletion || is_paired(); }
  bool is_paired() const { return form_.kind == Kind::kPreference; }

  absl::Status ChooseTemplate() {
    std::string source = settings_.chat_template;  // for prompts that are lists of messages
    if (!config_.chat_template.empty()) {
      ASSIGN_OR_RETURN(setup_.chat_template, ReadChatTemplate(config_.chat_template));
      Note(StrCat("dialogues become text by ", config_.chat_template, " (`chat_template`)"));
    } else if (setup_.chat_template.empty() && !may_be_plain()) {
      RETURN_IF_ERROR(UseOwnTemplate());
    }
    if (!setup_.chat_template.empty()) source = setup_.chat_template;
    if (setup_.loss_on.empty() || config_.loss_on != "auto") setup_.loss_on = config_.loss_on;
    auto text = ChatText::Make(source, settings_, ParseLossOn(setup_.loss_on));
    if (!text.ok()) return Annotate(text.status(), "the chat template: ");
    text_.emplace(*std::move(text));
    return absl::OkStatus();
  }

  // Uses the tokenizer's template. Instructions have a usual one.
  absl::Status UseOwnTemplate() {
    setup_.chat_template = settings_.chat_template;
    if (!setup_.chat_template.empty()) {
      Note("dialogues become text by the tokenizer's template (`chat_template`)");
    } else if (form_.kind == Kind::kInstruction) {
      setup_.chat_template = FindChatTemplate("alpaca")->source;
      Note("instructions become text by alpaca, since the tokenizer has no template (`chat_template`)");
    } else {
      return Invalid("column '", form_.first, "' holds chats, and the tokenizer has no chat template: `chat_template` ",
                     absl::StrJoin(ListChatTemplates(), ", "), " or a file");
    }
    return absl::OkStatus();
  }

  absl::Status ChooseLength() {
    const LengthLimit& limit = model_.limit;
    int64_t& length = setup_.max_length;
    if (length > 0 && limit.length > 0 && length > limit.length)
      return Invalid("`max_length` ", length, ": the model takes at most ", limit.length, " tokens");
    if (length == 0) length = limit.length > 0 ? std::min(limit.length, kDefaultLength) : kDefaultLength;
    return absl::OkStatus();
  }

  // Shortens a sample to the length limit. Returns false if it is to be left out.
  bool Truncate(AnsweredSample* sample, EncodedRows* rows) const {
    const int64_t length = setup_.max_length;
    if (std::ssize(sample->ids) <= length) return true;
    if (config_.truncate == "drop") return ++rows->too_long, false;
    ++rows->truncated;
    const ptrdiff_t extra = std::ssize(sample->ids) - length;
    const auto cut = [&](auto* values) {
      const auto begin = config_.truncate == "left" ? values->begin() : values->end() - extra;
      values->erase(begin, begin + extra);
    };
    cut(&sample->ids);
    cut(&sample->trained);
    return true;
  }

  absl::Status Skip(const absl::Status& failure, int64_t row, EncodedRows* rows) const {
    const absl::Status failed = Annotate(failure, StrCat(data_->Describe(row), ": "));
    if (config_.on_bad_sample != "skip") return failed;
    rows->unreadable.emplace_back(ToStd(failed.message()));
    return absl::OkStatus();
  }

  absl::StatusOr<std::pair<AnsweredSample, AnsweredSample>> EncodePair(int64_t row, TokenizerScratch* scratch) const {
    ASSIGN_OR_RETURN(DialoguePair pair, ReadDialoguePair(*data_, row, form_, !is_plain()));
    ASSIGN_OR_RETURN(AnsweredSample chosen, text_->Encode(std::move(pair.chosen), *setup_.tokenizer, scratch));
    ASSIGN_OR_RETURN(AnsweredSample rejected, text_->Encode(std::move(pair.rejected), *setup_.tokenizer, scratch));
    return std::pair(std::move(chosen), std::move(rejected));
  }

  // Adds both answers, or counts why the pair is left out.
  absl::Status AddPair(int64_t row, TokenizerScratch* scratch, EncodedRows* rows) const {
    auto pair = EncodePair(row, scratch);
    if (!pair.ok()) return Skip(pair.status(), row, rows);
    auto& [chosen, rejected] = *pair;
    if (chosen.ids == rejected.ids) return ++rows->identical, absl::OkStatus();
    if (!Truncate(&chosen, rows) || !Truncate(&rejected, rows)) return absl::OkStatus();
    if (chosen.CountTrained() == 0 || rejected.CountTrained() == 0) return ++rows->unanswered, absl::OkStatus();
    rows->trained += chosen.CountTrained() + rejected.CountTrained();
    rows->samples.Add(chosen, row);
    rows->rejected.Add(rejected, row);
    return absl::OkStatus();
  }

  absl::Status EncodeRow(int64_t row, TokenizerScratch* scratch, EncodedRows* rows) const {
    if (is_paired()) return AddPair(row, scratch, rows);
    auto dialogue = ReadDialogue(*data_, row, form_, !is_plain());
    auto sample = dialogue.ok() ? text_->Encode(*std::move(dialogue), *setup_.tokenizer, scratch)
                                : absl::StatusOr<AnsweredSample>(dialogue.status());
    if (!sample.ok()) return Skip(sample.status(), row, rows);
    if (!Truncate(&*sample, rows)) return absl::OkStatus();
    const int64_t trained = sample->CountTrained();
    if (trained == 0) return ++rows->unanswered, absl::OkStatus();
    rows->trained += trained;
    rows->samples.Add(*sample, row);
    return absl::OkStatus();
  }

  absl::StatusOr<EncodedRows> EncodeRows(std::span<const int64_t> rows) const {
    const int64_t parts = std::clamp<int64_t>(std::ssize(rows) / 16, 1, CpuCount());
    std::vector<EncodedRows> encoded(parts);
    std::vector<absl::Status> failed(parts);
    RunParts(parts, [&](int64_t p) {
      TokenizerScratch scratch;
      const int64_t begin = std::ssize(rows) * p / parts, end = std::ssize(rows) * (p + 1) / parts;
      for (int64_t i = begin; i < end && failed[p].ok(); ++i) failed[p] = EncodeRow(rows[i], &scratch, &encoded[p]);
    });
    EncodedRows all;
    for (int64_t p = 0; p < parts; ++p) {
      RETURN_IF_ERROR(failed[p]);
      all.samples.Append(std::exchange(encoded[p].samples, {}));
      all.rejected.Append(std::exchange(encoded[p].rejected, {}));
      all.identical += encoded[p].identical;
      all.too_long += encoded[p].too_long;
      all.truncated += encoded[p].truncated;
      all.unanswered += encoded[p].unanswered;
      all.trained += encoded[p].trained;
      all.unreadable.insert(all.unreadable.end(), encoded[p].unreadable.begin(), encoded[p].unreadable.end());
    }
    return all;
  }

  bool Splits() const { return request_.fit && !config_.eval_split.empty() && config_.eval_data.empty(); }

  // Encodes the dialogues to train on, and apart from them those that are held out.
  absl::Status MakeParts() {
    std::vector<std::vector<int64_t>> parts(1, std::vector<int64_t>(data_->size()));
    std::iota(parts[0].begin(), parts[0].end(), int64_t{0});
    if (Splits()) {
      ASSIGN_OR_RETURN(out_.held_out, HoldOutSamples(config_, *data_, *request_.options));
      parts = {out_.held_out->rows.train, out_.held_out->rows.eval};
    }
    for (const std::vector<int64_t>& rows : parts) {
      ASSIGN_OR_RETURN(parts_.emplace_back(), EncodeRows(rows));
      if (parts_.back().samples.size() == 0) return ExplainNone(parts_.back());
    }
    return absl::OkStatus();
  }

  absl::Status ExplainNone(const EncodedRows& rows) const {
    if (rows.too_long > 0)
      return Invalid("all ", rows.too_long, " dialogues are longer than ", setup_.max_length,
                     " tokens (`max_length`, `truncate`)");
    if (rows.identical > 0) return Invalid("both answers of each of ", rows.identical, " pairs are the same");
    if (!rows.unreadable.empty()) return Invalid(rows.unreadable[0], " (and no other dialogue can be read)");
    return Invalid("no dialogue has a token that counts (`loss_on` ", setup_.loss_on, ")");
  }

  static std::vector<int64_t> ListLengths(const AnsweredSamples& samples) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < samples.size(); ++i) lengths.push_back(samples.Length(i));
    return lengths;
  }

  // Explains why `packing` auto keeps a row for each dialogue; "": it does not.
  std::string ExplainUnpacked() const {
    if (config_.length_grouping || config_.max_tokens_per_batch > 0) return "batches hold dialogues of similar length";
    const int64_t batch = GlobalBatchSize(config_, *request_.model);
    const int64_t rows = std::ssize(PackSamples(ListLengths(parts_[0].samples), setup_.max_length));
    if (rows >= batch) return "";
    return StrCat("packed, they would fill ", rows, rows == 1 ? " row of " : " rows of ",
                  FormatWithCommas(setup_.max_length), " tokens, fewer than a batch of ", batch);
  }

  // Evaluation data is packed like the data that a model trains on.
  absl::Status DecidePacking() {
    if (is_paired() && config_.packing == "on") return Invalid("`packing`: pairs of answers are not packed");
    if (is_paired()) setup_.packed = false;
    if (setup_.packed.has_value()) return absl::OkStatus();
    setup_.packed = config_.packing == "on";
    if (config_.packing == "off" || (config_.packing == "auto" && !request_.fit)) return absl::OkStatus();
    std::string unpacked = config_.packing == "auto" ? ExplainUnpacked() : "";
    if (unpacked.empty()) {
      const absl::Status packable = CheckPackable(config_, *request_.model, model_, RowLength());
      if (!packable.ok() && config_.packing == "on") return Annotate(packable, "`packing`: ");
      if (!packable.ok()) unpacked = ToStd(packable.message());
    }
    setup_.packed = unpacked.empty();
    if (!unpacked.empty()) Note(StrCat("a row for each dialogue: ", unpacked, " (`packing`)"));
    return absl::OkStatus();
  }

  bool packs() const { return *setup_.packed; }
  int64_t RowLength() const { return model_.limit.exact ? model_.limit.length : setup_.max_length; }

  absl::Status MakeRows() {
    RETURN_IF_ERROR(DecidePacking());
    AnsweredSamples all, rejected;
    std::vector<std::vector<int64_t>> rows;
    int64_t longest = 1;
    for (const EncodedRows& part : parts_) {
      const std::vector<int64_t> lengths = ListLengths(part.samples);
      longest = std::max(longest, *std::ranges::max_element(lengths));
      for (int64_t i = 0; i < part.rejected.size(); ++i) longest = std::max(longest, part.rejected.Length(i));
      const auto first_sample = all.size(), first_row = std::ssize(rows);
      for (std::vector<int64_t>& row : GroupSamples(lengths)) {
        for (int64_t& sample : row) sample += first_sample;
        rows.push_back(std::move(row));
      }
      all.Append(part.samples);
      rejected.Append(part.rejected);
      ends_of_parts_.emplace_back(first_row, std::ssize(rows));
    }
    RETURN_IF_ERROR(CheckIds(all));
    if (is_paired()) RETURN_IF_ERROR(CheckIds(rejected));
    const bool fixed = model_.limit.exact || !model_.pair_mask.empty() || packs();
    const BlockOptions options{.length = model_.limit.exact || packs() ? RowLength() : longest,
                               .pad = setup_.tokenizer->pad(),
                               .ignore_index = request_.ignore_index,
                               .max_id = std::max(*std::ranges::max_element(all.ids),
                                                  is_paired() ? *std::ranges::max_element(rejected.ids) : 0),
                               .separate = packs()};
    samples_ = all.size();
    first_ = FirstSample(all);
    const std::vector<std::vector<int64_t>> same_rows = rows;
    const auto made = std::make_shared<const TokenRows>(data_, std::move(all), std::move(rows), options, fixed);
    out_.blocks = made;
    if (is_paired())
      out_.blocks = std::make_shared<const PairRows>(
          made, std::make_shared<const TokenRows>(data_, std::move(rejected), same_rows, options, fixed), options,
          fixed);
    if (out_.held_out.has_value()) {
      FillRange(ends_of_parts_[0], &out_.held_out->rows.train);
      FillRange(ends_of_parts_[1], &out_.held_out->rows.eval);
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<int64_t>> GroupSamples(const std::vector<int64_t>& lengths) const {
    if (packs()) return PackSamples(lengths, setup_.max_length);
    std::vector<std::vector<int64_t>> rows;
    for (int64_t i = 0; i < std::ssize(lengths); ++i) rows.push_back({i});
    return rows;
  }

  static void FillRange(std::pair<int64_t, int64_t> range, std::vector<int64_t>* rows) {
    rows->resize(range.second - range.first);
    std::iota(rows->begin(), rows->end(), range.first);
  }

  absl::Status CheckIds(const AnsweredSamples& samples) const {
    const int64_t max = *std::ranges::max_element(samples.ids);
    if (model_.rows == 0 || max < model_.rows) return absl::OkStatus();
    return Invalid("token id ", max, " is out of range: the model's embedding table has ", model_.rows,
                   " rows (`tokenizer`)");
  }

  // Returns the first sample as text, with the parts that count in ⟦⟧.
  std::string FirstSample(const AnsweredSamples& samples) const {
    constexpr size_t kMostTokens = 120;
    const size_t count = std::min<size_t>(samples.ends[0], kMostTokens);
    const TokenText names(*setup_.tokenizer);
    std::string text;
    for (size_t begin = 0; begin < count;) {
      const uint8_t trained = samples.flags[begin] & 1;
      size_t end = begin;
      while (end < count && (samples.flags[end] & 1) == trained) ++end;
      const std::vector<int64_t> ids(samples.ids.begin() + static_cast<ptrdiff_t>(begin),
                                     samples.ids.begin() + static_cast<ptrdiff_t>(end));
      StrAppend(&text, trained ? "⟦" : "", names.Join(ids), trained ? "⟧" : "");
      begin = end;
    }
    return StrCat(absl::StrReplaceAll(RepairUtf8(text), {{"\n", "↵"}}),
                  count < static_cast<size_t>(samples.ends[0]) ? "…" : "");
  }

  void Note(std::string line) { out_.notes.push_back(std::move(line)); }

  void Describe() {
    EncodedRows all;
    int64_t tokens = 0;
    for (const EncodedRows& part : parts_) {
      tokens += std::ssize(part.samples.ids);
      all.trained += part.trained;
      tokens += std::ssize(part.rejected.ids);
      all.identical += part.identical;
      all.too_long += part.too_long;
      all.truncated += part.truncated;
      all.unanswered += part.unanswered;
      all.unreadable.insert(all.unreadable.end(), part.unreadable.begin(), part.unreadable.end());
    }
    out_.unit.tokens_per_sample = std::max<int64_t>(1, tokens / out_.blocks->size());
    Note(absl::StrFormat("dialogues '%s': %s; %s of them, %s tokens, of which %s count (`loss_on` %s)",
                         form_.second.empty() ? form_.first : StrCat(form_.first, "', '", form_.second),
                         setup_.tokenizer->description(), FormatWithCommas(samples_), FormatWithCommas(tokens),
                         FormatWithCommas(all.trained), setup_.loss_on));
    if (packs())
      Note(
          absl::StrFormat("packed into %s rows of %s tokens, %.1f%% full, in which samples do not see each other; "
                          "batches of single dialogues would be %.1f%% full (`packing`)",
                          FormatWithCommas(out_.blocks->size()), FormatWithCommas(RowLength()),
                          100.0 * static_cast<double>(tokens) / static_cast<double>(out_.blocks->size() * RowLength()),
                          100.0 * static_cast<double>(tokens) / static_cast<double>(CountUnpacked())));
    NoteLeftOut(all.too_long, StrCat("of more than ", setup_.max_length, " tokens (`max_length`, `truncate`)"));
    NoteLeftOut(all.identical, "with two answers that are the same");
    NoteLeftOut(all.unanswered, "without a token that counts (`loss_on`)");
    if (!all.unreadable.empty())
      NoteLeftOut(std::ssize(all.unreadable), StrCat("that cannot be read (", all.unreadable[0], " …)"));
    if (all.truncated > 0)
      Note(StrCat("cut ", all.truncated, " dialogues to ", setup_.max_length, " tokens (`truncate` ", config_.truncate,
                  ")"));
    Note(StrCat("the first one, what counts in ⟦⟧: ", first_));
  }

  // Returns the positions of batches that are padded to their longest dialogue.
  int64_t CountUnpacked() const {
    const int64_t batch = GlobalBatchSize(config_, *request_.model);
    int64_t positions = 0;
    for (const EncodedRows& part : parts_) {
      const std::vector<int64_t> lengths = ListLengths(part.samples);
      for (int64_t begin = 0; begin < std::ssize(lengths); begin += batch) {
        const int64_t end = std::min(begin + batch, std::ssize(lengths));
        positions += (end - begin) * *std::max_element(lengths.begin() + begin, lengths.begin() + end);
      }
    }
    return positions;
  }

  void NoteLeftOut(int64_t count, const std::string& which) {
    if (count > 0) Note(StrCat("left out ", count, count == 1 ? " dialogue " : " dialogues ", which));
  }

  const TrainConfig& config_;
  const LanguageModel& model_;
  const BlockRequest& request_;
  const DialogueForm& form_;
  const std::shared_ptr<const Dataset> data_;
  TextSetup& setup_;
  ChatSettings settings_;
  std::optional<ChatText> text_;
  std::vector<EncodedRows> parts_;  // to train on, and held out
  std::vector<std::pair<int64_t, int64_t>> ends_of_parts_;
  int64_t samples_ = 0;
  std::string first_;
  LanguageData out_;
};

}  // namespace

absl::StatusOr<std::optional<DialogueForm>> FindDialogues(const TrainConfig& config, const Dataset& data,
                                                          const TextSetup& setup) {
  if (config.prompt.empty() != config.completion.empty())
    return Invalid(config.prompt.empty() ? "`completion`: needs `prompt`" : "`prompt`: needs `completion`");
  if (!config.prompt.empty()) {
    ASSIGN_OR_RETURN(DialogueForm form, MakeCompletionForm(data, config.prompt, config.completion));
    return std::optional(std::move(form));
  }
  const bool plain = !config.text.empty() || (!setup.columns.empty() && setup.loss_on.empty());
  std::optional<DialogueForm> form = plain ? std::nullopt : FindDialogueForm(data);
  if (form.has_value() || plain || setup.columns.size() != 2) return form;
  ASSIGN_OR_RETURN(form, MakeCompletionForm(data, setup.columns[0], setup.columns[1]));  // as in training
  return form;
}

absl::StatusOr<std::string> ReadChatTemplate(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name, ignored)) return ReadTextFile(name, kMostTemplateBytes);
  const BuiltinChatTemplate* known = FindChatTemplate(name);
  if (known != nullptr) return std::string(known->source);
  return Invalid("`chat_template` ", name, ": is no file, and no template (", absl::StrJoin(ListChatTemplates(), ", "),
                 ")");
}

absl::StatusOr<LanguageData> MakeChatData(const TrainConfig& config, const LanguageModel& model,
                                          const BlockRequest& request, const DialogueForm& form,
                                          const std::shared_ptr<const Dataset>& data, TextSetup* setup) {
  return ChatMaker(config, model, request, form, data, setup).Run();
}

}  // namespace onnxtrain
