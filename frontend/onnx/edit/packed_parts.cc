#include "frontend/onnx/edit/packed_parts.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/fused_projection.h"
#include "frontend/onnx/recover/module_path.h"

namespace onnxtrain {
namespace {

// The modules that an exporter packs into one product, by the last component of its name.
struct PackedNames {
  std::string_view producer, packed;
  std::vector<std::string_view> parts;
};

const std::vector<PackedNames>& GetPackedNames() {
  static const std::vector<PackedNames> names = {
      {"onnxruntime-genai", "qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"onnxruntime-genai", "gate_up_proj", {"gate_proj", "up_proj"}},
  };
  return names;
}

// The names in transformers of the modules whose product com.microsoft's Attention computes, by the module around them.
struct ProjectionNames {
  std::string_view within, ending;
  std::vector<std::string_view> parts;
};

const std::vector<std::string_view>& NameProjections(std::string_view module) {
  static const std::vector<ProjectionNames> names = {
      {"", ".attention.self", {"query", "key", "value"}},
      {"", ".attention.attention", {"query", "key", "value"}},
      {".transformer.layer.", ".attention", {"q_lin", "k_lin", "v_lin"}},
      {"", "", {"q_proj", "k_proj", "v_proj"}},
  };
  return std::ranges::find_if(names,
                              [&](const ProjectionNames& known) {
                                return module.find(known.within) != module.npos && module.ends_with(known.ending);
                              })
      ->parts;
}

// Returns a target for each part; the target itself if there are no widths.
std::vector<LowRankTarget> Divide(const LowRankTarget& target, std::string_view parent,
                                  const std::vector<std::string_view>& names, const std::vector<int64_t>& widths) {
  if (widths.empty()) return {target};
  std::vector<LowRankTarget> parts(widths.size(), target);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].module = StrCat(parent, parent.empty() ? "" : ".", names[i]);
    parts[i].packed = target.module;
    parts[i].outputs = widths[i];
    parts[i].outputs_before = begin;
    begin += widths[i];
    parts[i].outputs_after = target.outputs - begin;
  }
  return parts;
}

}  // namespace

PackedParts::PackedParts(const WeightTracer& tracer, const Readers& readers) : tracer_(tracer), readers_(readers) {}

std::vector<LowRankTarget> PackedParts::Split(const LowRankTarget& target) const {
  const ParsedNode* node = tracer_.Producer(target.nodes[0]);
  if (node != nullptr && HoldsProjection(*node)) {
    if (LastPart(target.weight) == "weight") return {target};  // one module, such as c_attn
    return Divide(target, target.module, NameProjections(target.module), ReadProjectionWidths(*node, target.outputs));
  }
  const std::vector<PackedNames>& all = GetPackedNames();
  const auto names = std::ranges::find_if(all, [&](const PackedNames& known) {
    return tracer_.model().producer.starts_with(known.producer) && LastPart(target.module) == known.packed;
  });
  if (names == all.end()) return {target};
  const std::vector<int64_t> widths = FindWidths(target.nodes[0], target.outputs, names->parts.size());
  return Divide(target, ParentOf(target.module), names->parts, widths);
}

// Returns the outputs of each of `count` parts of a value; empty if no reader gives them.
std::vector<int64_t> PackedParts::FindWidths(const std::string& value, int64_t outputs, size_t count) const {
  const auto readers = readers_.find(value);
  if (readers == readers_.end()) return {};
  for (const ParsedNode* reader : readers->second) {
    std::vector<int64_t> widths = ReadWidths(*reader, outputs, count);
    const auto positive = [](int64_t width) { return width > 0; };
    if (widths.size() == count && std::ranges::all_of(widths, positive) &&
        std::accumulate(widths.begin(), widths.end(), int64_t{0}) == outputs)
      return widths;
  }
  return {};
}

std::vector<int64_t> PackedParts::ReadWidths(const ParsedNode& reader, int64_t outputs, size_t count) const {
  const auto is_absent = [&](size_t input) { return reader.inputs.size() <= input || reader.inputs[input].empty(); };
  const auto parts = static_cast<int64_t>(count);
  if (IsOp(reader, {"Add"})) {
    const bool bias = std::ranges::any_of(reader.inputs, [&](const std::string& x) { return tracer_.FindTensor(x); });
    return bias ? FindWidths(reader.outputs[0], outputs, count) : std::vector<int64_t>();
  }
  if (IsOp(reader, {"Split"})) {
    if (reader.attrs.Int("axis") != -1) return {};
    if (!is_absent(1)) return tracer_.FindInts(reader, 1).value_or(std::vector<int64_t>());
    return reader.attrs.Has("split") ? reader.attrs.Ints("split") : std::vector<int64_t>(count, outputs / parts);
  }
  const bool packed = reader.domain == "com.microsoft" && reader.op_type == "GroupQueryAttention" && is_absent(1) &&
                      is_absent(2) && count == 3;
  const int64_t heads = reader.attrs.Int("num_heads"), kv_heads = reader.attrs.Int("kv_num_heads");
  if (!packed || heads < 1 || kv_heads < 1 || outputs % (heads + 2 * kv_heads) != 0) return {};
  const int64_t size = outputs / (heads + 2 * kv_heads);
  return {heads * size, kv_heads * size, kv_heads * size};
}

}  // namespace onnxtrain
