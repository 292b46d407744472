// Renders chat templates: Jinja as Hugging Face's transformers configures it, without access to files.
//
//   auto chat = ChatTemplate::Parse(source);
//   auto rendered = (*chat)->Render({{"messages", messages}, {"add_generation_prompt", true}});
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {

namespace jinja {
struct Dict;
struct Node;
}  // namespace jinja

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

struct RenderedChat {
  std::string text;
  std::vector<TextRange> generated;  // texts of {% generation %} blocks, in the order in which the blocks end
};

// Limits of one rendering, and its clock.
struct RenderOptions {
  int64_t max_steps = 20'000'000;         // evaluated nodes, and copied bytes / 64
  int64_t max_bytes = int64_t{32} << 20;  // limit of the output, and of each text that is computed
  std::time_t now = 0;                    // the time that strftime_now formats, in local time; 0: the current time
};

// Immutable: any number of threads may render at once.
class ChatTemplate {
 public:
  // Errors are one line that begins with "line N: ".
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();

  // `variables` is an object. Errors in the template are one line that begins with "line N: "; those of raise_exception
  // are FailedPrecondition errors with its message.
  absl::StatusOr<RenderedChat> Render(OrderedJson variables, const RenderOptions& options) const;
  absl::StatusOr<RenderedChat> Render(OrderedJson variables) const { return Render(std::move(variables), {}); }
  // As Render, of variables that are converted already, for many renderings of the same messages.
  absl::StatusOr<RenderedChat> RenderValues(const jinja::Dict& variables, const RenderOptions& options) const;
  // Returns true if the template marks the text of assistants by {% generation %}.
  bool marks_generation() const { return marks_generation_; }

 private:
  ChatTemplate(jinja::Node body, bool marks_generation);

  std::unique_ptr<const jinja::Node> body_;
  bool marks_generation_;
};

}  // namespace onnxtrain
