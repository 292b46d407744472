// The tokenizer and the chat template of a model, for prompts and for what it answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/chat/chat_text.h"
#include "frontend/data/text/token_text.h"
#include "frontend/data/text/tokenizer.h"
#include "optim/config/config.h"
#include "optim/plan/text_setup.h"

namespace onnxtrain {

struct SamplingSpec;  // write_text.h

class Prompts {
 public:
  // Loads the tokenizer that `tokenizer` names, that the model was trained with, or that of its folder, and the chat
  // template that `chat_template` names, that of training or the tokenizer's.
  static absl::StatusOr<Prompts> Open(const TrainConfig& config);
  // Makes prompts of data as its samples were made: `setup` is theirs. A text is a message only if their prompts are;
  // lists of messages use the tokenizer's template if the samples have none.
  static absl::StatusOr<Prompts> Make(const TrainConfig& config, TextSetup setup);

  bool has_template() const { return text_.has_template(); }
  bool texts_are_messages() const { return texts_are_messages_; }  // a text to answer is a message of the user
  const std::string& template_source() const { return source_; }   // where the template comes from, for users
  // Returns the tokens of a text to continue, or of messages to answer, a JSON list of {role, content}.
  absl::StatusOr<std::vector<int64_t>> EncodePlain(const std::string& text) const;
  absl::StatusOr<std::vector<int64_t>> EncodeChat(const OrderedJson& messages, const OrderedJson& tools = {}) const;
  std::string Join(std::span<const int64_t> ids) const { return names_->Join(ids); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Tokens that end an answer: those of generation_config.json and genai_config.json in the model's folder, the
  // tokenizer's, and the one that the template puts behind an answer.
  const std::vector<int64_t>& stop() const { return stop_; }
  // Tokens of the longest text, from config.json and genai_config.json in the model's folder; 0: they name none. Tables
  // of positions in the model have no more rows.
  int64_t greatest_length() const { return greatest_length_; }

 private:
  absl::Status SetTokenizer(const TextSetup& setup, ChatSettings* settings);
  absl::Status SetTemplate(const TrainConfig& config, const ChatSettings& settings, const std::string& source);
  void FindStopTokens(const std::filesystem::path& folder, const ChatSettings& settings);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const TokenText> names_;
  ChatText text_;
  std::string source_;
  bool texts_are_messages_ = false;
  std::vector<int64_t> stop_;
  int64_t greatest_length_ = 0;
};

// Samples as generation_config.json in the model's folder says (do_sample, temperature, top_p, top_k), unless
// `temperature` is specified. Returns a line about it, or "".
std::string TakeFolderSampling(const TrainConfig& config, SamplingSpec* sampling);

}  // namespace onnxtrain
