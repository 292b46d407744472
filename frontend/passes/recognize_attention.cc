// Matches scaled dot-product attention: MatMul(q, kᵀ), Softmax, Dropout, MatMul with v. Scores may be scaled before or
// after the product (also by a learned number per head), capped by Tanh, and masked by Add or Where before the Softmax
// or by renormalization after it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

// An operand of a product, whose last two axes may be transposed.
struct Operand {
  ValueId value = kNoValue;
  bool swapped = false;
};

// A step of masking: adds `value` or, if `choice` is set, replaces scores by `fill` depending on the condition `value`.
struct Term {
  ValueId value = kNoValue;
  bool choice = false;
  bool fill_where_true = false;
  double fill = 0;
  double factor = 1;
  Shape leading = {};  // axes of the scores that it is applied to, before the last two
};

// Returns the axes before the last two.
Shape LeadingAxes(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

struct Found {
  Operand q, k, v;
  double scale = 1;
  ValueId head_scale = kNoValue;  // an additional factor per head
  double softcap = 0;
  ValueId key = kNoValue;  // random key of the dropout of probabilities
  Attrs dropout;           // attributes of that dropout
  bool guarded = false;    // probabilities that are NaN become zeros
  bool regrouped = false;  // Reshapes merge or split leading axes
  Shape batch;             // the leading axes in the form that has most of them
  std::vector<Term> terms;
  std::set<ValueId> covers;
};

class AttentionMatcher {
 public:
  explicit AttentionMatcher(const Pattern& pattern) : pattern_(pattern), graph_(pattern.graph()) {}

  std::optional<Found> Match(const Node& root) {
    if (root.op != "MatMul" || root.attrs.Int("trans_a") != 0) return std::nullopt;
    found_.v = {root.inputs[1], root.attrs.Int("trans_b") != 0};
    const ValueId p = Regrouped(BeforeDropout(Regrouped(root.inputs[0])));
    const Node* softmax = Guarded(p);
    if (softmax == nullptr) softmax = Renormalized(p);
    if (softmax == nullptr) softmax = Inside(p, "Softmax");
    if (softmax == nullptr || softmax->attrs.Int("axis") != graph_.type(softmax->outputs[0]).rank() - 1)
      return std::nullopt;
    found_.covers.insert({root.outputs[0], softmax->outputs[0]});
    if (!Scores(softmax->inputs[0])) return std::nullopt;
    return std::move(found_);
  }

 private:
  // Returns the producer of a value with a single user. A value with other users would have to be computed twice, which
  // costs more than the fusion saves.
  const Node* Inside(ValueId v, std::string_view op) const {
    return pattern_.HasOneUse(v) ? pattern_.Producer(v, op) : nullptr;
  }

  // Skips Reshapes of leading axes. Masks broadcast to the form with the most leading axes.
  ValueId Regrouped(ValueId v) {
    const Shape& shape = graph_.type(v).shape;
    if (shape.size() > found_.batch.size() + 2) found_.batch = LeadingAxes(shape);
    const Node* node = Inside(v, "Reshape");
    const Shape from = node == nullptr ? Shape() : graph_.type(node->inputs[0]).shape;
    if (from.size() < 3 || shape.size() < 3 || !std::equal(from.end() - 2, from.end(), shape.end() - 2)) return v;
    found_.covers.insert(v);
    found_.regrouped = true;
    return Regrouped(node->inputs[0]);
  }

  ValueId BeforeDropout(ValueId v) {
    const Node* node = Inside(v, "Dropout");
    if (node == nullptr) return v;
    found_.covers.insert(v);
    found_.key = node->inputs[1];
    found_.dropout = node->attrs;
    return node->inputs[0];
  }

  // Matches Where(IsNaN(p), 0, p) with p = Softmax, which PyTorch writes to return zeros for a query that sees no key.
  const Node* Guarded(ValueId v) {
    const Node* where = Inside(v, "Where");
    const Node* is_nan = where == nullptr ? nullptr : Inside(where->inputs[0], "IsNaN");
    if (is_nan == nullptr || is_nan->inputs[0] != where->inputs[2] || pattern_.Splat(where->inputs[1]) != 0)
      return nullptr;
    const ValueId p = where->inputs[2];
    if (pattern_.users(p).size() != 2 || pattern_.IsOutput(p)) return nullptr;
    found_.covers.insert({v, is_nan->outputs[0]});
    found_.guarded = true;
    return pattern_.Producer(p, "Softmax");
  }

  // Matches p·m/Σp·m (0 if the sum is 0) with p = Softmax and m of 0 and 1, the mask that jax2onnx writes.
  const Node* Renormalized(ValueId v) {
    const Node* result = Inside(v, "Where");
    const Node* ratio = result == nullptr ? nullptr : Inside(result->inputs[1], "Div");
    const Node* divisor = ratio == nullptr ? nullptr : Inside(ratio->inputs[1], "Where");
    if (divisor == nullptr || divisor->inputs[0] != result->inputs[0]) return nullptr;
    const Node* positive = pattern_.Producer(result->inputs[0], "Greater");
    const Node* sum = pattern_.Producer(divisor->inputs[1], "ReduceSum");
    const Node* masked = pattern_.Producer(ratio->inputs[0], "Mul");
    if (positive == nullptr || sum == nullptr || masked == nullptr || sum->inputs[0] != masked->outputs[0] ||
        positive->inputs[0] != sum->outputs[0])
      return nullptr;
    for (const Node* node : {positive, sum, masked}) {
      if (pattern_.users(node->outputs[0]).size() != 2 || pattern_.IsOutput(node->outputs[0])) return nullptr;
    }
    for (size_t i : {0, 1}) {
      const Node* softmax = Inside(masked->inputs[i], "Softmax");
      if (softmax == nullptr || !IsBinary(masked->inputs[1 - i])) continue;
      constexpr double kHidden = -std::numeric_limits<double>::infinity();
      found_.terms.push_back({.value = BeforeCastFromBool(masked->inputs[1 - i]),
                              .choice = true,
                              .fill = kHidden,
                              .leading = LeadingAxes(graph_.type(masked->outputs[0]).shape)});
      found_.guarded = true;
      for (const Node* node : {result, ratio, divisor, positive, sum, masked}) found_.covers.insert(node->outputs[0]);
      return softmax;
    }
    return nullptr;
  }

  ValueId BeforeCastFromBool(ValueId v) const {
    const ValueId condition = pattern_.BeforeCast(v, DType::kBool, graph_.type(v).dtype);
    return condition != kNoValue ? condition : v;
  }

  // Returns true if every element is known to be 0 or 1.
  bool IsBinary(ValueId v) const {
    if (graph_.type(BeforeCastFromBool(v)).dtype == DType::kBool) return true;
    const HostTensor* constant = graph_.FindConstant(v);
    if (constant == nullptr) return false;
    int64_t i = 0;
    while (i < constant->size() && (constant->At(i) == 0 || constant->At(i) == 1)) ++i;
    return i == constant->size();
  }

  // If v is a scalar times another value, multiplies `factor` by the scalar and returns that value; else v.
  ValueId Unscaled(ValueId v, double* factor) {
    for (std::string_view op : {"Mul", "Div"}) {
      const Node* node = Inside(v, op);
      if (node == nullptr) continue;
      for (size_t i : {0, 1}) {
        const auto c = pattern_.Splat(node->inputs[1 - i]);
        if (!c.has_value() || *c == 0 || (op == "Div" && i == 1) || graph_.type(node->inputs[i]) != graph_.type(v))
          continue;
        found_.covers.insert(v);
        *factor *= op == "Mul" ? *c : 1 / *c;
        return Unscaled(node->inputs[i], factor);
      }
    }
    return v;
  }

  // Matches the operand of the Softmax, back to the product of q and k.
  bool Scores(ValueId v) {
    v = Unscaled(Regrouped(Unscaled(v, &found_.scale)), &found_.scale);
    const bool done = Product(v) || Capped(v) || Sum(v) || Choice(v);
    if (done) found_.covers.insert(v);
    return done;
  }

  // Matches products times a number per head, as in cosine attention.
  bool ScaledProduct(ValueId v) {
    const Node* node = Inside(v, "Mul");
    if (node == nullptr) return false;
    for (size_t i : {0, 1}) {
      const ValueId scale = node->inputs[1 - i];
      if (!IsPerHead(graph_, scale) || graph_.type(node->inputs[i]) != graph_.type(v)) continue;
      const Found before = found_;
      const ValueId product = Unscaled(node->inputs[i], &found_.scale);
      found_.head_scale = scale;
      found_.covers.insert({v, product});
      if (PlainProduct(product)) return true;
      found_ = before;
    }
    return false;
  }

  bool Product(ValueId v) { return PlainProduct(v) || ScaledProduct(v); }

  bool PlainProduct(ValueId v) {
    const Node* node = Inside(v, "MatMul");
    if (node == nullptr) return false;
    found_.q = {Unscaled(node->inputs[0], &found_.scale), node->attrs.Int("trans_a") != 0};
    found_.k = {Unscaled(node->inputs[1], &found_.scale), node->attrs.Int("trans_b") == 0};
    return graph_.type(found_.q.value).rank() >= 3;
  }

  // Matches tanh(products/cap) after the factor cap has been matched. Masks inside the cap are not supported.
  bool Capped(ValueId v) {
    const Node* node = Inside(v, "Tanh");
    if (node == nullptr) return false;
    found_.softcap = found_.scale;
    v = Unscaled(Regrouped(Unscaled(node->inputs[0], &found_.scale)), &found_.scale);
    found_.covers.insert(v);
    return Product(v);
  }

  bool Sum(ValueId v) {
    const Node* node = Inside(v, "Add");
    if (node == nullptr) return false;
    for (size_t i : {0, 1}) {
      const Found before = found_;
      found_.terms.push_back(
          {.value = node->inputs[1 - i], .factor = found_.scale, .leading = LeadingAxes(graph_.type(v).shape)});
      if (graph_.type(node->inputs[i]) == graph_.type(v) && Scores(node->inputs[i])) return true;
      found_ = before;
    }
    return false;
  }

  // The operator Where replaces scores by a fill value, but Attention adds it. For a fully masked row, both give equal
  // weights only if the fill is so large that the sum rounds to it in float32, as for this value. ZeroHiddenQueries
  // makes the gradients of such rows equal, too.
  static constexpr double kMaxFill = -1e9;

  bool Choice(ValueId v) {
    const Node* node = Inside(v, "Where");
    if (node == nullptr) return false;
    for (size_t i : {1, 2}) {  // the operand of Where that holds the scores
      const auto fill = pattern_.Splat(node->inputs[3 - i]);
      if (!fill.has_value() || *fill > kMaxFill || graph_.type(node->inputs[i]) != graph_.type(v)) continue;
      const Found before = found_;
      found_.terms.push_back({node->inputs[0], true, i == 2, *fill, found_.scale, LeadingAxes(graph_.type(v).shape)});
      if (Scores(node->inputs[i])) return true;
      found_ = before;
    }
    return false;
  }

  const Pattern& pattern_;
  const Graph& graph_;
  Found found_;
};

Val Unswapped(Val v, bool swapped) {
  if (!swapped) return v;
  std::vector<int64_t> perm(v.rank());
  for (int i = 0; i < v.rank(); ++i) perm[i] = i;
  std::swap(perm[v.rank() - 2], perm[v.rank() - 1]);
  return Transpose(v, perm);
}

// Applies a term to the mask `inside` (invalid: zeros) as the graph applies it to the scores.
Val ApplyTerm(Builder& b, const Term& term, Val leaf, Val inside, DType dtype) {
  if (!term.choice) {
    const Val addend = term.factor == 1 ? leaf : leaf * term.factor;
    return inside ? inside + addend : addend;
  }
  const Val fill = b.Scalar(dtype, term.fill * term.factor);
  if (!inside) inside = b.Scalar(dtype, 0);
  if (leaf.dtype() != DType::kBool) leaf = Cast(leaf, DType::kBool);
  return term.fill_where_true ? Where(leaf, fill, inside) : Where(leaf, inside, fill);
}

// Returns true if a mask is the same for all leading axes of scores in another form, or has all of them.
bool CanRegroup(const Shape& mask, const Shape& leading) {
  if (mask.size() <= 2) return true;
  const Shape own = LeadingAxes(mask);
  return own == leading || NumElements(own) == 1;
}

// Returns a mask of scores with these leading axes for scores with the leading axes `batch`.
Val Regroup(Val mask, const Shape& leading, const Shape& batch) {
  if (leading == batch || mask.rank() <= 2) return mask;
  Shape shape = NumElements(LeadingAxes(mask.shape())) == 1 ? Shape() : batch;
  shape.insert(shape.end(), mask.shape().end() - 2, mask.shape().end());
  return Reshape(mask, std::move(shape));
}

// Returns the masked scores that the graph computes from scores of 0; invalid if there are no terms.
Val MakeMask(Builder& b, const Found& found, std::span<const Val> leaves, DType dtype, bool addends) {
  Val mask;
  for (size_t i = found.terms.size(); i-- > 0;) {  // from the innermost
    const Term& term = found.terms[i];
    if (!addends && !term.choice) continue;
    const Val leaf = found.regrouped ? Regroup(leaves[3 + i], term.leading, found.batch) : leaves[3 + i];
    mask = ApplyTerm(b, term, leaf, mask, dtype);
  }
  return mask;
}

// Replaces fully masked queries by 0. In the graph, Where blocks the gradient of their scores, but Attention would
// propagate one through its softmax. With queries of 0, the probabilities are unchanged, and these rows contribute no
// gradient to queries and keys.
Val ZeroHiddenQueries(Builder& b, const Found& found, std::span<const Val> leaves, Val q) {
  const bool finite = std::ranges::any_of(found.terms, [](const Term& t) { return t.choice && std::isfinite(t.fill); });
  if (!finite) return q;  // Attention has no gradient in rows of -inf
  const Val fills = MakeMask(b, found, leaves, q.dtype(), /*addends=*/false);
  if (!fills) return q;
  const Val seen = Equal(fills.rank() == 0 ? fills : ReduceMax(fills, {-1}), b.Scalar(q.dtype(), 0));
  return Where(seen, q, b.Scalar(q.dtype(), 0));
}

Val WithBatch(Val x, const Shape& batch) {
  if (!x) return x;
  Shape shape = batch;
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  return Reshape(x, std::move(shape));
}

// Expands keys or values that several heads of queries share.
Val ForHeadsOf(Val q, Val x) {
  Shape shape(q.shape().begin(), q.shape().end() - 2);
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  return x.rank() == q.rank() && x.shape() != shape ? Expand(x, std::move(shape)) : x;
}

Val Form(Builder& b, const Found& found, std::span<const Val> leaves) {
  Val q = Unswapped(leaves[0], found.q.swapped), k = Unswapped(leaves[1], found.k.swapped);
  Val v = Unswapped(leaves[2], found.v.swapped);
  const Shape outer(leaves[2].shape().begin(), leaves[2].shape().end() - 2);
  if (found.head_scale != kNoValue) q = q * leaves[3 + found.terms.size()];
  if (found.regrouped) {
    for (Val* x : {&q, &k, &v}) *x = WithBatch(*x, found.batch);
  } else {
    for (Val* x : {&k, &v}) *x = ForHeadsOf(q, *x);
  }
  q = ZeroHiddenQueries(b, found, leaves, q);
  const Val mask = MakeMask(b, found, leaves, q.dtype(), /*addends=*/true);
  const Val key = found.key == kNoValue ? Val() : leaves.back();
  Attrs attrs = found.dropout;
  attrs.Set("scale", found.scale);
  attrs.Set("softcap", found.softcap);
  const Val y = b.Op("Attention", {q, k, v, mask, key}, std::move(attrs));
  return found.regrouped ? WithBatch(y, outer) : y;
}

Shape Small(const Shape& batch, int64_t rows, int64_t columns, bool swapped) {
  Shape shape = batch;
  shape.push_back(swapped ? columns : rows);
  shape.push_back(swapped ? rows : columns);
  return shape;
}

// Replaces the extents of a mask by those of the small scores, except for extents of 1, which broadcast.
Shape SmallMask(const Shape& mask, const Shape& scores) {
  Shape shape = mask;
  for (size_t i = 0; i < mask.size() && i < scores.size(); ++i) {
    int64_t& extent = shape[shape.size() - 1 - i];
    if (extent != 1) extent = scores[scores.size() - 1 - i];
  }
  return shape;
}

constexpr int64_t kMaxRegrouped = 1 << 12;  // limit for the product of leading extents, which a proof cannot shrink

int64_t NumLeading(const Graph& graph, ValueId v) {
  const Shape& shape = graph.type(v).shape;
  return NumElements(Shape(shape.begin(), shape.end() - 2));
}

// Returns the element of the mask operand that hides a key.
double HiddenRow(const Term& term) {
  if (term.choice) return term.fill_where_true ? 1 : 0;
  return term.factor > 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

}  // namespace

Proposals ProposeAttention(const Pattern& pattern, const Node& root) {
  const auto found = AttentionMatcher(pattern).Match(root);
  if (!found.has_value()) return {};
  const Graph& graph = pattern.graph();
  auto extent = [&](const Operand& o, int axis) {  // number of rows (0) or columns (1)
    const Shape& shape = graph.type(o.value).shape;
    return shape[shape.size() - 2 + (o.swapped ? 1 - axis : axis)];
  };
  Shape batch(graph.type(found->q.value).shape.begin(), graph.type(found->q.value).shape.end() - 2);
  if (found->regrouped && NumElements(batch) > kMaxRegrouped) return {};
  const auto fits = [&](const Term& t) {
    return !found->regrouped || t.leading == found->batch || CanRegroup(graph.type(t.value).shape, t.leading);
  };
  if (!std::ranges::all_of(found->terms, fits)) return {};
  for (int64_t& n : batch) n = found->regrouped ? n : std::min<int64_t>(n, 2);
  const ValueId q = found->q.value, k = found->k.value, v = found->v.value;
  // If rows of scores are short, expanding shared keys and values would take more memory than the scores.
  const bool repeats = NumLeading(graph, k) < NumLeading(graph, q) || NumLeading(graph, v) < NumLeading(graph, q);
  if (repeats && 2 * extent(found->q, 0) <= extent(found->q, 1) + extent(found->v, 1)) return {};
  const int64_t t = std::min<int64_t>(extent(found->k, 0), 5), d = std::min<int64_t>(extent(found->q, 1), 4);
  const int64_t s = q == k || q == v ? t : std::min<int64_t>(extent(found->q, 0), 3);
  const int64_t e = v == q || v == k ? d : std::min<int64_t>(extent(found->v, 1), 3);
  auto leading = [&](ValueId x) {  // the leading axes of the queries, with extent 1 where they share x
    const Shape& shape = graph.type(x).shape;
    Shape own = batch;
    for (size_t i = 0; !found->regrouped && shape.size() == batch.size() + 2 && i < batch.size(); ++i)
      own[i] = std::min(own[i], shape[i]);
    return own;
  };
  std::vector<Match::Leaf> leaves = {{q, Small(batch, s, d, found->q.swapped)},
                                     {k, Small(leading(k), t, d, found->k.swapped)},
                                     {v, Small(leading(v), t, e, found->v.swapped)}};
  for (const Term& term : found->terms) {
    const Shape scores = Small(found->regrouped ? term.leading : batch, s, t, false);
    leaves.push_back({.value = term.value, .small = SmallMask(graph.type(term.value).shape, scores)});
    if (term.choice) leaves.back().first = !term.fill_where_true;
    // A row of -inf without guard gives NaN and cannot be compared.
    if (found->guarded || (term.choice && std::isfinite(term.fill))) leaves.back().first_row = HiddenRow(term);
  }
  if (found->head_scale != kNoValue)
    leaves.push_back({found->head_scale, SmallMask(graph.type(found->head_scale).shape, Small(batch, s, t, false))});
  if (found->key != kNoValue) leaves.push_back({found->key, graph.type(found->key).shape});
  auto form = [f = *found](Builder& b, std::span<const Val> leaves) { return Form(b, f, leaves); };
  return {{root.outputs[0], "Attention", std::move(leaves), form, found->covers}};
}

}  // namespace onnxtrain
