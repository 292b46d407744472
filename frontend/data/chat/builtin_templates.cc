#include "frontend/data/chat/builtin_templates.h"

#include <algorithm>

namespace onnxtrain {
namespace {

// Templates read "messages", and bos_token and eos_token only where the format has them. {% generation %} contains the
// text of an assistant and the end of its turn, but not the header of the turn, which is part of the prompt.
constexpr BuiltinChatTemplate kTemplates[] = {
    {"chatml", "<|im_end|>", R"({%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content ~ '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message.content ~ '<|im_end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    {"llama3", "<|eot_id|>", R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content | trim ~ '<|eot_id|>' }}{% endgeneration %}
{%- else %}
{{- message.content | trim ~ '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})"},
    {"gemma", "<end_of_turn>", R"({{- bos_token }}
{%- set state = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- if not loop.first %}{{ raise_exception('only the first message can be of the system') }}{% endif %}
{%- set state.system = message.content | trim ~ '\n\n' %}
{%- elif message.role == 'assistant' %}
{{- '<start_of_turn>model\n' }}
{%- generation %}{{ message.content | trim ~ '<end_of_turn>' }}{% endgeneration %}
{{- '\n' }}
{%- else %}
{{- '<start_of_turn>' ~ message.role ~ '\n' ~ state.system ~ message.content | trim ~ '<end_of_turn>\n' }}
{%- set state.system = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})"},
    {"mistral", "eos_token", R"({{- bos_token }}
{%- set state = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- if not loop.first %}{{ raise_exception('only the first message can be of the system') }}{% endif %}
{%- set state.system = message.content ~ '\n\n' %}
{%- elif message.role == 'user' %}
{{- '[INST] ' ~ state.system ~ message.content ~ ' [/INST]' }}
{%- set state.system = '' %}
{%- elif message.role == 'assistant' %}
{%- generation %}{{ ' ' ~ message.content | trim ~ eos_token }}{% endgeneration %}
{%- else %}
{{- raise_exception('the roles are system, user and assistant') }}
{%- endif %}
{%- endfor %})"},
    {"phi", "<|end|>", R"({%- for message in messages %}
{{- '<|' ~ message.role ~ '|>\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content ~ '<|end|>' }}{% endgeneration %}
{%- else %}
{{- message.content ~ '<|end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"zephyr", "eos_token", R"({%- for message in messages %}
{{- '<|' ~ message.role ~ '|>\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content ~ eos_token }}{% endgeneration %}
{%- else %}
{{- message.content ~ eos_token }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"},
    {"vicuna", "eos_token", R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- message.content ~ '\n\n' }}
{%- elif message.role == 'user' %}
{{- 'USER: ' ~ message.content ~ '\n' }}
{%- elif message.role == 'assistant' %}
{{- 'ASSISTANT:' }}
{%- generation %}{{ ' ' ~ message.content ~ eos_token }}{% endgeneration %}
{{- '\n' }}
{%- else %}
{{- raise_exception('the roles are system, user and assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})"},
    {"alpaca", "eos_token", R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- message.content ~ '\n\n' }}
{%- elif message.role == 'user' %}
{{- '### Instruction:\n' ~ message.content ~ '\n\n' }}
{%- elif message.role == 'assistant' %}
{{- '### Response:\n' }}
{%- generation %}{{ message.content ~ eos_token }}{% endgeneration %}
{{- '\n\n' }}
{%- else %}
{{- raise_exception('the roles are system, user and assistant') }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\n' }}{% endif %})"},
};

}  // namespace

const BuiltinChatTemplate* FindChatTemplate(std::string_view name) {
  const auto* row = std::ranges::find(kTemplates, name, &BuiltinChatTemplate::name);
  return row == std::end(kTemplates) ? nullptr : row;
}

std::vector<std::string> ListChatTemplates() {
  std::vector<std::string> names;
  for (const BuiltinChatTemplate& row : kTemplates) names.emplace_back(row.name);
  return names;
}

}  // namespace onnxtrain
