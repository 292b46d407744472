#include "frontend/data/chat/template_names.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"

namespace onnxtrain {
namespace {

struct NamedTemplate {
  const char *name, *source;
};
constexpr NamedTemplate kTemplates[] = {
    {"chatml",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
     "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"alpaca",
     "{% for message in messages %}{% if message['role'] == 'assistant' %}### Response:\n{{ message['content'] }}"
     "{{ eos_token }}\n\n{% elif message['role'] == 'user' %}### Instruction:\n{{ message['content'] }}\n\n{% else %}"
     "{{ message['content'] }}\n\n{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"},
};

}  // namespace

const char* FindTemplateByName(std::string_view name) {
  const auto* found = std::ranges::find(kTemplates, name, &NamedTemplate::name);
  return found == std::end(kTemplates) ? nullptr : found->source;
}

std::string ListTemplateNames() {
  return absl::StrJoin(kTemplates, ", ", [](std::string* out, const NamedTemplate& t) { *out += t.name; });
}

}  // namespace onnxtrain
