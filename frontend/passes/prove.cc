#include "frontend/passes/prove.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "frontend/base/half.h"
#include "frontend/base/strings.h"
#include "frontend/ops/interpret.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rule.h"

namespace onnxtrain {
namespace {

DType ToFloat64(DType t) { return IsFloat(t) ? DType::kFloat64 : t; }

// Copies the graph's form onto inputs that replace the leaves.
class Copy {
 public:
  Copy(const Graph& graph, Builder& b) : graph_(graph), b_(b) {}

  void Bind(ValueId leaf, Val v) { map_[leaf] = v; }
  // Returns what a leaf is bound to, or an invalid Val.
  Val Find(ValueId leaf) const {
    const auto it = map_.find(leaf);
    return it == map_.end() ? Val() : it->second;
  }

  // Returns an invalid Val if a value depends on more than the leaves or is undefined for the small shapes.
  Val Of(ValueId root) {
    const std::set<ValueId> needed = Needed(root);
    for (ValueId v : needed) {
      if (!map_.contains(v)) map_[v] = Make(v);
      if (!map_[v].valid()) return Val();
    }
    return map_.at(root);
  }

  // Returns whether the numbers were rounded to 16 bits: √2 as 1.4140625.
  bool HasRoundedNumbers() const { return rounded_ && !precise_; }

 private:
  void Classify(double number) {
    const auto x = static_cast<float>(number);
    const bool bf16 = BFloat16ToFloat(FloatToBFloat16(x)) == x, f16 = HalfToFloat(FloatToHalf(x)) == x;
    int exponent = 0;
    const double digits = std::frexp(number, &exponent) * 32;
    if (!bf16 && !f16) precise_ = true;
    if (digits != std::round(digits)) rounded_ = true;  // no power of two or small multiple of one
  }

  std::set<ValueId> Needed(ValueId root) const {
    std::set<ValueId> needed, open = {root};
    while (!open.empty()) {
      const ValueId v = *open.rbegin();
      open.erase(v);
      if (!needed.insert(v).second || map_.contains(v) || FindSplat(graph_, v).has_value()) continue;
      const Node* node = graph_.producer(v);
      for (ValueId input : node == nullptr ? ValueIds() : node->inputs) {
        if (input != kNoValue) open.insert(input);
      }
    }
    return needed;
  }

  Val Make(ValueId v) {
    if (const auto number = FindSplat(graph_, v)) {
      Classify(*number);
      return b_.Scalar(ToFloat64(graph_.type(v).dtype), *number);
    }
    const Node* node = graph_.producer(v);
    if (node == nullptr || node->outputs.size() != 1) return Val();
    if (const HostTensor* t = graph_.FindConstant(v)) return b_.Constant(t->CastTo(ToFloat64(t->dtype())));
    std::vector<Val> inputs;
    for (ValueId input : node->inputs) inputs.push_back(input == kNoValue ? Val() : map_.at(input));
    if (node->op == "Reshape") return MakeReshape(graph_.type(node->inputs[0]).shape, graph_.type(v).shape, inputs[0]);
    Attrs attrs = node->attrs;
    if (const std::string* to = attrs.Find<std::string>("to"); to != nullptr && IsFloat(*ParseDType(*to)))
      attrs.Set("to", "f64");
    return b_.Op(node->op, std::move(inputs), std::move(attrs));
  }

  // Where only leading axes are regrouped, the last two may be small.
  static Val MakeReshape(const Shape& from, Shape to, Val x) {
    const auto rank = std::ssize(from), to_rank = std::ssize(to);
    if (rank >= 2 && to_rank >= 2 && from[rank - 1] == to[to_rank - 1] && from[rank - 2] == to[to_rank - 2]) {
      to[to_rank - 1] = x.dim(-1);
      to[to_rank - 2] = x.dim(-2);
    }
    return Reshape(x, std::move(to));
  }

  const Graph& graph_;
  Builder& b_;
  std::map<ValueId, Val> map_;
  bool precise_ = false, rounded_ = false;
};

// Rows of several magnitudes. `again`: not the first time.
HostTensor Draw(const Type& type, const Match::Leaf& leaf, double scale, bool again, std::mt19937& random) {
  constexpr double kMagnitudes[] = {1, 1e-2, 3, 1e-4};
  std::normal_distribution<double> normal;
  HostTensor t(type);
  const int64_t row = type.shape.empty() ? 1 : std::max<int64_t>(1, type.shape.back());
  for (int64_t i = 0; i < t.size(); ++i) {
    if (again && leaf.first_row.has_value() && i < row) {
      t.Set(i, *leaf.first_row);
    } else if (leaf.first.has_value() && i % row == 0) {
      t.Set(i, *leaf.first ? 1 : 0);
    } else if (IsFloat(type.dtype) && !leaf.first.has_value()) {
      t.Set(i, normal(random) * kMagnitudes[i / row % 4] * scale);
    } else if (IsFloat(type.dtype)) {
      t.Set(i, static_cast<double>(random() % 2));
    } else {
      t.SetInt(i, static_cast<int64_t>(random() % leaf.below));
    }
  }
  return t;
}

// |x − y| may be relative·(|x| + floor).
struct Tolerance {
  double relative, floor;
};

bool ResultsAgree(const HostTensor& a, const HostTensor& b, Tolerance tolerance) {
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.At(i), y = b.At(i);
    const bool same = x == y || (std::isnan(x) && std::isnan(y));
    if (!same && !(std::abs(x - y) <= tolerance.relative * (std::abs(x) + tolerance.floor))) return false;
  }
  return true;
}

// Regions over larger leaves would take seconds to evaluate.
bool IsSmallEnough(const Match& match) {
  constexpr int64_t kMaxElements = int64_t{1} << 22;
  return std::ranges::all_of(match.leaves, [](const Match::Leaf& leaf) {
    return CheckShape(leaf.small).ok() && NumElements(leaf.small) <= kMaxElements;
  });
}

bool HasType(const Graph& graph, const Match& match) {
  Graph real;
  Builder b(&real);
  std::vector<Val> leaves;
  for (const auto& leaf : match.leaves)
    leaves.push_back(b.Input(InputKind::kFeed, StrCat(leaves.size()), graph.type(leaf.value)));
  const Val y = match.form(b, leaves);
  return b.status().ok() && y.valid() && y.type() == graph.type(match.root);
}

}  // namespace

bool IsMatchProven(const Graph& graph, const Match& match) {
  if (!HasType(graph, match) || !IsSmallEnough(match)) return false;
  Graph both;
  Builder b(&both);
  Copy copy(graph, b);
  std::vector<Val> leaves;
  for (const auto& leaf : match.leaves) {
    const Val known = copy.Find(leaf.value);  // keys that are also values
    leaves.push_back(known ? known
                           : b.Input(InputKind::kFeed, StrCat(leaves.size()),
                                     {ToFloat64(graph.type(leaf.value).dtype), leaf.small}));
    copy.Bind(leaf.value, leaves.back());
  }
  const Val before = copy.Of(match.root);
  const Val after = before ? match.form(b, leaves) : Val();
  if (!b.status().ok() || !after.valid() || before.type() != after.type()) return false;
  both.AddOutput("before", before.id());
  both.AddOutput("after", after.id());
  const bool half = DTypeSize(graph.type(match.root).dtype) < 4;
  const Tolerance tolerance{half || copy.HasRoundedNumbers() ? 2e-3 : 1e-5, copy.HasRoundedNumbers() ? 2e-2 : 1e-3};
  std::mt19937 random(20);
  for (double scale : {1.0, 1e-3}) {
    std::map<std::string, HostTensor> inputs;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (both.FindInput(StrCat(i)) == nullptr) continue;
      inputs.emplace(StrCat(i), Draw(leaves[i].type(), match.leaves[i], scale, scale != 1, random));
    }
    const auto results = Interpret(both, inputs);
    if (!results.ok() || !ResultsAgree((*results)[0], (*results)[1], tolerance)) return false;
  }
  return true;
}

}  // namespace onnxtrain
