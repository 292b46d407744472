#include "frontend/passes/recognize.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "frontend/base/small_float.h"
#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/simplify/simplify.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

DType ToFloat64(DType t) { return IsFloat(t) ? DType::kFloat64 : t; }

// Copies the nodes between leaves and root to another graph, with other values for the leaves.
class Copy {
 public:
  Copy(const Graph& graph, Builder& b) : graph_(graph), b_(b) {}

  void Bind(ValueId leaf, Val v) { map_[leaf] = v; }
  // Returns the value bound to a leaf, or an invalid Val.
  Val Find(ValueId leaf) const {
    const auto it = map_.find(leaf);
    return it == map_.end() ? Val() : it->second;
  }

  // Copies the computation of `root`. Invalid if it depends on more than the leaves or fails for the small shapes.
  Val Of(ValueId root) {
    const std::set<ValueId> needed = Needed(root);
    for (ValueId v : needed) {
      if (!map_.contains(v)) map_[v] = Make(v);
      if (!map_[v].valid()) return Val();
    }
    return map_.at(root);
  }

  // Returns true if the constants were rounded to 16 bits, such as √2 to 1.4140625.
  bool HasRoundedNumbers() const { return rounded_ && !precise_; }

 private:
  void Classify(double number) {
    const auto x = static_cast<float>(number);
    const bool bf16 = BFloat16ToFloat(FloatToBFloat16(x)) == x, f16 = HalfToFloat(FloatToHalf(x)) == x;
    int exponent = 0;
    const double digits = std::frexp(number, &exponent) * 32;
    if (!bf16 && !f16) precise_ = true;
    if (digits != std::round(digits)) rounded_ = true;  // neither a power of two nor a small multiple of one
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

  // A Reshape that only regroups leading axes keeps the last two axes, which may be small.
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

// Draws random elements, with another magnitude in each row. `again` is true for all draws but the first.
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

// Accepts |x − y| ≤ relative·(|x| + floor).
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

// Returns false for leaves so large that an evaluation would take seconds.
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

// Evaluates match.root from match.leaves on their small shapes, by the graph and by match.form, in float64. Both get
// the same normal numbers, from a fixed seed and of several magnitudes (an epsilon only matters for small variances).
// Returns true if the results agree within 1e-5 relative (2e-3 for 16-bit graphs and for constants rounded to 16 bits)
// and `form` has the type of the root on the real leaves. Returns false if a form cannot be evaluated.
bool IsMatchProven(const Graph& graph, const Match& match) {
  if (!HasType(graph, match) || !IsSmallEnough(match)) return false;
  Graph both;
  Builder b(&both);
  Copy copy(graph, b);
  std::vector<Val> leaves;
  for (const auto& leaf : match.leaves) {
    const Val known = copy.Find(leaf.value);  // one value may be two leaves, such as keys and values
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

// Returns the rows with written forms, in table order.
const std::vector<const OpRow*>& WrittenOps() {
  static const auto* written = [] {
    auto* rows = new std::vector<const OpRow*>;
    std::ranges::copy_if(AllOps(), std::back_inserter(*rows),
                         [](const OpRow* row) { return !row->written_as.empty(); });
    return rows;
  }();
  return *written;
}

bool Allows(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->elementwise && node.op != "Cast" && node.op != "Where" && node.inputs.size() <= 2;
}

// Proposes every region of elementwise operators that contains the operator `needs` of a written form. Checks no more,
// since exporters vary the order of factors and sums; the proof decides.
Proposals Propose(const MatchedRegion& region) {
  const ValueId x = *region.only_leaf();
  const Graph& graph = region.pattern().graph();
  Proposals proposals;
  if (region.nodes().size() < 2 || !region.weights().empty() || graph.type(x) != graph.type(region.root()))
    return proposals;
  for (const OpRow* row : WrittenOps()) {
    for (const WrittenForm& form : row->written_as) {
      if (region.Count(form.needs) == 0) continue;
      auto build = [row, &form](Builder& b, std::span<const Val> leaves) {
        return b.Op(row->name, {leaves[0]}, form.attrs);
      };
      proposals.push_back({region.root(), row->name, {{x, {8, 32}}}, build, region.covers()});
    }
  }
  return proposals;
}

}  // namespace

std::span<const RegionPattern> FunctionPatterns() {
  static constexpr RegionPattern kPatterns[] = {{Allows, 14, Propose}};
  return kPatterns;
}

namespace {

// Returns −log p(label) by CrossEntropy. `axis`, the class axis, is 1 or the last one.
Val Form(Val x, Val index, int64_t axis) {
  Shape samples = index.shape();
  samples.erase(samples.begin() + axis);
  if (axis != 1) {
    samples = {NumElements(samples)};
    x = Reshape(x, {samples[0], x.dim(-1)});
  }
  const Attrs attrs = {{"ignore_index", std::numeric_limits<int64_t>::min()}};
  return x ? -Reshape(x.b().Op("CrossEntropy", {x, Reshape(index, samples)}, attrs), index.shape()) : Val();
}

}  // namespace

Proposals ProposeCrossEntropy(const Pattern& pattern, const Node& root) {
  if (root.op != "GatherElements" || !pattern.HasOneUse(root.inputs[0])) return {};
  const Node* softmax = pattern.Producer(root.inputs[0], "LogSoftmax");
  const int64_t axis = root.attrs.Int("axis");
  if (softmax == nullptr || softmax->attrs.Int("axis") != axis) return {};
  const ValueId x = softmax->inputs[0], index = root.inputs[1];
  Shape one = pattern.graph().type(x).shape;
  const auto rank = static_cast<int64_t>(one.size());
  one[axis] = 1;
  if (pattern.graph().type(index) != Type{DType::kInt64, one} || (axis != 1 && axis != rank - 1)) return {};
  Shape small(rank, 2), small_index = small;
  small[axis] = 5;
  small_index[axis] = 1;
  auto form = [axis](Builder&, std::span<const Val> v) { return Form(v[0], v[1], axis); };
  return {{root.outputs[0],
           "CrossEntropy",
           {{x, small}, {index, small_index, 5}},
           form,
           {root.outputs[0], softmax->outputs[0]}}};
}

namespace {

// Limits the proofs per graph. Real models have some hundred different regions; malicious files may have any number.
constexpr size_t kMaxRefuted = 4000;

class Recognizer {
 public:
  explicit Recognizer(const Graph& graph) : pattern_(graph) {
    for (auto patterns : {NormPatterns(), FunctionPatterns()}) {
      for (const RegionPattern& p : patterns) searches_.emplace_back(p, graph);
    }
  }

  // Visits nodes from the end of the graph, so that a larger pattern takes precedence over a smaller one inside it.
  std::map<ValueId, Match> Run() {
    const auto& nodes = pattern_.graph().nodes();
    for (size_t n = nodes.size(); n-- > 0;) {
      const Node& node = nodes[n];
      if (node.outputs.size() != 1 || covered_.contains(node.outputs[0]) || pattern_.IsWeight(node.outputs[0]))
        continue;
      Visit(node);
    }
    return std::move(matches_);
  }

 private:
  struct Search {
    Search(const RegionPattern& p, const Graph& graph) : pattern(p) {
      std::ranges::transform(graph.nodes(), std::back_inserter(allowed), p.allows);
    }

    const RegionPattern& pattern;
    std::vector<bool> allowed;               // by node
    std::set<std::vector<int32_t>> refuted;  // signatures of regions without a match
  };

  void Visit(const Node& node) {
    for (auto propose : {ProposeAttention, ProposeCrossEntropy}) {
      if (Take(propose(pattern_, node))) return;
    }
    for (Search& search : searches_) {
      if (Grow(&search, node.outputs[0])) return;
    }
  }

  bool Grow(Search* search, ValueId root) {
    const RegionPattern& p = search->pattern;
    MatchedRegion region(pattern_, root);
    while (region.CanEndWithin(p.max_nodes) && region.Grow(search->allowed)) {
      if (!region.only_leaf().has_value()) continue;
      std::vector<int32_t> signature = region.signature();
      if (search->refuted.contains(signature)) continue;
      if (search->refuted.size() >= kMaxRefuted) return false;
      if (Take(p.propose(region))) return true;
      search->refuted.insert(std::move(signature));
    }
    return false;
  }

  bool Take(Proposals proposals) {
    for (Match& match : proposals) {
      if (!IsMatchProven(pattern_.graph(), match)) continue;
      covered_.insert(match.covers.begin(), match.covers.end());
      matches_.emplace(match.root, std::move(match));
      return true;
    }
    return false;
  }

  Pattern pattern_;
  std::map<ValueId, Match> matches_;  // by root
  std::set<ValueId> covered_;
  std::vector<Search> searches_;
};

}  // namespace

absl::StatusOr<Graph> Recognize(const Graph& graph, std::map<std::string, int>* found) {
  const std::map<ValueId, Match> matches = Recognizer(graph).Run();
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    auto it = node.outputs.size() == 1 ? matches.find(node.outputs[0]) : matches.end();
    if (it == matches.end()) return std::nullopt;
    if (found != nullptr) ++(*found)[std::string(it->second.op)];
    std::vector<Val> leaves;
    for (const auto& leaf : it->second.leaves) leaves.push_back(r.Map(leaf.value));
    return std::vector<Val>{it->second.form(r.b(), leaves)};
  });
}

}  // namespace onnxtrain
