#include "frontend/ops/collective.h"

#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr char kSum[] = "sum", kIdentity[] = "identity";

Type TokenType() { return {DType::kUInt8, {1}}; }

RankGroup GroupOf(const Attrs& attrs) { return {attrs.String("group"), attrs.Int("ranks")}; }

absl::Status CheckGroup(const TypeContext& c) {
  constexpr int64_t kMostRanks = 1 << 20;
  const int64_t ranks = c.attrs.Int("ranks");
  if (ranks < 1 || ranks > kMostRanks) return Invalid("ranks ", ranks, " is outside [1, ", kMostRanks, "]");
  return c.has(1) ? CheckInputType(c, 1, TokenType()) : absl::OkStatus();
}

// Requires an element type that collectives can sum.
absl::Status RequireSummed(const TypeContext& c) {
  return c.in(0).dtype == DType::kInt64 ? absl::OkStatus() : RequireFloat(c, 0);
}

TypesOr InferAllReduce(const TypeContext& c) {
  RETURN_IF_ERROR(CheckGroup(c));
  RETURN_IF_ERROR(RequireSummed(c));
  const std::string gradient = c.attrs.String("gradient");
  if (gradient != kSum && gradient != kIdentity)
    return Invalid("gradient '", gradient, "' is neither sum nor identity");
  return std::vector<Type>{c.in(0), TokenType()};
}

TypesOr InferSumGradient(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  return std::vector<Type>{c.in(0)};
}

TypesOr InferAllGather(const TypeContext& c) {
  RETURN_IF_ERROR(CheckGroup(c));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  constexpr int64_t kMost = int64_t{1} << 40;
  Type all = c.in(0);
  if (all.shape[axis] > kMost / c.attrs.Int("ranks")) return Invalid("more than ", kMost, " elements along the axis");
  all.shape[axis] *= c.attrs.Int("ranks");
  return std::vector<Type>{all, TokenType()};
}

TypesOr InferAwaitGather(const TypeContext& c) {
  RETURN_IF_ERROR(CheckGroup(c));
  return std::vector<Type>{c.in(0), TokenType()};
}

TypesOr InferReduceScatter(const TypeContext& c) {
  RETURN_IF_ERROR(CheckGroup(c));
  RETURN_IF_ERROR(RequireFloat(c, 0));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  Type part = c.in(0);
  const int64_t ranks = c.attrs.Int("ranks");
  if (part.shape[axis] % ranks != 0)
    return Invalid("axis ", axis, " of ", ToString(part), " has no ", ranks, " equal parts");
  part.shape[axis] /= ranks;
  return std::vector<Type>{part, TokenType()};
}

// Returns the gradients of value and token; the token has none.
std::vector<Val> OnlyFirst(const GradContext& c, Val gradient) {
  std::vector<Val> all(c.inputs.size());
  all[0] = gradient;
  return all;
}

std::vector<Val> AllReduceGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  const bool sums = attrs.String("gradient") == kSum;
  return OnlyFirst(c, sums ? AllReduce(c.dy(), GroupOf(attrs), attrs.Int("deterministic") != 0) : c.dy());
}

std::vector<Val> SumGradientGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  return {SumPartial(c.dy(), GroupOf(attrs), attrs.Int("deterministic") != 0)};
}

std::vector<Val> AllGatherGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  if (!IsFloat(c.dy().dtype())) return OnlyFirst(c, Val());
  return OnlyFirst(c, ReduceScatter(c.dy(), GroupOf(attrs), attrs.Int("axis")));
}

std::vector<Val> ReduceScatterGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  return OnlyFirst(c, AllGather(c.dy(), GroupOf(attrs), attrs.Int("axis")));
}

Attrs GroupAttrs(const RankGroup& group) { return {{"group", group.name}, {"ranks", group.size}}; }

Val Reduce(Val x, const RankGroup& group, bool deterministic, const char* gradient) {
  Attrs attrs = GroupAttrs(group);
  attrs.Set("gradient", std::string(gradient));
  attrs.Set("deterministic", int64_t{deterministic});
  return x.b().Ops("AllReduce", {x}, attrs)[0];
}

}  // namespace

Val AllReduce(Val x, const RankGroup& group, bool deterministic) { return Reduce(x, group, deterministic, kSum); }

Val SumPartial(Val x, const RankGroup& group, bool deterministic) { return Reduce(x, group, deterministic, kIdentity); }

Val SumGradient(Val x, const RankGroup& group, bool deterministic) {
  Attrs attrs = GroupAttrs(group);
  attrs.Set("deterministic", int64_t{deterministic});
  return x.b().Op("SumGradient", {x}, attrs);
}

Val AllGather(Val x, const RankGroup& group, int64_t axis) {
  Attrs attrs = GroupAttrs(group);
  attrs.Set("axis", axis);
  return x.b().Ops("AllGather", {x}, attrs)[0];
}

Val ReduceScatter(Val x, const RankGroup& group, int64_t axis) {
  Attrs attrs = GroupAttrs(group);
  attrs.Set("axis", axis);
  return x.b().Ops("ReduceScatter", {x}, attrs)[0];
}

std::span<const OpRow> CollectiveOps() {
  const AttrSpec group = {"group", std::string(kWorldGroup)}, ranks = {"ranks", int64_t{1}, true};
  const AttrSpec axis = {"axis", int64_t{0}}, deterministic = {"deterministic", int64_t{0}};
  static const std::vector<OpRow> rows = {
      {.name = "AllReduce",
       .inputs = {1, 2},
       .outputs = 2,
       .attrs = {group, ranks, {"gradient", std::string(kSum)}, deterministic},
       .infer = InferAllReduce,
       .grad_status = GradStatus::kFormula,
       .gradient = AllReduceGradient,
       .precision = Precision::kFloat32,
       .recompute = Recompute::kNever,
       .overwrites = 1,
       .collective = true},
      {.name = "SumGradient",
       .inputs = {1, 1},
       .attrs = {group, ranks, deterministic},
       .infer = InferSumGradient,
       .grad_status = GradStatus::kFormula,
       .gradient = SumGradientGradient,
       .decompose = [](const DecomposeContext& c) { return std::vector<Val>{c.x(0)}; }},
      {.name = "AllGather",
       .inputs = {1, 2},
       .outputs = 2,
       .attrs = {group, ranks, axis, {"begins", int64_t{0}}},
       .infer = InferAllGather,
       .grad_status = GradStatus::kFormula,
       .gradient = AllGatherGradient,
       .recompute = Recompute::kNever,
       .collective = true},
      {.name = kAwaitGather,
       .inputs = {1, 2},
       .outputs = 2,
       .attrs = {group, ranks},
       .infer = InferAwaitGather,
       .grad_status = GradStatus::kFormula,
       .gradient = [](const GradContext& c) { return OnlyFirst(c, IsFloat(c.dy().dtype()) ? c.dy() : Val()); },
       .recompute = Recompute::kNever,
       .overwrites = 1,
       .collective = true},
      {.name = "ReduceScatter",
       .inputs = {1, 2},
       .outputs = 2,
       .attrs = {group, ranks, axis},
       .infer = InferReduceScatter,
       .grad_status = GradStatus::kFormula,
       .gradient = ReduceScatterGradient,
       .precision = Precision::kFloat32,
       .recompute = Recompute::kNever,
       .collective = true},
  };
  return rows;
}

}  // namespace onnxtrain
