#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

constexpr int kMaxCodes = 6;  // the buffers of the kernel

int64_t KindOf(const Node& node) {
  return static_cast<int64_t>(node.attrs.Int("signed") != 0 ? CodeKind::kSigned : CodeKind::kUnsigned);
}

class Fuser {
 public:
  Fuser(const Pattern& pattern, Rewriter& r, const Node& node)
      : pattern_(pattern), graph_(pattern.graph()), r_(r), node_(node), shape_(graph_.type(node.outputs[0]).shape) {}

  std::optional<std::vector<Val>> Fuse() {
    auto program = FromAttrs(node_.attrs, node_.inputs.size());
    if (!program.ok() || !program->sums.empty() || NumElements(shape_) <= 1 || FindRotatedRows(*program) != 0)
      return std::nullopt;
    int coded = 0;
    for (const ValueId v : node_.inputs) {
      const Node* decode = FindDecode(v);
      coded += decode != nullptr;
      if (decode == nullptr && !IsPlain(v)) return std::nullopt;
      AddInput(v, decode);
    }
    const std::vector<size_t> order = OrderResults();
    for (const size_t o : order) coded += FindEncode(node_.outputs[o]) != nullptr;
    if (coded == 0 || coded > kMaxCodes) return std::nullopt;
    return Emit(*std::move(program), order);
  }

 private:
  const Node* FindDecode(ValueId v) const {
    const Node* decode = pattern_.Producer(v, "DequantizeDynamic");
    const int32_t self = graph_.value(node_.outputs[0]).node;
    const bool sole = std::ranges::all_of(pattern_.users(v), [&](int32_t n) { return n == self; });
    return decode != nullptr && sole && !pattern_.IsOutput(v) && IsFull(v) ? decode : nullptr;
  }

  const Node* FindEncode(ValueId v) const { return IsFull(v) ? pattern_.SoleUser(v, "QuantizeDynamic") : nullptr; }

  bool IsFull(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.dtype == DType::kFloat32 && type.shape == shape_ && type.layout == Layout::kRowMajor;
  }

  bool IsPlain(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.elements() == 1 || (type.shape == shape_ && type.layout == Layout::kRowMajor);
  }

  void AddInput(ValueId v, const Node* decode) {
    loads_.push_back(decode == nullptr ? 0 : KindOf(*decode));
    if (decode == nullptr) {
      operands_.push_back(r_.Map(v));
    } else {
      for (const ValueId part : decode->inputs) operands_.push_back(r_.Map(part));
    }
  }

  // Results that are not encoded come first: the first output may overwrite an input.
  std::vector<size_t> OrderResults() const {
    std::vector<size_t> order(node_.outputs.size());
    for (size_t o = 0; o < order.size(); ++o) order[o] = o;
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t o) { return FindEncode(node_.outputs[o]) == nullptr; });
    return order;
  }

  std::vector<Val> Emit(FusedProgram program, const std::vector<size_t>& order) {
    const std::vector<int> results = std::exchange(program.results, {});
    std::vector<int64_t> stores;
    int64_t outputs = 0;
    for (const size_t o : order) {
      const Node* encode = FindEncode(node_.outputs[o]);
      program.results.push_back(results[o]);
      stores.push_back(encode == nullptr ? 0 : KindOf(*encode));
      outputs += encode == nullptr ? 1 : 2;
    }
    Attrs attrs = ToAttrs(program);
    attrs.Set("num_outputs", outputs);
    attrs.Set("loads", loads_);
    attrs.Set("stores", stores);
    const std::vector<Val> values = r_.b().Ops("cpu.FusedCodes", operands_, std::move(attrs));
    std::vector<Val> mapped(node_.outputs.size());
    if (std::ssize(values) != outputs) return mapped;  // the builder has the error
    size_t at = 0;
    for (const size_t o : order) {
      const Node* encode = FindEncode(node_.outputs[o]);
      if (encode == nullptr) {
        mapped[o] = values[at++];
        continue;
      }
      for (const ValueId part : encode->outputs) {
        if (part != kNoValue) r_.Set(part, values[at]);
        ++at;
      }
    }
    return mapped;
  }

  const Pattern& pattern_;
  const Graph& graph_;
  Rewriter& r_;
  const Node& node_;
  const Shape shape_;
  std::vector<Val> operands_;
  std::vector<int64_t> loads_;
};

}  // namespace

absl::StatusOr<Graph> FuseCodes(const Graph& graph, ValueMap* values) {
  const Pattern pattern(graph);
  const auto fuse = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.op != "cpu.Fused") return std::nullopt;
    return Fuser(pattern, r, node).Fuse();
  };
  return Rewrite(graph, fuse, nullptr, values);
}

}  // namespace onnxtrain::cpu
