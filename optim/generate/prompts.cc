#include "optim/generate/prompts.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/chat/builtin_templates.h"
#include "frontend/data/text/text_dataset.h"
#include "optim/generate/write_text.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/text_setup.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr int64_t kMostSettingsBytes = int64_t{16} << 20;
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kNoTemplate[] = "none";

// Returns a value of a file of settings, at the top or in its "model"; null if there is none.
Json FindSetting(const std::filesystem::path& path, const char* name) {
  if (!path.has_parent_path()) return nullptr;  // the model has no folder of settings
  const auto text = ReadTextFile(path.string(), kMostSettingsBytes);
  if (!text.ok()) return nullptr;
  const Json json = ParseJson<Json>(*text);
  const Json& model = json.is_object() && json.contains("model") ? json["model"] : json;
  return model.is_object() && model.contains(name) ? model[name] : Json();
}

int64_t FindGreatestLength(const std::filesystem::path& folder) {
  constexpr std::pair<const char*, const char*> kSettings[] = {{"config.json", "max_position_embeddings"},
                                                               {"genai_config.json", "context_length"}};
  int64_t greatest = 0;
  for (const auto& [file, name] : kSettings) {
    const Json length = FindSetting(folder / file, name);
    if (!length.is_number_integer() || length.get<int64_t>() < 1) continue;
    greatest = greatest == 0 ? length.get<int64_t>() : std::min(greatest, length.get<int64_t>());
  }
  return greatest;
}

// Opens the tokenizer of a model without data.
absl::StatusOr<TextSetup> OpenTokenizer(TrainConfig config) {
  ASSIGN_OR_RETURN(const std::optional<Preprocess> before, ReadPreprocess(config));
  if (config.text.empty()) config.text = {"text"};
  ASSIGN_OR_RETURN(TextSetup setup, MakeTextSetup(config, before, "", false));
  if (setup.tokenizer != nullptr) return setup;
  return Invalid(config.model, ": has no tokenizer in its folder (`tokenizer`)");
}

}  // namespace

absl::StatusOr<Prompts> Prompts::Open(const TrainConfig& config) {
  Prompts prompts;
  ChatSettings settings;
  ASSIGN_OR_RETURN(const TextSetup setup, OpenTokenizer(config));
  RETURN_IF_ERROR(prompts.SetTokenizer(setup, &settings));
  std::string source;
  if (!config.chat_template.empty() && config.chat_template != kNoTemplate) {
    ASSIGN_OR_RETURN(source, ReadChatTemplate(config.chat_template));
    prompts.source_ = config.chat_template;
  } else if (config.chat_template.empty() && !setup.chat_template.empty()) {
    source = setup.chat_template;
    prompts.source_ = "the template that the model was trained with";
  } else if (config.chat_template.empty() && !settings.chat_template.empty()) {
    source = settings.chat_template;
    prompts.source_ = "the tokenizer's template";
  }
  prompts.texts_are_messages_ = !source.empty();
  RETURN_IF_ERROR(prompts.SetTemplate(config, settings, source));
  return prompts;
}

absl::StatusOr<Prompts> Prompts::Make(const TrainConfig& config, TextSetup setup) {
  Prompts prompts;
  ChatSettings settings;
  const std::string folder = setup.tokenizer == nullptr ? FindTokenizerFolder(config.model) : "";
  if (!folder.empty()) {
    ASSIGN_OR_RETURN(setup.tokenizer, LoadTokenizer(folder));
  }
  if (setup.tokenizer == nullptr) return Invalid("there is no `tokenizer` to write text with");
  RETURN_IF_ERROR(prompts.SetTokenizer(setup, &settings));
  prompts.texts_are_messages_ = !setup.chat_template.empty();
  RETURN_IF_ERROR(prompts.SetTemplate(config, settings,
                                      setup.chat_template.empty() ? settings.chat_template : setup.chat_template));
  return prompts;
}

absl::Status Prompts::SetTokenizer(const TextSetup& setup, ChatSettings* settings) {
  tokenizer_ = setup.tokenizer;
  names_ = std::make_shared<const TokenText>(*setup.tokenizer);
  ASSIGN_OR_RETURN(*settings, ReadChatSettings(*setup.tokenizer));
  return absl::OkStatus();
}

absl::Status Prompts::SetTemplate(const TrainConfig& config, const ChatSettings& settings, const std::string& source) {
  auto text = ChatText::Make(source, settings, LossOn::kAuto);
  if (!text.ok()) return Annotate(text.status(), "the chat template: ");
  text_ = *std::move(text);
  const std::filesystem::path folder = FindModelFolder(config.model);
  FindStopTokens(folder, settings);
  greatest_length_ = FindGreatestLength(folder);
  return absl::OkStatus();
}

void Prompts::FindStopTokens(const std::filesystem::path& folder, const ChatSettings& settings) {
  const auto add = [&](int64_t id) {
    if (std::ranges::find(stop_, id) == stop_.end()) stop_.push_back(id);
  };
  for (const char* name : {"generation_config.json", "genai_config.json"}) {
    const Json ids = FindSetting(folder / name, "eos_token_id");
    if (ids.is_number_integer()) add(ids);
    for (const Json& id : ids.is_array() ? ids : Json::array()) {
      if (id.is_number_integer()) add(id);
    }
  }
  const auto end = tokenizer_->FindToken(settings.end());
  const auto known = end.has_value() ? end : FindEndOfText(*tokenizer_);
  if (known.has_value()) add(*known);
  const auto end_of_turn = tokenizer_->FindToken(text_.FindEndOfTurn());
  if (end_of_turn.has_value()) add(*end_of_turn);
}

absl::StatusOr<std::vector<int64_t>> Prompts::EncodePlain(const std::string& text) const {
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  for (const TemplatePart& part : tokenizer_->single()) {  // special tokens before the text, none behind it
    if (part.kind == TemplatePart::Kind::kFirst) break;
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  }
  RETURN_IF_ERROR(Annotate(tokenizer_->Encode(text, &scratch, &ids), "the prompt: "));
  return std::vector<int64_t>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<int64_t>> Prompts::EncodeChat(const Json& messages, const Json& tools) const {
  TokenizerScratch scratch;
  const Dialogue dialogue{.messages = messages, .tools = tools};
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, text_.EncodePrompt(dialogue, *tokenizer_, &scratch));
  return std::vector<int64_t>(ids.begin(), ids.end());
}

std::string TakeFolderSampling(const TrainConfig& config, SamplingSpec* sampling) {
  const std::filesystem::path folder = FindModelFolder(config.model);
  if (IsSpecified(config, "temperature") || FindSetting(folder / kGenerationConfig, "do_sample") != true) return "";
  const auto find = [&](const char* name, double low, double high, double otherwise) {
    const Json value = FindSetting(folder / kGenerationConfig, name);
    return value.is_number() && value >= low && value <= high ? value.get<double>() : otherwise;
  };
  sampling->temperature = find("temperature", 0, 1e6, 1);
  sampling->top_p = find("top_p", 0, 1, 1);
  sampling->top_k = static_cast<int64_t>(find("top_k", 0, 1e9, 0));
  return StrCat("sampling as ", kGenerationConfig, " says: `temperature` ", FormatNumber(sampling->temperature),
                " `top_p` ", FormatNumber(sampling->top_p), " `top_k` ", sampling->top_k);
}

}  // namespace onnxtrain
