#include "frontend/graph/text_form.h"

#include <cstring>
#include <unordered_map>

#include "absl/strings/str_join.h"
#include "frontend/base/strings.h"
#include "frontend/graph/tokens.h"

namespace onnxtrain {
namespace {

std::string QuoteUnlessWord(const std::string& s) { return text::IsWord(s) ? s : text::Quote(s); }

bool AllElementsEqual(const HostTensor& t) {
  const auto bytes = t.bytes();
  const size_t size = DTypeSize(t.dtype());
  // Compares every byte with the one an element earlier.
  return std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

// Prints inputs on one line, or one per line if there are many.
std::string WrapLines(const std::vector<std::string>& parts) {
  constexpr size_t kLine = 110;
  std::string line = absl::StrJoin(parts, ", ");
  return line.size() <= kLine ? line : StrCat("\n    ", absl::StrJoin(parts, ",\n    "));
}

class AttrPrinter {
 public:
  explicit AttrPrinter(const PrintOptions& options) : options_(options) {}

  std::string operator()(int64_t value) const { return StrCat(value); }
  std::string operator()(double value) const { return text::FormatDouble(value); }
  std::string operator()(const std::string& value) const { return text::Quote(value); }
  std::string operator()(const std::vector<int64_t>& values) const {
    return StrCat("[", absl::StrJoin(values, ", "), "]");
  }
  std::string operator()(const std::vector<double>& values) const {
    if (values.empty()) return "floats[]";
    auto format = [](std::string* out, double v) { *out += text::FormatDouble(v); };
    return StrCat("[", absl::StrJoin(values, ", ", format), "]");
  }
  std::string operator()(const HostTensor& t) const { return StrCat(ToString(t.type()), "(", Elements(t), ")"); }

 private:
  std::string Elements(const HostTensor& t) const {
    const auto bytes = t.bytes();
    const size_t size = DTypeSize(t.dtype()), count = bytes.size() / size;
    auto element = [&](size_t i) { return text::FormatElement(t.dtype(), bytes.data() + i * size); };
    if (count > 1 && AllElementsEqual(t)) return StrCat("splat ", element(0));
    if (count > options_.list_elements) {
      return bytes.size() > options_.elide_bytes ? "..." : StrCat("hex \"", text::ToHex(bytes), "\"");
    }
    std::string out;
    for (size_t i = 0; i < count; ++i) StrAppend(&out, i == 0 ? "" : ", ", element(i));
    return out;
  }

  const PrintOptions& options_;
};

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {
    for (const Value& value : graph.values()) ++uses_[value.name];
  }

  std::string Print();

 private:
  bool HasUniqueName(ValueId v) const {
    return text::IsWord(*graph_.value(v).name) && uses_.at(graph_.value(v).name) == 1;
  }
  std::string Token(ValueId v) const {
    if (v == kNoValue) return "_";
    return HasUniqueName(v) ? StrCat("%", *graph_.value(v).name) : StrCat("%", v);
  }
  std::string Input(const GraphInput& input) const;
  std::string Definition(ValueId v) const;
  std::string Line(const Node& node) const;
  std::string Output(const GraphOutput& output) const;

  const Graph& graph_;
  const PrintOptions& options_;
  std::unordered_map<std::string, int> uses_;  // number of values with each name
};

std::string Printer::Input(const GraphInput& input) const {
  const Value& value = graph_.value(input.value);
  std::string out = StrCat(ToString(input.kind), " ", Token(input.value));
  const bool named = HasUniqueName(input.value);
  if (!named || input.name != *value.name) StrAppend(&out, " ", text::Quote(input.name));
  if (input.name != *value.name) StrAppend(&out, " as ", text::Quote(*value.name));
  return StrCat(out, ": ", ToString(value.type));
}

std::string Printer::Definition(ValueId v) const {
  const Value& value = graph_.value(v);
  const bool quoted = !HasUniqueName(v) && !value.name->empty();
  return StrCat(Token(v), quoted ? StrCat(" ", text::Quote(*value.name)) : "", ": ", ToString(value.type));
}

std::string Printer::Line(const Node& node) const {
  auto definition = [&](std::string* out, ValueId v) { *out += Definition(v); };
  auto token = [&](std::string* out, ValueId v) { *out += Token(v); };
  std::string out = StrCat(absl::StrJoin(node.outputs, ", ", definition), node.outputs.empty() ? "= " : " = ",
                           QuoteUnlessWord(node.op), "(", absl::StrJoin(node.inputs, ", ", token), ")");
  if (!node.attrs.empty()) StrAppend(&out, " ", onnxtrain::Print(node.attrs, options_));
  if (!node.source->empty()) StrAppend(&out, " @", text::Quote(*node.source));
  return out;
}

std::string Printer::Output(const GraphOutput& output) const {
  std::string out = Token(output.value);
  if (output.value == kNoValue || !HasUniqueName(output.value) || *graph_.value(output.value).name != output.name) {
    StrAppend(&out, " ", text::Quote(output.name));
  }
  if (output.into != kNoValue) StrAppend(&out, " into ", Token(output.into));
  return out;
}

std::string Printer::Print() {
  std::vector<std::string> head;
  std::string body;
  size_t next = 0;  // index of the next input
  // Prints the inputs defined before a value; ids count definitions in order.
  auto inputs_before = [&](ValueId v) {
    std::vector<std::string> lines;
    const auto& inputs = graph_.inputs();
    while (next < inputs.size() && inputs[next].value < v) lines.push_back(Input(inputs[next++]));
    return lines;
  };
  const auto end = static_cast<ValueId>(graph_.values().size());
  head =
      inputs_before(graph_.nodes().empty() || graph_.nodes()[0].outputs.empty() ? end : graph_.nodes()[0].outputs[0]);
  for (const Node& node : graph_.nodes()) {
    for (const auto& input : inputs_before(node.outputs.empty() ? 0 : node.outputs[0]))
      StrAppend(&body, "  ", input, "\n");
    StrAppend(&body, "  ", Line(node), "\n");
  }
  for (const auto& input : inputs_before(end)) StrAppend(&body, "  ", input, "\n");
  auto output = [&](std::string* out, const GraphOutput& o) { *out += Output(o); };
  const std::string outputs = absl::StrJoin(graph_.outputs(), ", ", output);
  return StrCat("graph(", WrapLines(head), ") {\n", body, "  return", outputs.empty() ? "" : " ", outputs, "\n}\n");
}

}  // namespace

std::string Print(const Graph& graph, const PrintOptions& options) { return Printer(graph, options).Print(); }

std::string Print(const Attrs& attrs, const PrintOptions& options) {
  if (attrs.empty()) return "";
  auto attr = [&](std::string* out, const auto& entry) {
    StrAppend(out, QuoteUnlessWord(entry.first), "=", std::visit(AttrPrinter(options), entry.second));
  };
  return StrCat("{", absl::StrJoin(attrs, ", ", attr), "}");
}

}  // namespace onnxtrain
