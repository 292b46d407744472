// Every type has one definition. Two definitions of a class in one namespace, each in its own source, violate the
// one-definition rule; the linker picks one silently.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/layout/source_tree.h"

namespace onnxtrain::layout {
namespace {

using Names = std::vector<std::string>;

bool IsWord(const std::string& token) { return token[0] == '_' || std::isalnum(static_cast<unsigned char>(token[0])); }

// Returns the position after the bracketed group that starts at `i`, or `i` where none does.
size_t SkipGroup(const Names& t, size_t i, const std::string& open, const std::string& close) {
  if (i >= t.size() || t[i] != open) return i;
  for (int depth = 0; i < t.size(); ++i) {
    depth += t[i] == open ? 1 : t[i] == close ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return i;
}

// Parses "A::B" at `i`; returns "" where there is no word.
std::string ParseQualifiedName(const Names& t, size_t* i) {
  std::string name;
  for (; *i < t.size() && t[*i] != "final"; ++*i) {
    const bool joins = t[*i] == "::" || (IsWord(t[*i]) && (name.empty() || name.ends_with("::")));
    if (!joins) break;
    name += t[*i];
  }
  return name;
}

// Returns the name of the type that the tokens before a brace define; "" where they define none, or a specialization.
std::string ParseDefinedType(const Names& head) {
  size_t i = !head.empty() && head[0] == "template" ? SkipGroup(head, 1, "<", ">") : 0;
  if (i >= head.size() || (head[i] != "class" && head[i] != "struct" && head[i] != "enum" && head[i] != "union"))
    return "";
  if (head[i++] == "enum" && i < head.size() && (head[i] == "class" || head[i] == "struct")) ++i;
  if (i < head.size() && head[i] == "alignas") i = SkipGroup(head, i + 1, "(", ")");
  i = SkipGroup(head, i, "[", "]");
  const std::string name = ParseQualifiedName(head, &i);
  return i == head.size() || head[i] == ":" || head[i] == "final" ? name : "";
}

// Returns the types that the source defines in named namespaces, outside functions, other types and anonymous
// namespaces.
Names ListTypes(const std::string& source) {
  Names types, head;
  struct Scope {
    bool named;  // a named namespace in named namespaces
    std::string prefix;
  };
  std::vector<Scope> scopes = {{true, ""}};
  for (const std::string& token : Tokenize(source)) {
    if (token != "{" && token != "}" && token != ";") {
      head.push_back(token);
      continue;
    }
    if (token == "{") {
      size_t begin = !head.empty() && head[0] == "inline" ? 2 : 1;
      const bool space = head.size() >= begin && head[begin - 1] == "namespace";
      const std::string name = space ? ParseQualifiedName(head, &begin) : ParseDefinedType(head);
      const Scope& outer = scopes.back();
      if (outer.named && !space && !name.empty()) types.push_back(outer.prefix + name);
      scopes.push_back({outer.named && space && !name.empty(), outer.prefix + name + "::"});
    } else if (token == "}" && scopes.size() > 1) {
      scopes.pop_back();
    }
    head.clear();
  }
  return types;
}

TEST(ListTypes, FindsDefinitionsInNamedNamespaces) {
  EXPECT_EQ(ListTypes(R"(
    #define X struct Macro {
    namespace a::b {
    class Forward;
    // struct Comment {
    struct One { struct Inner { int x = 1; }; };
    template <typename T, template <typename> class U> class alignas(64) Two final : public One {};
    enum class Three : int { kA };
    struct One::Nested {};
    template <> struct Two<int> {};
    const struct One kOne = {};
    namespace { struct Hidden {}; namespace c { struct HiddenToo {}; } }
    inline int F(const char* s = "struct Text \" {") { struct Local {}; return '{' + 1'000; }
    inline namespace d { union Four {}; }
    }
    struct Five {};)"),
            (Names{"a::b::One", "a::b::Two", "a::b::Three", "a::b::One::Nested", "a::b::d::Four", "Five"}));
}

TEST(Types, HaveOneDefinitionEach) {
  std::map<std::string, std::set<std::string>>
      files_by_type;  // sets: one file may define a type on both sides of an #if
  for (const SourceFile& file : ReadSources({".h", ".cc"})) {
    for (const std::string& type : ListTypes(file.text)) files_by_type[type].insert(file.path);
  }
  EXPECT_GT(files_by_type.size(), 200u);
  for (const auto& [type, files] : files_by_type)
    EXPECT_EQ(files.size(), 1u) << type << " is defined in " << testing::PrintToString(files);
}

}  // namespace
}  // namespace onnxtrain::layout
