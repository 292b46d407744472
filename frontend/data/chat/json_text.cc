#include "frontend/data/chat/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain::jinja {
namespace {

// Writes JSON in the format of Python's json.dumps.
class Writer {
 public:
  Writer(Interpreter& run, const JsonStyle& style) : run_(run), style_(style) {}

  absl::Status Write(const Value& value, int depth) {
    RETURN_IF_ERROR(run_.CheckBytes(std::ssize(out_)));
    if (value.text() != nullptr) return WriteText(*value.text());
    if (value.dict() != nullptr) return WriteDict(*value.dict(), depth);
    const Sequence* sequence = value.sequence();
    const bool is_array = sequence != nullptr && sequence->kind <= SequenceKind::kTuple;
    if (is_array) return WriteArray(sequence->items, depth);
    ASSIGN_OR_RETURN(const std::string_view scalar, PrintScalar(value));
    out_ += scalar;
    return absl::OkStatus();
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::StatusOr<std::string_view> PrintScalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return IsTrue(value) ? "true" : "false";
    if (!value.is_number()) return Invalid("an object of type ", GetTypeName(value), " cannot be written as JSON");
    scalar_ = PrintRepr(value);
    if (value.is_float() && std::isnan(*value.number())) return "NaN";
    if (value.is_float() && std::isinf(*value.number())) return *value.number() < 0 ? "-Infinity" : "Infinity";
    return scalar_;
  }

  void BreakLine(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  absl::Status WriteArray(const Values& items, int depth) {
    out_ += '[';
    for (const Value& item : items) {
      if (&item != items.data()) out_ += style_.comma;
      BreakLine(depth + 1);
      RETURN_IF_ERROR(Write(item, depth + 1));
    }
    if (!items.empty()) BreakLine(depth);
    out_ += ']';
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, int depth) {
    std::vector<size_t> order(dict.items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) RETURN_IF_ERROR(SortByKey(dict, &order));
    out_ += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.items[order[i]];
      if (i > 0) out_ += style_.comma;
      BreakLine(depth + 1);
      RETURN_IF_ERROR(WriteKey(key));
      out_ += style_.colon;
      RETURN_IF_ERROR(Write(value, depth + 1));
    }
    if (!order.empty()) BreakLine(depth);
    out_ += '}';
    return absl::OkStatus();
  }

  static absl::Status SortByKey(const Dict& dict, std::vector<size_t>* order) {
    absl::Status status;
    std::ranges::stable_sort(*order, [&](size_t a, size_t b) {
      const auto compared = Compare(dict.items[a].first, dict.items[b].first);
      if (!compared.ok()) status = compared.status();
      return compared.ok() && compared->value_or(0) < 0;
    });
    return status;
  }

  absl::Status WriteKey(const Value& key) {
    if (key.text() != nullptr) return WriteText(*key.text());
    ASSIGN_OR_RETURN(const std::string_view scalar, PrintScalar(key));
    return WriteText(scalar);
  }

  absl::Status WriteText(std::string_view text) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      char32_t c = 0;
      const size_t bytes = DecodeChar(text.substr(at), &c);
      const size_t known = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
      if (known != kFrom.npos) {
        out_.append({'\\', kTo[known]});
      } else if (c < 0x20 || (style_.ascii && c >= 0x7f && c != 0x7f)) {
        WriteEscape(c);
      } else {
        out_ += text.substr(at, bytes);
      }
      at += bytes;
    }
    out_ += '"';
    return absl::OkStatus();
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
  const JsonStyle& style_;
  std::string out_, scalar_;
};

absl::StatusOr<Value> FromJsonArray(OrderedJson json) {
  Values items;
  items.reserve(json.size());
  for (OrderedJson& item : json) {
    ASSIGN_OR_RETURN(Value value, FromJson(std::move(item)));
    items.push_back(std::move(value));
  }
  return MakeList(std::move(items));
}

absl::StatusOr<Value> FromJsonObject(OrderedJson json) {
  auto dict = std::make_shared<Dict>();
  dict->items.reserve(json.size());
  for (auto& [key, item] : *json.get_ptr<OrderedJson::object_t*>()) {
    ASSIGN_OR_RETURN(Value value, FromJson(std::move(item)));
    RETURN_IF_ERROR(dict->Set(key, std::move(value)));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

}  // namespace

absl::StatusOr<std::string> WriteJsonText(Interpreter& run, const Value& value, const JsonStyle& style) {
  Writer writer(run, style);
  RETURN_IF_ERROR(writer.Write(value, 0));
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
  if (json.is_array()) return FromJsonArray(std::move(json));
  return json.is_object() ? FromJsonObject(std::move(json)) : absl::StatusOr<Value>(Invalid("no JSON"));
}

}  // namespace onnxtrain::jinja
