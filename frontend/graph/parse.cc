#include "frontend/graph/text_form.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/graph/tokens.h"

namespace onnxtrain {
namespace {

using text::Token;

std::optional<InputKind> ParseInputKind(const Token& token) {
  for (int k = 0; k <= static_cast<int>(InputKind::kDerived); ++k) {
    if (token.IsWord(ToString(static_cast<InputKind>(k)))) return static_cast<InputKind>(k);
  }
  return std::nullopt;
}

std::optional<double> ParseDouble(const Token& token) {
  double value;
  if (token.kind != Token::kNumber && token.kind != Token::kWord) return std::nullopt;
  if (!text::ScanElement(DType::kFloat64, token.text, reinterpret_cast<std::byte*>(&value))) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInt(const Token& token) {
  int64_t value;
  if (token.kind != Token::kNumber) return std::nullopt;
  if (!text::ScanElement(DType::kInt64, token.text, reinterpret_cast<std::byte*>(&value))) return std::nullopt;
  return value;
}

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options) : lexer_(text), splat_left_(options.max_splat_bytes) {}

  absl::StatusOr<Graph> Run();

 private:
  // The definition of a value: its token, and its quoted name if there is one.
  struct Definition {
    std::string token;
    std::string name;
    Type type;
  };

  absl::Status Advance();
  absl::Status Error(const std::string& what) const { return Invalid("line ", token_.line, ": ", what); }
  absl::Status Unexpected(std::string_view expected) const {
    return Error(StrCat("expected ", expected, ", got ", token_.Describe()));
  }
  absl::Status Expect(char punctuation);
  absl::Status ExpectWord(std::string_view word);
  // Consumes the token if it is the given one. Fails only if the next token is malformed.
  absl::StatusOr<bool> Accept(char punctuation);
  absl::StatusOr<bool> AcceptWord(std::string_view word);
  absl::StatusOr<std::string> ParseQuoted(std::string_view what);
  absl::StatusOr<std::string> ParseName(std::string_view what);  // a word or a string
  // Parses items separated by commas up to `close`; the opening token has been consumed.
  template <typename F>
  absl::Status ParseList(char close, F&& item);

  absl::Status ParseInput(InputKind kind);
  absl::Status ParseStatement();
  absl::Status ParseOutput();
  absl::StatusOr<Definition> ParseDefinition();
  absl::Status Bind(const std::string& token, ValueId v);
  absl::StatusOr<ValueId> ParseUse();
  absl::StatusOr<Attrs> ParseAttrs();
  absl::StatusOr<AttrValue> ParseAttr();
  absl::StatusOr<AttrValue> ParseNumbers();
  absl::StatusOr<Type> ParseType();
  absl::Status ParseLayout(Type* type);
  absl::StatusOr<HostTensor> ParseTensor();
  absl::StatusOr<HostTensor> ParseSplat(const Type& type);
  absl::StatusOr<HostTensor> MakeTensor(const Type& type, const std::string& bytes);
  absl::StatusOr<std::string> ParseElement(DType dtype);  // returns its bytes

  text::Lexer lexer_;
  Token token_;
  size_t splat_left_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;  // by token
};

absl::Status Parser::Advance() {
  ASSIGN_OR_RETURN(token_, lexer_.Next());
  return absl::OkStatus();
}

absl::StatusOr<bool> Parser::Accept(char punctuation) {
  if (!token_.Is(punctuation)) return false;
  RETURN_IF_ERROR(Advance());
  return true;
}

absl::StatusOr<bool> Parser::AcceptWord(std::string_view word) {
  if (!token_.IsWord(word)) return false;
  RETURN_IF_ERROR(Advance());
  return true;
}

absl::Status Parser::Expect(char punctuation) {
  ASSIGN_OR_RETURN(const bool found, Accept(punctuation));
  return found ? absl::OkStatus() : Unexpected(StrCat("'", std::string(1, punctuation), "'"));
}

absl::Status Parser::ExpectWord(std::string_view word) {
  ASSIGN_OR_RETURN(const bool found, AcceptWord(word));
  return found ? absl::OkStatus() : Unexpected(StrCat("'", word, "'"));
}

absl::StatusOr<std::string> Parser::ParseQuoted(std::string_view what) {
  if (token_.kind != Token::kString) return Unexpected(StrCat(what, " in quotes"));
  std::string s = token_.text;
  RETURN_IF_ERROR(Advance());
  return s;
}

absl::StatusOr<std::string> Parser::ParseName(std::string_view what) {
  if (token_.kind != Token::kWord && token_.kind != Token::kString) return Unexpected(what);
  std::string s = token_.text;
  RETURN_IF_ERROR(Advance());
  return s;
}

template <typename F>
absl::Status Parser::ParseList(char close, F&& item) {
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const bool done, Accept(close));
    if (done) return absl::OkStatus();
    if (!first) RETURN_IF_ERROR(Expect(','));
    RETURN_IF_ERROR(item());
  }
}

absl::StatusOr<Type> Parser::ParseType() {
  const auto dtype = token_.kind == Token::kWord ? ParseDType(token_.text) : std::nullopt;
  if (!dtype.has_value()) return Unexpected("an element type");
  Type type{*dtype, {}};
  RETURN_IF_ERROR(Advance());
  RETURN_IF_ERROR(Expect('['));
  RETURN_IF_ERROR(ParseList(']', [&]() -> absl::Status {
    const auto extent = ParseInt(token_);
    if (!extent.has_value()) return Unexpected("an extent");
    type.shape.push_back(*extent);
    return Advance();
  }));
  if (absl::Status status = CheckShape(type.shape); !status.ok()) return Error(std::string(status.message()));
  RETURN_IF_ERROR(ParseLayout(&type));
  return type;
}

// Parses :nhwc, :packed(bytes) or nothing.
absl::Status Parser::ParseLayout(Type* type) {
  ASSIGN_OR_RETURN(const bool has_layout, Accept(':'));
  if (!has_layout) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool channels_last, AcceptWord("nhwc"));
  if (channels_last) {
    type->layout = Layout::kChannelsLast;
    return type->rank() > 2 ? absl::OkStatus() : Error(StrCat("no channels last layout of ", ToString(type->shape)));
  }
  RETURN_IF_ERROR(ExpectWord("packed"));
  RETURN_IF_ERROR(Expect('('));
  const auto bytes = ParseInt(token_);
  if (!bytes.has_value() || *bytes < 0) return Unexpected("a number of bytes");
  type->layout = Layout::kPacked;
  type->packed_bytes = static_cast<size_t>(*bytes);
  RETURN_IF_ERROR(Advance());
  return Expect(')');
}

absl::StatusOr<std::string> Parser::ParseElement(DType dtype) {
  std::string bytes(DTypeSize(dtype), '\0');
  if ((token_.kind != Token::kNumber && token_.kind != Token::kWord) ||
      !text::ScanElement(dtype, token_.text, reinterpret_cast<std::byte*>(bytes.data()))) {
    return Unexpected(StrCat("a number of type ", ToString(dtype)));
  }
  RETURN_IF_ERROR(Advance());
  return bytes;
}

absl::StatusOr<HostTensor> Parser::MakeTensor(const Type& type, const std::string& bytes) {
  if (bytes.size() != type.bytes()) {
    return Error(StrCat("a tensor of type ", ToString(type), " has ", type.bytes(), " bytes, got ", bytes.size()));
  }
  HostTensor t(type);
  std::memcpy(t.mutable_bytes().data(), bytes.data(), bytes.size());
  return t;
}

absl::StatusOr<HostTensor> Parser::ParseSplat(const Type& type) {
  if (type.bytes() > splat_left_) return Error(StrCat("a tensor of type ", ToString(type), " is above the size limit"));
  splat_left_ -= type.bytes();
  ASSIGN_OR_RETURN(const std::string element, ParseElement(type.dtype));
  HostTensor t(type);
  auto bytes = t.mutable_bytes();
  for (size_t at = 0; at < bytes.size(); at += element.size()) std::memcpy(&bytes[at], element.data(), element.size());
  return t;
}

absl::StatusOr<HostTensor> Parser::ParseTensor() {
  ASSIGN_OR_RETURN(const Type type, ParseType());
  if (type.layout != Layout::kRowMajor) return Error("a constant is row-major");
  RETURN_IF_ERROR(Expect('('));
  ASSIGN_OR_RETURN(const bool splat, AcceptWord("splat"));
  if (splat) {
    ASSIGN_OR_RETURN(HostTensor t, ParseSplat(type));
    RETURN_IF_ERROR(Expect(')'));
    return t;
  }
  std::string bytes;
  ASSIGN_OR_RETURN(const bool hex, AcceptWord("hex"));
  if (hex) {
    const auto data = token_.kind == Token::kString ? text::FromHex(token_.text) : std::nullopt;
    if (!data.has_value()) return Unexpected("hexadecimal bytes in quotes");
    bytes = *data;
    RETURN_IF_ERROR(Advance());
    RETURN_IF_ERROR(Expect(')'));
  } else {
    RETURN_IF_ERROR(ParseList(')', [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::string element, ParseElement(type.dtype));
      bytes += element;
      return absl::OkStatus();
    }));
  }
  return MakeTensor(type, bytes);
}

// Parses after the '['. A list holds only integers or only floats.
absl::StatusOr<AttrValue> Parser::ParseNumbers() {
  std::vector<int64_t> ints;
  std::vector<double> doubles;
  RETURN_IF_ERROR(ParseList(']', [&]() -> absl::Status {
    if (const auto i = ParseInt(token_); i.has_value() && doubles.empty()) {
      ints.push_back(*i);
    } else if (const auto d = ParseDouble(token_); d.has_value() && !i.has_value() && ints.empty()) {
      doubles.push_back(*d);
    } else {
      return Unexpected(ints.empty() && doubles.empty() ? "a number"
                        : doubles.empty()               ? "an integer"
                                                        : "a number with a point");
    }
    return Advance();
  }));
  return doubles.empty() ? AttrValue(std::move(ints)) : AttrValue(std::move(doubles));
}

absl::StatusOr<AttrValue> Parser::ParseAttr() {
  AttrValue value;
  if (token_.kind == Token::kString) {
    value = token_.text;
  } else if (const auto i = ParseInt(token_); i.has_value()) {
    value = *i;
  } else if (const auto d = ParseDouble(token_); d.has_value()) {
    value = *d;
  } else if (token_.Is('[')) {
    RETURN_IF_ERROR(Advance());
    return ParseNumbers();
  } else if (token_.IsWord("floats")) {
    RETURN_IF_ERROR(Advance());
    RETURN_IF_ERROR(Expect('['));
    RETURN_IF_ERROR(Expect(']'));
    return AttrValue(std::vector<double>());
  } else if (token_.kind == Token::kWord) {
    ASSIGN_OR_RETURN(HostTensor t, ParseTensor());
    return AttrValue(std::move(t));
  } else {
    return Unexpected("the value of an attribute");
  }
  RETURN_IF_ERROR(Advance());
  return value;
}

absl::StatusOr<Attrs> Parser::ParseAttrs() {
  Attrs attrs;
  RETURN_IF_ERROR(ParseList('}', [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string name, ParseName("the name of an attribute"));
    if (attrs.Has(name)) return Error(StrCat("attribute '", name, "' stands twice"));
    RETURN_IF_ERROR(Expect('='));
    ASSIGN_OR_RETURN(AttrValue value, ParseAttr());
    attrs.Set(name, std::move(value));
    return absl::OkStatus();
  }));
  return attrs;
}

absl::Status Parser::Bind(const std::string& token, ValueId v) {
  if (!values_.emplace(token, v).second) return Error(StrCat("%", token, " is defined twice"));
  return absl::OkStatus();
}

absl::StatusOr<ValueId> Parser::ParseUse() {
  ASSIGN_OR_RETURN(const bool absent, AcceptWord("_"));
  if (absent) return kNoValue;
  if (token_.kind != Token::kValue) return Unexpected("a value");
  auto it = values_.find(token_.text);
  if (it == values_.end()) return Error(StrCat("%", token_.text, " is not defined before it is read"));
  const ValueId v = it->second;
  RETURN_IF_ERROR(Advance());
  return v;
}

// Returns "" for a token that is a number, since that is an id.
std::string NameOfToken(const std::string& token) { return text::IsWord(token) ? token : ""; }

// Parses %token "name": type
absl::StatusOr<Parser::Definition> Parser::ParseDefinition() {
  if (token_.kind != Token::kValue) return Unexpected("a value");
  Definition d{token_.text, NameOfToken(token_.text), {}};
  RETURN_IF_ERROR(Advance());
  if (token_.kind == Token::kString) {
    ASSIGN_OR_RETURN(d.name, ParseQuoted("a name"));
  }
  RETURN_IF_ERROR(Expect(':'));
  ASSIGN_OR_RETURN(d.type, ParseType());
  return d;
}

// Parses %token "input name" as "value name": type
absl::Status Parser::ParseInput(InputKind kind) {
  if (token_.kind != Token::kValue) return Unexpected("a value");
  const std::string token = token_.text;
  std::string name = NameOfToken(token);
  RETURN_IF_ERROR(Advance());
  if (token_.kind == Token::kString || name.empty()) {
    ASSIGN_OR_RETURN(name, ParseQuoted("the name of an input"));
  }
  std::string value_name = name;
  ASSIGN_OR_RETURN(const bool renamed, AcceptWord("as"));
  if (renamed) {
    ASSIGN_OR_RETURN(value_name, ParseQuoted("the name of a value"));
  }
  RETURN_IF_ERROR(Expect(':'));
  ASSIGN_OR_RETURN(Type type, ParseType());
  if (graph_.FindInput(name) != nullptr) return Error(StrCat("two inputs are named ", text::Quote(name)));
  const ValueId v = graph_.AddInput(kind, name, std::move(type));
  graph_.SetValueName(v, value_name);
  return Bind(token, v);
}

// Parses %a: type, %b: type = Op(%x, _) {attrs} @"source"
absl::Status Parser::ParseStatement() {
  if (const auto kind = ParseInputKind(token_); kind.has_value()) {
    RETURN_IF_ERROR(Advance());
    return ParseInput(*kind);
  }
  std::vector<Definition> outputs;
  RETURN_IF_ERROR(ParseList('=', [&]() -> absl::Status {
    ASSIGN_OR_RETURN(Definition d, ParseDefinition());
    outputs.push_back(std::move(d));
    return absl::OkStatus();
  }));
  if (outputs.empty()) return Error("a node defines no value");
  ASSIGN_OR_RETURN(std::string op, ParseName("an operator"));
  RETURN_IF_ERROR(Expect('('));
  ValueIds inputs;
  RETURN_IF_ERROR(ParseList(')', [&]() -> absl::Status {
    ASSIGN_OR_RETURN(inputs.emplace_back(), ParseUse());
    return absl::OkStatus();
  }));
  Attrs attrs;
  ASSIGN_OR_RETURN(const bool has_attrs, Accept('{'));
  if (has_attrs) {
    ASSIGN_OR_RETURN(attrs, ParseAttrs());
  }
  std::string source;
  ASSIGN_OR_RETURN(const bool has_source, Accept('@'));
  if (has_source) {
    ASSIGN_OR_RETURN(source, ParseQuoted("the source of a node"));
  }
  std::vector<Type> types;
  for (const Definition& d : outputs) types.push_back(d.type);
  const Node& node =
      graph_.AddNode(std::move(op), std::move(inputs), std::move(attrs), std::move(types), std::move(source));
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph_.SetValueName(node.outputs[i], outputs[i].name);
    RETURN_IF_ERROR(Bind(outputs[i].token, node.outputs[i]));
  }
  return absl::OkStatus();
}

// Parses %token "name" into %input
absl::Status Parser::ParseOutput() {
  const std::string token = token_.text;
  ASSIGN_OR_RETURN(const ValueId v, ParseUse());
  if (v == kNoValue) return Error("an output needs a value");
  std::string name = NameOfToken(token);
  if (token_.kind == Token::kString || name.empty()) {
    ASSIGN_OR_RETURN(name, ParseQuoted("the name of an output"));
  }
  if (graph_.FindOutput(name) != nullptr) return Error(StrCat("two outputs are named ", text::Quote(name)));
  ValueId into = kNoValue;
  ASSIGN_OR_RETURN(const bool has_into, AcceptWord("into"));
  if (has_into) {
    ASSIGN_OR_RETURN(into, ParseUse());
    if (into == kNoValue || !graph_.IsInput(into))
      return Error(StrCat("output ", text::Quote(name), " is not written into an input"));
    if (!(graph_.type(into) == graph_.type(v))) {
      return Error(StrCat("output ", text::Quote(name), " of type ", ToString(graph_.type(v)),
                          " is written into an input of type ", ToString(graph_.type(into))));
    }
  }
  graph_.AddOutput(std::move(name), v, into);
  return absl::OkStatus();
}

absl::StatusOr<Graph> Parser::Run() {
  RETURN_IF_ERROR(Advance());
  RETURN_IF_ERROR(ExpectWord("graph"));
  RETURN_IF_ERROR(Expect('('));
  RETURN_IF_ERROR(ParseList(')', [&]() -> absl::Status {
    const auto kind = ParseInputKind(token_);
    if (!kind.has_value()) return Unexpected("the kind of an input");
    RETURN_IF_ERROR(Advance());
    return ParseInput(*kind);
  }));
  RETURN_IF_ERROR(Expect('{'));
  while (!token_.IsWord("return")) RETURN_IF_ERROR(ParseStatement());
  RETURN_IF_ERROR(Advance());
  RETURN_IF_ERROR(ParseList('}', [&] { return ParseOutput(); }));
  if (token_.kind != Token::kEnd) return Unexpected("the end of the text");
  return std::move(graph_);
}

}  // namespace

absl::StatusOr<Graph> Parse(std::string_view text, const ParseOptions& options) { return Parser(text, options).Run(); }

}  // namespace onnxtrain
