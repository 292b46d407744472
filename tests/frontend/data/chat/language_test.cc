// Language features of templates: template, variables, and the text that Jinja renders, recorded once from jinja2 3.1.6
// as transformers 5 configures it.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "frontend/data/chat/chat_template.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kVariables = R"json({
  "a": 1, "s": "Hello World", "u": "Ünï 東京 😀ß", "n": null, "t": true, "l": [3, 1, 2],
  "d": {"x": 1, "y": [1, 2], "items": 5},
  "m": [{"role": "user", "content": "hi", "k": 2}, {"role": "assistant", "content": "yo", "k": 1}],
  "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3}]}]}, {"v": 5}]})json";
constexpr std::time_t kNow = 1767268800;  // 1 January 2026, noon UTC

// Returns the text, or "error: " and the message.
std::string Render(std::string_view source, const RenderOptions& options = {.now = kNow}) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return "error: " + std::string(chat.status().message());
  const auto rendered = (*chat)->Render(OrderedJson::parse(kVariables), options);
  return rendered.ok() ? rendered->text : "error: " + std::string(rendered.status().message());
}

struct Case {
  const char *feature, *source, *text;
};

class Language : public testing::TestWithParam<Case> {};

TEST_P(Language, RendersAsJinja) { EXPECT_EQ(Render(GetParam().source), GetParam().text); }

constexpr Case kExpressions[] = {
    {"Arithmetic", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ -7.5 % 2 }}",
     "3 -4 -2 3.5 2.0 0.5"},
    {"Comparisons", "{{ 1 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
     "True True True True True"},
    {"In", "{{ 'x' in d }} {{ 'y' not in 'xz' }} {{ 1 in l }} {{ not 1 in l }}", "True True True False"},
    {"Logic", "{{ a and n }} {{ n or 'x' }} {{ not a == 2 }} {{ '' or [] }}", "None x True []"},
    {"Concat", "{{ a ~ n ~ t ~ l ~ nothing }}", "1NoneTrue[3, 1, 2]"},
    {"InlineIf", "{{ 'x' if a == 1 else 'y' }}{{ 'x' if n }}{{ 'a' if n else 'b' if n else 'c' }}", "xc"},
    {"Precedence", "{{ 2 + 3 * 4 }} {{ 1 + 2 | string | length }} {{ 1 ~ 2 + 3 ~ 4 }}", "14 2 1234"},
    {"Literals", R"({{ 31 }} {{ 1.5e3 }} {{ 'a' "b" }} {{ (1,) }} {{ () }} {{ {'k': [none, True]} }} {{ 1, 2 }})",
     "31 1500.0 ab (1,) () {'k': [None, True]} (1, 2)"},
    {"Escapes", R"({{ 'tab\t\x41\u00e9\U0001F600 \d it\'s \\' }})", R"(tab	Aé😀 \d it's \)"},
    {"Subscripts", "{{ l[0] }}{{ l[-1] }}{{ d['x'] }}{{ d.x }}{{ l.0 }}{{ d['items'] }}{{ u[0] }}{{ m[0]['role'][1] }}",
     "321135Üs"},
    {"Slices", "{{ l[1:] }}{{ l[::-1] }}{{ s[:-3:2] }}{{ u[1:5] }}{{ u[::-1] }}{{ m[1:][0].role }}{{ range(9)[1:3] }}",
     "[1, 2][2, 1, 3]HloWnï 東ß😀 京東 ïnÜassistantrange(1, 3)"},
    {"Undefined",
     "{{ nothing }}|{{ nothing | length }}|{{ nothing | list }}|{{ nothing == d.z }}|{{ n.foo }}|{{ l[9] }}|{{ s.foo "
     "}}",
     "|0|[]|True|||"},
    {"Printing", R"({{ [1, 'a', none, true, 1.5, "it's", 'q"', '\n\x01'] }} {{ d }})",
     R"([1, 'a', None, True, 1.5, "it's", 'q"', '\n\x01'] {'x': 1, 'y': [1, 2], 'items': 5})"},
    {"NumbersAsKeys",
     "{% set m = {1: 'a', 12: 'b', '1': 'c'} %}{{ m }}{{ m[1] }}{{ m['1'] }}{{ m.get(12) }}{{ 12 in m }}{{ 2 in m }}"
     "{% for k, v in m.items() %}{{ k }}{{ v }},{% endfor %}{% for k in m %}{{ k }}{% endfor %}{{ m | tojson }}",
     R"({1: 'a', 12: 'b', '1': 'c'}acbTrueFalse1a,12b,1c,1121{"1": "a", "12": "b", "1": "c"})"},
    {"Floats",
     "{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ 123456789.125 }} {{ 1e-7 }} {{ 0.1 + 0.2 }}",
     "1e+16 1000000000000000.0 0.0001 1e-05 1.0 123456789.125 1e-07 0.30000000000000004"},
    {"Tests",
     "{{ 'a' is string }}{{ 1 is number }}{{ true is integer }}{{ 1.0 is float }}{{ none is none }}{{ d is mapping "
     "}}{{ l is iterable }}{{ s is sequence }}{{ 3 is odd }}{{ 1 is in l "
     "}}{{ 1 is not in l }}{{ nothing is defined }}{{ t is true }}{{ 1 is sameas true }}{{ 2 is "
     "gt 1 }}",
     "TrueTrueFalseTrueTrueTrueTrueTrueTrueTrueFalseFalseTrueFalseTrue"},
    {"CallsWithNames", "{{ dict(a=1, **{'b': 2}) }}{{ s.replace(*['o'], new='0') }}", "{'a': 1, 'b': 2}Hell0 W0rld"},
};

constexpr Case kStatements[] = {
    {"ForElse",
     "{% for x in [] %}{{ x }}{% else %}none{% endfor %}|{% for x in l %}{{ x }}{% else %}none{% endfor %}|"
     "{% for x in l if x > 5 %}{{ x }}{% else %}few{% endfor %}",
     "none|312|few"},
    {"For",
     "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ "
     "loop.last }}{{ loop.length }};{% endfor %}",
     "1032TrueFalse3;2121FalseFalse3;3210FalseTrue3;"},
    {"ForNeighbors", "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{% endfor %}", "<3>13<1>21<2>"},
    {"ForFilter", "{% for i in range(10) if i % 2 %}{{ i }}{{ loop.last }}{% endfor %}",
     "1False3False5False7False9True"},
    {"ForUnpacks",
     "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for (x, y) in [(1, 2)] %}{{ x }}{{ y }}{% endfor %}",
     "x=1,y=[1, 2],items=5,12"},
    {"ForText", "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}", "[a][é][😀]"},
    {"BreakAndContinue",
     "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% "
     "endfor %}",
     "023"},
    {"If", "{% if a == 2 %}x{% elif a == 1 %}y{% else %}z{% endif %}", "y"},
    {"Set",
     "{% set x = 1 %}{% set p, q = 'a', 'b' %}{{ x }}{{ p }}{{ q }}{% for i in l %}{% set x = i %}{% endfor %}{{ x "
     "}}{% if t %}{% set x = 9 %}{% endif %}{{ x }}",
     "1ab19"},
    {"SetBlock",
     "{% set x %}hi {{ s }}{% endset %}[{{ x }}]{% set y | upper | replace('B', '-') %}abc{% endset %}{{ y }}",
     "[hi Hello World]A-C"},
    {"Namespace",
     "{% set ns = namespace(x=1, y=[]) %}{% for i in l %}{% set ns.x = ns.x + i %}{% set ns.y = ns.y + [i] %}{% endfor "
     "%}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}",
     "7[3, 1, 2]False"},
    {"Macro",
     "{% macro f(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=2, a=1) }}{{ "
     "f() }}",
     "1BNone;1B3;12None;BNone;"},
    {"MacroScope",
     "{% macro f() %}{{ later }}{{ i }}{% endmacro %}{% set later = 4 %}{% for i in l %}{{ f() }}{% endfor %}", "444"},
    {"Filter", "{% filter upper %}abc{{ s }}{% endfilter %}", "ABCHELLO WORLD"},
    {"Raw", R"({% raw %}{{ x }} {% if %}{% endraw %}
after{%- raw -%}  {{ y }}  {%- endraw -%}  z)",
     "{{ x }} {% if %}after{{ y }}z"},
    {"Comments", R"({# one #}
a
   {# two -#}   
b {#- c #} d)",
     R"(a
b d)"},
    {"TrimsBlocks", R"({% if t %}   
  a
   {% if t %}
     b
   {% endif %}
  c
{% endif %}
d
)",
     R"(   
  a
     b
  c
d)"},
    {"TrimsBySign", R"(a {%- if t -%}   b   {%- endif -%}   c {{- 1 -}} 
 d)",
     "abc1d"},
    {"KeepsBySign", R"(  {%+ if t %} x {% endif +%}
y)",
     R"(   x 
y)"},
    {"StringsWithTags", "{{ '{% raw %}' }}{{ '{{' }}{{ '}}' }}{{ '%}' }}", "{% raw %}{{}}%}"},
    {"GenerationScope", "{% generation %}abc{% set zz = 1 %}{% endgeneration %}{{ zz }}", "abc"},
};

constexpr Case kFunctions[] = {
    {"WidthsAndPrecisions", "{{ '%5d|%-4s|%05.2f|%.2s|%+d|%s%%' % (42, u[:3], 3.14159, u, 7, n) }}",
     "   42|Ünï |03.14|Ün|+7|None%"},
    {"FormatFields", "{{ '{:02d} {:.2f} {x:.1s}|{:5s}|'.format(7, 2.345, s, x=u) }} {{ '%02d:%s' | format(5, 'x') }}",
     "07 2.35 Ü|Hello World| 05:x"},
    {"Round", "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.345 | round(2) }} {{ 7 | round }}", "2.0 4.0 2.35 7"},
    {"Divisible", "{{ 6 is divisibleby 3 }} {{ 7 is divisibleby 3 }} {{ 1 is lessthan 2 }} {{ 1 is greaterthan 2 }}",
     "True False True False"},
    {"Partition",
     "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') "
     "}} {{ s.index('o') }} {{ s.rindex('o') }}",
     "('a', '=', 'b=c') ('a=b', '=', 'c') ('abc', '', '') ('', '', 'abc') 4 7"},
    {"ToJson",
     R"({{ d | tojson }}{{ u | tojson }}{{ 'é😀' | tojson(ensure_ascii=true) }}{{ d | tojson(separators=)"
     R"((',', ':')) }}{{ {'b': 1, 'a': 1.0} | tojson(sort_keys=true) }}{{ '\x01\n<&>' | tojson }})",
     R"({"x": 1, "y": [1, 2], "items": 5}"Ünï 東京 😀ß""\u00e9\ud83d\ude00"{"x":1,"y":[1,2],"items":5}{"a")"
     R"(: 1.0, "b": 1}"\u0001\n<&>")"},
    {"ToJsonIndent", "{{ d | tojson(indent=2) }}{{ {} | tojson(indent=2) }}",
     R"({
  "x": 1,
  "y": [
    1,
    2
  ],
  "items": 5
}{})"},
    {"Case",
     R"({{ u.upper() }}{{ u | lower }}{{ 'ΑΣ'.lower() }}{{ 'hELLO wORLD' | capitalize }}{{ 'ab-cd it\'s)"
     R"(' | title }}{{ 'ab-cd it\'s'.title() }})",
     "ÜNÏ 東京 😀SSünï 東京 😀ßαςHello worldAb-Cd It'sAb-Cd It'S"},
    {"Strip",
     "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.lstrip('ab') }}|{{ 'abc'.rstrip('cb') }}|{{ ' a ' | trim "
     "}}|{{ 'xax' | trim('x') }}",
     "x|a|c|a|a|a"},
    {"Split",
     R"({{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' a b '.split(')"
     R"( ') }}{{ ' a b  c '.split(none, 1) }}{{ 'a\nb\r\n'.splitlines() }})",
     "['a', 'b', 'c']['a', 'b,c']['a b', 'c']['', 'a', 'b', '']['a', 'b  c ']['a', 'b']"},
    {"Find",
     "{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}{{ u.find('京') }}{{ 'abab'.rfind('a') }}{{ 'aXbX'.count('X') }}{{ "
     "'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('c') }}{{ l.index(1) }}",
     "2-1522TrueTrue1"},
    {"Replace", "{{ s.replace('o', '0', 1) }}{{ s | replace('o', '0') }}{{ 'abc' | replace('', '-') }}",
     "Hell0 WorldHell0 W0rld-a-b-c-"},
    {"Classes", "{{ '12'.isdigit() }}{{ 'abé'.isalpha() }}{{ 'A1'.isalnum() }}{{ ' '.isspace() }}", "TrueTrueTrueTrue"},
    {"Dicts",
     "{{ d.get('x') }}{{ d.get('q') }}{{ d.get('q', 5) }}{{ d.keys() | list }}{{ d.values() | list }}{{ d | items | "
     "list }}{{ d | dictsort | first }}",
     "1None5['x', 'y', 'items'][1, [1, 2], 5][('x', 1), ('y', [1, 2]), ('items', 5)]('items', 5)"},
    {"Join", "{{ l | join('-') }}{{ m | join(', ', attribute='role') }}{{ ','.join(['a', 'b']) }}",
     "3-1-2user, assistanta,b"},
    {"Select",
     "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}{{ m | rejectattr('k', 'gt', 1) "
     "| list | length }}{{ l | select('odd') | list }}{{ l | reject('odd') | list }}",
     "['hi']1[3, 1][2]"},
    {"Map",
     "{{ ['a', 'b'] | map('upper') | list }}{{ m | map(attribute='z', default='D') | list }}{{ m | map('length') | "
     "list }}",
     "['A', 'B']['D', 'D'][3, 3]"},
    {"Sort",
     "{{ l | sort }}{{ ['b', 'A'] | sort }}{{ l | sort(reverse=true) }}{{ m | sort(attribute='k') | map(attribute='k') "
     "| list }}",
     "[1, 2, 3]['A', 'b'][3, 2, 1][1, 2]"},
    {"Aggregates",
     "{{ l | sum }}{{ l | min }}{{ l | max }}{{ l | first }}{{ l | last }}{{ l | length }}{{ l | reverse | list }}{{ "
     "[1, 1, 2] | unique | list }}{{ m | sum(attribute='k') }}",
     "613323[2, 1, 3][1, 2]3"},
    {"Default", "{{ nothing | default('x') }}{{ '' | d('y', true) }}{{ '' | default('z') }}", "xy"},
    {"Numbers", "{{ '12' | int }}{{ 'x' | int(5) }}{{ '3.7' | int }}{{ '1.5' | float }}{{ -3 | abs }}", "12531.53"},
    {"Html", "{{ '<a>' | e }}{{ ('<' | safe) + '<' }}{{ '<' + ('<' | e) }}{{ ('<' | e) ~ '<' }}",
     "&lt;a&gt;<&lt;&lt;&lt;&lt;<"},
    {"Indent", R"({{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }})",
     R"(a
    b

    c|  a
  b)"},
    {"PercentFormat", "{{ '%s is %d and %r%%' % ('a', 3.7, 'b') }}{{ '%s' % 1 }}", "a is 3 and 'b'%1"},
    {"BraceFormat", "{{ '{} {}{{}}'.format(1, 'a') }}{{ '{0}{x}'.format(1, x='b') }}", "1 a{}1b"},
    {"Globals", "{{ range(1, 10, 3) | list }}{{ dict(a=1) }}", "[1, 4, 7]{'a': 1}"},
    {"Time", "{{ strftime_now('%d %b %Y') }}", "01 Jan 2026"},
};

std::string GetName(const testing::TestParamInfo<Case>& info) { return info.param.feature; }
INSTANTIATE_TEST_SUITE_P(Expressions, Language, testing::ValuesIn(kExpressions), GetName);
INSTANTIATE_TEST_SUITE_P(Statements, Language, testing::ValuesIn(kStatements), GetName);
INSTANTIATE_TEST_SUITE_P(Functions, Language, testing::ValuesIn(kFunctions), GetName);

TEST(LanguageErrors, NameTheLine) {
  constexpr std::pair<const char*, const char*> kErrors[] = {
      {"a\n{{ a", "line 2: a tag without its end }}"},
      {"{% if a %}", "line 1: the template ends where 'endif' is expected"},
      {"\n\n{{ nothing.x }}", "line 3: 'nothing' is undefined"},
      {"{{ d.z.x }}", "line 1: 'dict' object has no attribute or item 'z'"},
      {"{{ 's' + 1 }}", "line 1: unsupported operand types for +: 'str' and 'int'"},
      {"{{ l.append(4) }}", "line 1: 'list' object has no attribute or item 'append'"},
      {"{{ s.__class__.mro() }}", "line 1: 'str' object has no attribute or item '__class__'"},
      {"{{ l | nofilter }}", "line 1: there is no filter 'nofilter'"},
      {"{{ {none: 2} }}", "line 1: the key of a mapping is 'NoneType', expected a string or an integer"},
      {"{% raw %}{{ x }}", "line 1: a raw block without its end"},
      {"{{ 1 < a < 3 }}", "line 1: comparisons cannot be chained"},
      {"{{ dict(**l) }}", "line 1: the argument after ** is no mapping"},
      {"{% with x = 1 %}{% endwith %}", "line 1: unknown or unsupported tag 'with'"},
      {"{{ 2.1 | round(method='ceil') }}", "line 1: round has no parameter 'method'"},
      {"{% include 'x' %}", "line 1: unknown or unsupported tag 'include'"},
      {"{% extends 'x' %}", "line 1: unknown or unsupported tag 'extends'"},
      {"x\n{{ raise_exception('No\nline') }}", "line 2: No?line"},
      {"{% break %}", "line 1: 'break' outside of a loop"},
      {"{{ range(100001) }}", "line 1: range: ranges of more than 100000 numbers are refused"},
      {"{{ 9223372036854775807 + 1 }}", "line 1: an integer exceeds 64 bits"},
      {"{% set ns = namespace(_x=1) %}",
       "line 1: namespace: attributes of namespaces must not begin with an underscore"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "line 1: macro 'f' takes not more than 1 argument(s)"},
      {"{{ \"\xff\" }}", "line 1: the template is not UTF-8"},
      {"{{ l | batch(2) }}", "line 1: there is no filter 'batch'"},
      {"{{ s.center(9) }}", "line 1: 'str' object has no attribute or item 'center'"},
      {"{{ s.find('o', 5) }}", "line 1: find takes at most 1 argument(s)"},
      {"{{ cycler(1) }}", "line 1: 'cycler' is undefined"},
      {"{% for i in l %}{{ loop.cycle(1) }}{% endfor %}",
       "line 1: 'LoopContext' object has no attribute or item 'cycle'"},
      {"{% for i in l recursive %}{% endfor %}", "line 1: unexpected name 'recursive', expected '%}'"},
      {"{% call(x) f() %}{% endcall %}", "line 1: unknown or unsupported tag 'call'"},
      {"{{ '%x' % 1 }}", "line 1: only the types s, r, d, f, e, g and % are supported, not 'x'"},
      {"{{ '%99999d' % 1 }}", "line 1: unsupported format of a field"},
      {"{{ '{x:>5}'.format(x=1) }}", "line 1: format: unsupported format of a field"},
      {"{{ 2 ** 3 }}", "line 1: unexpected operator '**', expected '}}'"},
      {R"({{ '\0' }})", R"(line 1: unsupported escape \0 in a string)"},
  };
  for (const auto& [source, message] : kErrors) EXPECT_EQ(Render(source), std::string("error: ") + message);
}

TEST(LanguageErrors, OfRaiseExceptionAreTold) {
  const auto chat = ChatTemplate::Parse("{{ raise_exception('roles') }}");
  ASSERT_TRUE(chat.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*chat)->Render(OrderedJson::object()).status()));
}

TEST(LanguageLimits, EndRenderings) {
  const RenderOptions few = {.max_steps = 1000, .max_bytes = 1000};
  constexpr const char* kEndless[] = {
      "{% for i in range(1000) %}{% for j in range(1000) %}{{ j }}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{{ 'ab' * 100000000000 }}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{{ ('a' * 900).replace('a', 'b' * 900) }}",
      "{{ 'x' | indent(999999999999) }}"};
  for (const char* source : kEndless) EXPECT_TRUE(Render(source, few).starts_with("error: line 1: ")) << source;
}

TEST(LanguageLimits, BoundNesting) {
  for (const char* part : {"(", "[", "{1:", "not ", "-", "a if a else ", "a.b[", "f("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 100'000; ++i) source += part;
    EXPECT_TRUE(Render(source).starts_with("error: line 1: ")) << part;
  }
  std::string sum = "{{ a", blocks;
  for (int i = 0; i < 100'000; ++i) sum += " + a";
  for (int i = 0; i < 100'000; ++i) blocks += "{% if a %}";
  EXPECT_TRUE(Render(sum + " }}").starts_with("error: line 1: ")) << Render(sum + " }}");
  EXPECT_TRUE(Render(blocks).starts_with("error: line 1: "));
}

TEST(LanguageLimits, LongChainsOfObjectsEnd) {
  constexpr const char* kChains[] = {"{% set old = ns.x %}{% macro f() %}{{ old }}{% endmacro %}{% set ns.x = f %}",
                                     "{% set ns.x = namespace(y=ns.x) %}"};
  for (const char* chain : kChains) {
    const std::string source =
        StrCat("{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% for j in range(100) %}", chain,
               "{% endfor %}{% endfor %}{% set ns.x = 1 %}{{ ns.x }}");
    EXPECT_EQ(Render(source), "1") << chain;
  }
  const char* bound =
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x.index] %}{% endfor %}";
  EXPECT_EQ(Render(bound), "error: line 1: a value nests more than 128 deep");
}

TEST(LanguageLimits, NamespacesMayReferToThemselves) {
  EXPECT_EQ(Render("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a == ns.a }}"), "True");
}

TEST(Generation, RangesAreBytes) {
  const auto chat =
      ChatTemplate::Parse("{% for x in ['é', '東京'] %}ü{% generation %}{{ x }}{% endgeneration %}{% endfor %}");
  ASSERT_TRUE(chat.ok());
  const auto rendered = (*chat)->Render(OrderedJson::object());
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text, "üéü東京");
  EXPECT_EQ(rendered->generated, (std::vector<TextRange>{{2, 4}, {6, 12}}));
  EXPECT_TRUE((*chat)->marks_generation());
}

}  // namespace
}  // namespace onnxtrain
