#include "frontend/data/chat/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kMaxIndent = 1000;

struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};
  std::string comma = ", ", colon = ": ";
};

// Writes JSON in the format of Python's json.dumps.
class Writer {
 public:
  Writer(Interpreter& run, JsonStyle style) : run_(run), style_(std::move(style)) {}

  void Write(const Value& value, int depth) {
    if (!run_.CheckBytes(std::ssize(out_))) return;
    const Sequence* sequence = value.sequence();
    if (value.text() != nullptr) {
      WriteText(*value.text());
    } else if (value.dict() != nullptr) {
      WriteDict(*value.dict(), depth);
    } else if (sequence != nullptr && sequence->kind <= SequenceKind::kTuple) {
      WriteItems("[]", sequence->items.size(), depth, [&](size_t i) { Write(sequence->items[i], depth + 1); });
    } else {
      out_ += PrintScalar(value);
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  std::string PrintScalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return IsTrue(value) ? "true" : "false";
    if (!value.is_number()) run_.Fail("an object of type ", GetTypeName(value), " cannot be written as JSON");
    if (value.is_float() && std::isnan(*value.number())) return "NaN";
    if (value.is_float() && std::isinf(*value.number())) return *value.number() < 0 ? "-Infinity" : "Infinity";
    return PrintRepr(value);
  }

  void BreakLine(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  template <typename WriteItem>
  void WriteItems(std::string_view brackets, size_t count, int depth, WriteItem write_item) {
    out_ += brackets[0];
    for (size_t i = 0; i < count && !run_.failed(); ++i) {
      if (i > 0) out_ += style_.comma;
      BreakLine(depth + 1);
      write_item(i);
    }
    if (count > 0) BreakLine(depth);
    out_ += brackets[1];
  }

  void WriteDict(const Dict& dict, int depth) {
    std::vector<size_t> order(dict.items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto get_key = [&](size_t i) -> const std::string& { return dict.items[i].first; };
    if (style_.sort_keys) std::ranges::sort(order, {}, get_key);
    WriteItems("{}", order.size(), depth, [&](size_t i) {
      const auto& [key, value] = dict.items[order[i]];
      const Value name = ReadKey(key);
      WriteText(name.text() != nullptr ? *name.text() : StrCat(*name.integer()));
      out_ += style_.colon;
      Write(value, depth + 1);
    });
  }

  void WriteText(std::string_view text) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    out_ += '"';
    while (!text.empty()) {
      char32_t c = 0;
      const size_t bytes = DecodeChar(text, &c);
      const size_t known = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
      if (known != kFrom.npos) {
        out_.append({'\\', kTo[known]});
      } else if (c < 0x20 || (style_.ascii && c > 0x7f)) {
        WriteEscape(c);
      } else {
        out_ += text.substr(0, bytes);
      }
      text.remove_prefix(bytes);
    }
    out_ += '"';
  }

  void WriteEscape(char32_t c) {
    constexpr char32_t kPlane = 0x10000;
    if (c >= kPlane) {
      WriteEscape(0xd800 + ((c - kPlane) >> 10));
      c = 0xdc00 + ((c - kPlane) & 0x3ff);
    }
    char digits[8];
    out_.append(digits, std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(c)));
  }

  Interpreter& run_;
  const JsonStyle style_;
  std::string out_;
};

absl::StatusOr<Value> FromJsonArray(OrderedJson& json) {
  Values items;
  items.reserve(json.size());
  for (OrderedJson& item : json) {
    ASSIGN_OR_RETURN(Value value, FromJson(std::move(item)));
    items.push_back(std::move(value));
  }
  return MakeSequence(SequenceKind::kList, std::move(items));
}

absl::StatusOr<Value> FromJsonObject(OrderedJson& json) {
  auto dict = std::make_shared<Dict>();
  dict->items.reserve(json.size());
  for (auto& [key, item] : *json.get_ptr<OrderedJson::object_t*>()) {
    ASSIGN_OR_RETURN(Value value, FromJson(std::move(item)));
    RETURN_IF_ERROR(dict->Set(MakeKey(key), std::move(value)));
  }
  return Value(std::move(dict));
}

}  // namespace

Value ToJson(const BuiltinCall& c) {
  JsonStyle style = {.ascii = c.IsTrue(0), .sort_keys = c.IsTrue(3)};
  if (const Value& indent = c.Get(1); !indent.is_none()) {
    const std::string* given = indent.text();
    const int64_t width = given != nullptr ? std::ssize(*given) : std::max<int64_t>(c.Integer(1), 0);
    if (width > kMaxIndent) return c.run.Fail("an indent of more than ", kMaxIndent, " characters is refused");
    style.indent = given != nullptr ? *given : std::string(width, ' ');
    style.comma.pop_back();  // the space, since a line ends there
  }
  if (!c.Get(2).is_none()) {
    const Values separators = c.run.Get(ReadItems(c.Get(2)));
    if (separators.size() != 2 || separators[0].text() == nullptr || separators[1].text() == nullptr)
      return c.run.Fail("separators must be two strings");
    style.comma = *separators[0].text();
    style.colon = *separators[1].text();
  }
  Writer writer(c.run, std::move(style));
  writer.Write(c.self, 0);
  return writer.Take();
}

absl::StatusOr<Value> FromJson(OrderedJson json) {
  if (json.is_null()) return Value(None());
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > std::numeric_limits<int64_t>::max())
    return Invalid("the integer ", json.get<uint64_t>(), " exceeds 64 bits");
  if (json.is_number_integer()) return Value(json.get<int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  if (json.is_string()) return Value(std::move(*json.get_ptr<std::string*>()));
  if (json.is_array()) return FromJsonArray(json);
  return json.is_object() ? FromJsonObject(json) : absl::StatusOr<Value>(Invalid("no JSON"));
}

}  // namespace onnxtrain::jinja
