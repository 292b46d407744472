// One name, one type: two definitions of a class in one namespace, each in a file of its own, break the one-definition rule,
// and the linker takes either without a word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

bool IsWordChar(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); }
bool IsWord(const std::string& token) { return IsWordChar(token[0]); }

// The place behind the next `end` from `from` on.
size_t Behind(const std::string& source, const std::string& end, size_t from) {
  const size_t at = source.find(end, from);
  return at == std::string::npos ? source.size() : at + end.size();
}

// The place behind a line, or behind a literal that `quote` closes; a backslash takes away what the next character means.
size_t BehindUnescaped(const std::string& source, char end, size_t i) {
  while (i < source.size() && source[i] != end) i += source[i] == '\\' ? 2 : 1;
  return std::min(i + 1, source.size());
}

// The place behind the comment, preprocessor line or literal that starts at `i`, or `i`.
size_t Skipped(const std::string& s, size_t i) {
  if (s.compare(i, 2, "//") == 0) return Behind(s, "\n", i);
  if (s.compare(i, 2, "/*") == 0) return Behind(s, "*/", i);
  if (s[i] == '#') return BehindUnescaped(s, '\n', i);
  if (s.compare(i, 2, "R\"") == 0) return Behind(s, std::string(")").append(s, i + 2, s.find('(', i) - i - 2).append("\""), i);
  return s[i] == '"' || s[i] == '\'' ? BehindUnescaped(s, s[i], i + 1) : i;
}

size_t BehindWord(const std::string& s, size_t i) {
  const bool number = std::isdigit(static_cast<unsigned char>(s[i]));
  while (i < s.size() && (IsWordChar(s[i]) || (number && s[i] == '\''))) ++i;
  return i;
}

// Words and punctuation of C++ source without comments, preprocessor lines and literals.
Names TokensOf(const std::string& s) {
  Names tokens;
  for (size_t i = 0; i < s.size();) {
    if (const size_t behind = Skipped(s, i); behind > i) {
      i = behind;
      continue;
    }
    const size_t end = IsWordChar(s[i]) ? BehindWord(s, i) : i + (s.compare(i, 2, "::") == 0 ? 2 : 1);
    if (!std::isspace(static_cast<unsigned char>(s[i]))) tokens.push_back(s.substr(i, end - i));
    i = end;
  }
  return tokens;
}

// Past a bracketed group that starts at `i`, if one does.
size_t Past(const Names& t, size_t i, const std::string& open, const std::string& close) {
  if (i >= t.size() || t[i] != open) return i;
  for (int depth = 0; i < t.size(); ++i) {
    depth += t[i] == open ? 1 : t[i] == close ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return i;
}

// "A::B" from `i` on; empty where no word stands there.
std::string QualifiedName(const Names& t, size_t* i) {
  std::string name;
  for (; *i < t.size() && t[*i] != "final"; ++*i) {
    const bool joins = t[*i] == "::" || (IsWord(t[*i]) && (name.empty() || name.ends_with("::")));
    if (!joins) break;
    name += t[*i];
  }
  return name;
}

// The name of the type that the words before a brace define; empty where they define none, or a specialization.
std::string DefinedType(const Names& head) {
  size_t i = !head.empty() && head[0] == "template" ? Past(head, 1, "<", ">") : 0;
  if (i >= head.size() || (head[i] != "class" && head[i] != "struct" && head[i] != "enum" && head[i] != "union")) return "";
  if (head[i++] == "enum" && i < head.size() && (head[i] == "class" || head[i] == "struct")) ++i;
  if (i < head.size() && head[i] == "alignas") i = Past(head, i + 1, "(", ")");
  i = Past(head, i, "[", "]");
  const std::string name = QualifiedName(head, &i);
  return i == head.size() || head[i] == ":" || head[i] == "final" ? name : "";
}

// The types that the source defines in named namespaces, outside functions, other types and anonymous namespaces.
Names TypesOf(const std::string& source) {
  Names types, head;
  struct Scope {
    bool named;  // a named namespace in named namespaces
    std::string prefix;
  };
  std::vector<Scope> scopes = {{true, ""}};
  for (const std::string& token : TokensOf(source)) {
    if (token != "{" && token != "}" && token != ";") {
      head.push_back(token);
      continue;
    }
    if (token == "{") {
      size_t begin = !head.empty() && head[0] == "inline" ? 2 : 1;
      const bool space = head.size() >= begin && head[begin - 1] == "namespace";
      const std::string name = space ? QualifiedName(head, &begin) : DefinedType(head);
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

TEST(Types, AreFoundWhereTheyAreDefined) {
  EXPECT_EQ(TypesOf(R"(
    #define X struct Macro {
    namespace a::b {
    class Forward;
    // struct Comment {
    struct One { struct Inner { int x = 1; }; };
    template <typename T, template <typename> class U> class alignas(64) Two final : public One {};
    enum class Three : int { kA };
    struct One::Late {};
    template <> struct Two<int> {};
    const struct One kOne = {};
    namespace { struct Hidden {}; namespace c { struct HiddenToo {}; } }
    inline int F(const char* s = "struct Text \" {") { struct Local {}; return '{' + 1'000; }
    inline namespace d { union Four {}; }
    }
    struct Five {};)"),
            (Names{"a::b::One", "a::b::Two", "a::b::Three", "a::b::One::Late", "a::b::d::Four", "Five"}));
}

TEST(Types, HaveOneDefinitionEach) {
  const fs::path root = ONNXTRAIN_SOURCE_DIR;
  std::map<std::string, std::set<std::string>> defined;  // by type: the files, each of which may have it on both sides of an #if
  for (const char* top : {"frontend", "backends", "optim", "tools", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
      std::stringstream source;
      source << std::ifstream(entry.path()).rdbuf();
      for (const std::string& type : TypesOf(source.str())) defined[type].insert(fs::relative(entry.path(), root).string());
    }
  }
  EXPECT_GT(defined.size(), 200u);
  for (const auto& [type, files] : defined) EXPECT_EQ(files.size(), 1u) << type << " is defined in " << testing::PrintToString(files);
}

}  // namespace
