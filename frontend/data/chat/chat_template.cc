#include "frontend/data/chat/chat_template.h"

#include "frontend/data/chat/interpreter.h"
#include "frontend/data/chat/json_text.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {

ChatTemplate::ChatTemplate(jinja::Node body, bool marks_generation)
    : body_(std::make_unique<const jinja::Node>(std::move(body))), marks_generation_(marks_generation) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (FindInvalidUtf8(source) != source.npos) return Invalid("line 1: the template is not UTF-8");
  bool marks_generation = false;
  auto body = jinja::ParseTemplate(source, &marks_generation);
  if (!body.ok()) return OneLine(body.status());
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(*std::move(body), marks_generation));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(OrderedJson variables, const RenderOptions& options) const {
  ASSIGN_OR_RETURN(const jinja::Value values, jinja::FromJson(std::move(variables)));
  if (values.dict() == nullptr) return Invalid("the variables of a template must be an object");
  return RenderValues(*values.dict(), options);
}

absl::StatusOr<RenderedChat> ChatTemplate::RenderValues(const jinja::Dict& variables,
                                                        const RenderOptions& options) const {
  return jinja::Interpreter(variables, options).Run(*body_);
}

}  // namespace onnxtrain
