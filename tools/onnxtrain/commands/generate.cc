// onnxtrain generate: answers or continues a prompt, or converses on the terminal.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/data/text/text_encoding.h"
#include "optim/generate/prompts.h"
#include "optim/generate/text_model.h"
#include "optim/generate/write_text.h"
#include "optim/plan/model_setup.h"
#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain::cli {
namespace {

using Json = OrderedJson;
using Clock = std::chrono::steady_clock;

constexpr int64_t kChatCapacity = 4096;  // tokens of a conversation, unless the model has fewer positions

// Prints the text of tokens as they come, without characters that are incomplete.
class TokenPrinter {
 public:
  explicit TokenPrinter(const Prompts& prompts) : prompts_(prompts) {}

  absl::Status Add(int64_t token) {
    ids_.push_back(token);
    const std::string text = prompts_.Join(ids_);
    if (text.size() <= printed_ || EndsInsideCharacter(text)) return absl::OkStatus();
    RETURN_IF_ERROR(Print(text.substr(printed_)));
    printed_ = text.size();
    if (ids_.size() >= kMostJoined) Forget();
    return absl::OkStatus();
  }

  absl::Status Finish() {
    const std::string text = prompts_.Join(ids_);
    return Print(text.substr(std::min(printed_, text.size())) + "\n");
  }

 private:
  static bool EndsInsideCharacter(const std::string& text) {
    size_t begin = text.size();
    while (begin > 0 && (text[begin - 1] & 0xC0) == 0x80) --begin;
    if (begin == 0) return false;
    const auto lead = static_cast<unsigned char>(text[begin - 1]);
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return text.size() - (begin - 1) < length;
  }

  // Keeps the last tokens only, on which the text of the next ones may depend.
  void Forget() {
    ids_.erase(ids_.begin(), ids_.end() - kKept);
    printed_ = prompts_.Join(ids_).size();
  }

  static constexpr size_t kMostJoined = 64;
  static constexpr ptrdiff_t kKept = 4;
  const Prompts& prompts_;
  std::vector<int64_t> ids_;  // the last tokens
  size_t printed_ = 0;        // bytes of their text
};

class Writer {
 public:
  static absl::StatusOr<Writer> Open(const TrainConfig& config) {
    ASSIGN_OR_RETURN(Prompts prompts, Prompts::Open(config));
    if (config.chat && !prompts.has_template())
      return Invalid("`chat`: needs a chat template (`chat_template`), which the tokenizer has not");
    if (!config.system.empty() && !prompts.has_template()) return Invalid("`system`: has no effect without a template");
    return Writer(config, std::move(prompts));
  }

  const Prompts& prompts() const { return prompts_; }

  // Answers a dialogue, or continues a text, and prints the new text.
  absl::StatusOr<std::string> Answer(const std::vector<int64_t>& ids) {
    if (decoder_ == nullptr) RETURN_IF_ERROR(LoadDecoder(std::ssize(ids)));
    if (std::ssize(ids) >= decoder_->capacity())
      return Invalid("the prompt has ", ids.size(), " tokens, of at most ", decoder_->capacity(), " with the answer");
    const std::vector<std::vector<int64_t>> rest = {KeepPrefix(ids)};
    TokenPrinter printer(prompts_);
    const auto start = Clock::now();
    auto first = start;
    const auto listen = [&](int64_t row, int64_t token) {
      if (first == start) first = Clock::now();
      const auto& stop = spec_.stop;
      return std::ranges::find(stop, token) == stop.end() ? printer.Add(token) : absl::OkStatus();
    };
    ASSIGN_OR_RETURN(const auto written, WriteText(*decoder_, rest, spec_, turns_++, listen));
    RETURN_IF_ERROR(printer.Finish());
    Report(std::ssize(rest[0]), std::ssize(written[0]), first - start, Clock::now() - first);
    seen_.insert(seen_.end(), written[0].begin(), written[0].end());
    seen_.resize(decoder_->length(0));
    return RepairUtf8(prompts_.Join(written[0]));  // the last character may be incomplete
  }

 private:
  Writer(const TrainConfig& config, Prompts prompts) : config_(config), prompts_(std::move(prompts)) {
    spec_ = MakeGenerationSpec(config, prompts_);
    const std::string sampling = TakeFolderSampling(config, &spec_.sampling);
    if (!sampling.empty()) LogInfo(config, sampling);
  }

  absl::Status LoadDecoder(int64_t prompt) {
    const auto start = Clock::now();
    ASSIGN_OR_RETURN(const TextModel model, OpenTextModel(config_, std::nullopt));
    ASSIGN_OR_RETURN(backend_, LoadBackend(config_));
    const DecoderRequest request{.model = model.model,
                                 .loss = model.loss,
                                 .backend = backend_.get(),
                                 .capacity = config_.chat ? kChatCapacity : prompt + config_.max_new_tokens,
                                 .compute = config_.mixed_precision == "bf16" ? DType::kBFloat16 : DType::kFloat32};
    ASSIGN_OR_RETURN(decoder_, MakeDecoder(config_, prompts_, request));
    const char* cache = decoder_->cache_use() == TextDecoder::CacheUse::kNone ? "no cache: computes all tokens again"
                                                                              : "with its cache";
    const std::chrono::duration<double> seconds = Clock::now() - start;
    LogInfo(config_, absl::StrFormat("%s, %s, up to %d tokens, in %.1f s; %s", DescribeModel(*model.model), cache,
                                     decoder_->capacity(), seconds.count(), DescribeBackend(*backend_)));
    return absl::OkStatus();
  }

  // Keeps the tokens that the decoder has already, but for the last one, whose scores are needed.
  std::vector<int64_t> KeepPrefix(const std::vector<int64_t>& ids) {
    auto same = std::ranges::mismatch(seen_, ids).in2 - ids.begin();
    same = std::min<ptrdiff_t>(same, std::ssize(ids) - 1);
    decoder_->Truncate(0, same);
    seen_ = ids;
    return {ids.begin() + same, ids.end()};
  }

  void Report(int64_t read, int64_t written, Clock::duration reading, Clock::duration writing) const {
    const auto rate = [](int64_t count, Clock::duration time) {
      return static_cast<double>(count) / std::max(1e-9, std::chrono::duration<double>(time).count());
    };
    LogInfo(config_, absl::StrFormat("%d tokens read, %.1f a second; %d written, %.1f a second", read,
                                     rate(read, reading), written, rate(std::max<int64_t>(written - 1, 0), writing)));
  }

  const TrainConfig& config_;
  Prompts prompts_;
  GenerationSpec spec_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TextDecoder> decoder_;
  std::vector<int64_t> seen_;  // tokens in the decoder
  int64_t turns_ = 0;
};

Json Message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

Json BeginDialogue(const TrainConfig& config) {
  Json messages = Json::array();
  if (!config.system.empty()) messages.push_back(Message("system", config.system));
  return messages;
}

absl::StatusOr<int> Converse(const TrainConfig& config, Writer& writer) {
  Json messages = BeginDialogue(config);
  std::string line = config.prompt;
  while (!line.empty() || std::getline(std::cin, line)) {
    messages.push_back(Message("user", line));
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, writer.prompts().EncodeChat(messages));
    ASSIGN_OR_RETURN(const std::string answer, writer.Answer(ids));
    messages.push_back(Message("assistant", answer));
    line.clear();
  }
  return kDone;
}

}  // namespace

absl::StatusOr<int> RunGenerate(const TrainConfig& config) {
  if (config.model.empty()) return Invalid("`model`: missing");
  if (config.mixed_precision != "no" && config.mixed_precision != "bf16")
    return Invalid("`mixed_precision` ", config.mixed_precision, ": text is written in float32 (no) or bf16");
  if (config.prompt.empty() && !config.chat) return Invalid("`prompt`: missing (or `chat`)");
  ASSIGN_OR_RETURN(Writer writer, Writer::Open(config));
  if (config.chat) return Converse(config, writer);
  std::string prompt = config.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (writer.prompts().has_template()) {
    LogInfo(config, StrCat("the prompt is a user's message by ", writer.prompts().template_source(),
                           " (`chat_template` none continues the text)"));
    Json messages = BeginDialogue(config);
    messages.push_back(Message("user", prompt));
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, writer.prompts().EncodeChat(messages));
    RETURN_IF_ERROR(writer.Answer(ids).status());
    return kDone;
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, writer.prompts().EncodePlain(prompt));
  RETURN_IF_ERROR(writer.Answer(ids).status());
  return kDone;
}

}  // namespace onnxtrain::cli
