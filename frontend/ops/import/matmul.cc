#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Axis labels, one character per axis. The axes of an ellipsis are named '0', '1', … from the right, so that operands
// align.
using Labels = std::string;

struct Term {
  Val x;
  Labels labels;
};

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
  bool has_output = false;
};

bool Has(const Labels& labels, char c) { return labels.find(c) != Labels::npos; }

int64_t Place(const Labels& labels, char c) { return static_cast<int64_t>(labels.find(c)); }

Labels Filter(const Labels& labels, const Labels& other, bool in) {
  Labels result;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(result), [&](char c) { return Has(other, c) == in; });
  return result;
}

// Parses an equation. Stores "..." as one '.'.
absl::StatusOr<Equation> Parse(const std::string& text) {
  Equation e;
  e.inputs.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    Labels& term = e.has_output ? e.output : e.inputs.back();
    if (c == ' ') continue;
    if (std::isalpha(static_cast<unsigned char>(c))) {
      term += c;
    } else if (c == '.' && text.compare(i, 3, "...") == 0 && !Has(term, '.')) {
      term += '.';
      i += 2;
    } else if (c == ',' && !e.has_output) {
      e.inputs.emplace_back();
    } else if (c == '-' && text.compare(i, 2, "->") == 0 && !e.has_output) {
      e.has_output = true;
      ++i;
    } else {
      return Invalid("cannot read equation '", text, "' at character ", i);
    }
  }
  return e;
}

// Replaces '.' by `count` descending digits, of which the last one is '0'.
Labels Unfold(const Labels& labels, int count) {
  const size_t at = labels.find('.');
  if (at == Labels::npos) return labels;
  Labels digits;
  for (int i = count; i-- > 0;) digits += static_cast<char>('0' + i);
  return labels.substr(0, at) + digits + labels.substr(at + 1);
}

Term ReorderNodes(const Term& t, const Labels& order) {
  std::vector<int64_t> perm;
  for (char c : order) perm.push_back(Place(t.labels, c));
  return {Transpose(t.x, std::move(perm)), order};
}

// Takes the diagonal of axes with the same letter: every (d+1)-th element after merging the two axes.
Term Diagonals(Term t) {
  for (size_t i = 0; i < t.labels.size() && t.x.valid(); ++i) {
    const size_t j = t.labels.find(t.labels[i], i + 1);
    if (j == Labels::npos) continue;
    const int64_t d = t.x.dim(static_cast<int>(i));
    std::vector<int64_t> perm;
    for (size_t k = 0; k < t.labels.size(); ++k) {
      if (k != i && k != j) perm.push_back(static_cast<int64_t>(k));
    }
    perm.push_back(static_cast<int64_t>(i));
    perm.push_back(static_cast<int64_t>(j));
    Val x = Transpose(t.x, std::move(perm));
    Shape merged(x.shape().begin(), x.shape().end() - 2);
    merged.push_back(d * d);
    std::vector<int64_t> starts(merged.size(), 0), steps(merged.size(), 1);
    Shape sizes = merged;
    sizes.back() = d;
    steps.back() = d > 1 ? d + 1 : 1;
    x = Reshape(x, std::move(merged));
    if (!x.valid()) return {};
    t.x = x.b().Op("Slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
    const char c = t.labels[i];
    t.labels.erase(j, 1);
    t.labels.erase(i, 1);
    t.labels += c;
    i = static_cast<size_t>(-1);  // restarts
  }
  return t;
}

// Sums over labels that are not in `needed`.
Term Summed(Term t, const Labels& needed) {
  std::vector<int64_t> axes;
  for (char c : Filter(t.labels, needed, false)) axes.push_back(Place(t.labels, c));
  if (axes.empty()) return t;
  return {ReduceSum(t.x, std::move(axes), false), Filter(t.labels, needed, true)};
}

int64_t FindExtent(const Term& t, char c) { return t.x.dim(static_cast<int>(Place(t.labels, c))); }

// Expands extents of 1 to the extents of the other operand.
Term Widened(Term t, const Term& other) {
  Shape shape = t.x.shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1 && Has(other.labels, t.labels[i])) shape[i] = FindExtent(other, t.labels[i]);
  }
  return {Expand(t.x, std::move(shape)), t.labels};
}

int64_t Extent(const Term& t, const Labels& labels) {
  int64_t n = 1;
  for (char c : labels) n *= FindExtent(t, c);
  return n;
}

// Multiplies two operands. Contracts labels that both have and that are not in `needed`.
Term Contract(Term a, Term b, const Labels& needed) {
  a = Summed(std::move(a), needed + b.labels);
  b = Summed(std::move(b), needed + a.labels);
  a = Widened(std::move(a), b);
  b = Widened(std::move(b), a);
  const Labels shared = Filter(a.labels, b.labels, true);
  const Labels batch = Filter(shared, needed, true), inner = Filter(shared, needed, false);
  const Labels rows = Filter(a.labels, b.labels, false), columns = Filter(b.labels, a.labels, false);
  Shape shape;
  for (char c : batch + rows) shape.push_back(FindExtent(a, c));
  for (char c : columns) shape.push_back(FindExtent(b, c));
  const int64_t n = Extent(a, batch), m = Extent(a, rows), k = Extent(a, inner), p = Extent(b, columns);
  const Val left = Reshape(ReorderNodes(a, batch + rows + inner).x, {n, m, k});
  const Val right = Reshape(ReorderNodes(b, batch + inner + columns).x, {n, k, p});
  // Without an inner sum this is an elementwise product.
  const Val product = inner.empty() ? left * right : MatMul(left, right);
  return {Reshape(product, std::move(shape)), batch + rows + columns};
}

// Returns the implicit output of an equation: the ellipsis, then all letters that occur once, in alphabetical order.
Labels ImplicitOutput(const std::vector<Labels>& inputs) {
  Labels all, output;
  for (const Labels& labels : inputs) all += labels;
  std::sort(all.begin(), all.end());
  for (char c : all) {
    if (c == '.' ? !Has(output, c) : std::count(all.begin(), all.end(), c) == 1) output += c;
  }
  return output;  // '.' sorts before the letters
}

absl::StatusOr<std::vector<Term>> Terms(Equation* e, const std::vector<Val>& operands) {
  if (e->inputs.size() != operands.size()) return Invalid(e->inputs.size(), " terms for ", operands.size(), " inputs");
  if (!e->has_output) e->output = ImplicitOutput(e->inputs);
  int widest = 0;
  std::vector<Term> terms;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool dots = Has(e->inputs[i], '.');
    const int rest = operands[i].rank() - static_cast<int>(e->inputs[i].size()) + dots;
    if (rest < 0 || (rest > 0 && !dots)) {
      return Invalid("term '", e->inputs[i], "' does not fit input ", i, " of type ", ToString(operands[i].type()));
    }
    if (rest > 10) return Invalid("an ellipsis of ", rest, " axes");
    widest = std::max(widest, rest);
    terms.push_back({operands[i], Unfold(e->inputs[i], rest)});
  }
  e->output = Unfold(e->output, widest);
  return terms;
}

// Requires equal extents (or 1) for each label, and an output of existing labels without repeats.
absl::Status CheckLabels(const std::vector<Term>& terms, const Labels& output) {
  std::map<char, int64_t> extents;
  for (const Term& t : terms) {
    std::map<char, int64_t> own;
    for (size_t i = 0; i < t.labels.size(); ++i) {
      const int64_t d = t.x.shape()[i];
      if (!own.emplace(t.labels[i], d).second && own[t.labels[i]] != d)
        return Invalid("axes '", Labels(1, t.labels[i]), "' differ");
      int64_t& known = extents.emplace(t.labels[i], d).first->second;
      if (known != d && known != 1 && d != 1)
        return Invalid("axes '", Labels(1, t.labels[i]), "' are of extents ", known, " and ", d);
      if (d != 1) known = d;
    }
  }
  for (char c : output) {
    if (extents.count(c) == 0) return Invalid("'", Labels(1, c), "' of the output is on no input");
    if (std::count(output.begin(), output.end(), c) > 1) return Invalid("'", Labels(1, c), "' is twice on the output");
  }
  return absl::OkStatus();
}

// Computes numpy's einsum, such as "ij,jk->ik", with implicit outputs, ellipses and repeated letters. Multiplies
// operands from left to right, each pair as one (batched) product.
absl::StatusOr<Val> Einsum(const std::string& equation, const std::vector<Val>& operands) {
  ASSIGN_OR_RETURN(Equation e, Parse(equation));
  ASSIGN_OR_RETURN(std::vector<Term> terms, Terms(&e, operands));
  RETURN_IF_ERROR(CheckLabels(terms, e.output));
  for (Term& t : terms) t = Diagonals(std::move(t));
  Term result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels needed = e.output;
    for (size_t j = i + 1; j < terms.size(); ++j) needed += terms[j].labels;
    if (!result.x.valid() || !terms[i].x.valid()) return Val();
    result = Contract(std::move(result), terms[i], needed);
  }
  result = Summed(std::move(result), e.output);
  return result.x.valid() ? ReorderNodes(result, e.output).x : Val();
}

// Multiplies matrices. Floats of a stored matrix are not formed.
Val Multiply(Val a, Val b, bool trans_a, bool trans_b) {
  bool transposed = trans_b;
  const auto stored =
      trans_a || a.rank() < 2 || a.dtype() != b.dtype() ? std::nullopt : FindDequantized(b, &transposed);
  return stored ? MatMulDequantized(a, *stored, transposed) : MatMul(a, b, trans_a, trans_b);
}

Val Scaled(Val x, double factor) { return factor == 1 ? x : x * factor; }

// Computes numpy's matmul: a left vector becomes a row, a right vector a column, and the added axis is removed from the
// result.
ImportOr Product(Val a, Val b, bool trans_a, bool trans_b, double alpha) {
  if (a.rank() == 0 || b.rank() == 0) return Invalid("a product of ", ToString(a.type()), " and ", ToString(b.type()));
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = Reshape(a, {1, a.dim(0)});
  if (column) b = Reshape(b, {b.dim(0), 1});
  // Transposing a vector has no effect.
  Val y = Scaled(Multiply(a, b, trans_a && !row, trans_b && !column), alpha);
  if (!y.valid() || !(row || column)) return One(y);
  Shape shape(y.shape().begin(), y.shape().end() - 2);
  if (!row) shape.push_back(y.dim(-2));
  if (!column) shape.push_back(y.dim(-1));
  return One(Reshape(y, std::move(shape)));
}

ImportOr ImportMatMul(ImportContext& c) { return Product(c.in(0), c.in(1), false, false, 1); }

// Transposes [m, batch…, k], the layout with transBatch, to [batch…, m, k].
Val BatchFirst(Val x, bool transposed) {
  if (!transposed || x.rank() < 3) return x;
  std::vector<int64_t> perm(x.rank());
  std::iota(perm.begin(), perm.end(), 1);
  perm[x.rank() - 2] = 0;
  perm[x.rank() - 1] = x.rank() - 1;
  return Transpose(x, std::move(perm));
}

ImportOr ImportFusedMatMul(ImportContext& c) {
  const Attrs& attrs = c.attrs();
  const Val a = BatchFirst(c.in(0), attrs.Int("transBatchA")), b = BatchFirst(c.in(1), attrs.Int("transBatchB"));
  return Product(a, b, attrs.Int("transA"), attrs.Int("transB"), attrs.Float("alpha", 1.0));
}

// Imports α·A′B′ + β·C.
ImportOr ImportGemm(ImportContext& c) {
  const Val a = c.in(0), b = c.in(1);
  if (a.rank() != 2 || b.rank() != 2) return Invalid("a Gemm of ", ToString(a.type()), " and ", ToString(b.type()));
  const Val y = Scaled(Multiply(a, b, c.attrs().Int("transA"), c.attrs().Int("transB")), c.attrs().Float("alpha", 1.0));
  if (!y.valid() || !c.has(2)) return One(y);
  const double beta = c.attrs().Float("beta", 1.0);
  const Val bias = c.in(2);
  if (BroadcastShapes(bias.shape(), y.shape()) != y.shape()) {
    return Invalid("C of type ", ToString(bias.type()), " does not broadcast to ", ToString(y.type()));
  }
  return One(beta == 0 ? y : y + Scaled(bias, beta));
}

ImportOr ImportEinsum(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val y, Einsum(c.attrs().String("equation"), c.node().inputs));
  return One(y);
}

}  // namespace

std::span<const OnnxOp> MatmulImports() {
  static const OnnxOp ops[] = {
      {"", "MatMul", 2, 2, ImportMatMul, {.classifier = true, .scores = true, .weight_inputs = 0b11}},
      {"", "Gemm", 2, 3, ImportGemm, {.classifier = true, .weight_inputs = 0b110}},
      {"", "Einsum", 1, Arity::kMany, ImportEinsum},
      {"com.microsoft", "FusedMatMul", 2, 2, ImportFusedMatMul},
  };
  return ops;
}

}  // namespace onnxtrain
