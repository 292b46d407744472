#include <algorithm>
#include <numeric>

#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

double Epsilon(const ImportContext& c, double otherwise = 1e-5) { return c.attrs().Float("epsilon", otherwise); }

// Returns true if the file requests batch statistics: by training_mode since opset 14, by is_test before opset 7, and
// otherwise by the number of outputs.
bool FileSaysTraining(const ImportContext& c) {
  const bool outputs = c.node().num_outputs > 1;
  return c.since(14, c.attrs().Int("training_mode") != 0, c.since(7, outputs, outputs && !c.attrs().Int("is_test")));
}

struct BatchStatistics {
  Val y, mean, var;  // population variance
  int64_t count;     // elements per channel
};

BatchStatistics TrainOnBatch(ImportContext& c, Val x, Val scale, Val bias) {
  const double epsilon = Epsilon(c);
  const std::vector<Val> out = c.b().Ops("BatchNorm", {x, scale, bias}, {{"epsilon", epsilon}});
  // Computes var from rstd = 1/√(var+ε). Rounding must not make it negative.
  const Val reciprocal = 1.0 / out[2];
  const Val var = reciprocal * reciprocal - epsilon;
  const int64_t channels = std::max<int64_t>(1, x.dim(1));
  return {out[0], out[1], var ? c.b().Op("Relu", {var}) : var, x.type().elements() / channels};
}

// Returns running·m + batch·(1 − m), in the type and shape of the running value.
Val UpdateRunningStat(Val running, Val batch, double momentum) {
  return running * momentum + Reshape(Cast(batch, running.dtype()), running.shape()) * (1 - momentum);
}

// Returns the outputs in training mode. Old versions of the node also list the statistics of the batch.
std::vector<Val> TrainingOutputs(const BatchStatistics& batch, Val mean, Val var) {
  return {batch.y, mean, var, batch.mean, batch.var};
}

// Follows ONNX literally: the running statistics are outputs instead of state, with the population variance.
std::vector<Val> BatchNormAsWritten(ImportContext& c, Val x, Val scale, Val bias) {
  const double momentum = c.attrs().Float("momentum", 0.9);
  const BatchStatistics batch = TrainOnBatch(c, x, scale, bias);
  return TrainingOutputs(batch, UpdateRunningStat(c.in(3), batch.mean, momentum),
                         UpdateRunningStat(c.in(4), batch.var, momentum));
}

ImportOr TrainBatchNorm(ImportContext& c, Val x, Val scale, Val bias) {
  const double momentum = c.attrs().Float("momentum", 0.9);
  ASSIGN_OR_RETURN(const Val mean, c.AsState(3));
  ASSIGN_OR_RETURN(const Val var, c.AsState(4));
  const BatchStatistics batch = TrainOnBatch(c, x, scale, bias);
  // PyTorch's running variance is the unbiased one.
  const double n = static_cast<double>(batch.count), unbiased = n > 1 ? n / (n - 1) : 1;
  const Val new_mean = UpdateRunningStat(mean, batch.mean, momentum);
  const Val new_var = UpdateRunningStat(var, c.conformance ? batch.var : batch.var * unbiased, momentum);
  c.UpdateState(mean, new_mean, momentum);
  c.UpdateState(var, new_var, momentum);
  return TrainingOutputs(batch, new_mean, new_var);
}

// Returns a running statistic: state if it is a weight, otherwise the computed value.
Val Statistic(ImportContext& c, size_t i) {
  const absl::StatusOr<Val> state = c.AsState(i);
  return state.ok() ? *state : c.in(i);
}

// Returns true if statistics are per element of a sample instead of per channel (spatial = 0, up to version 8).
bool PerPlace(const ImportContext& c) { return c.since(9, false, c.attrs().Int("spatial", 1) == 0); }

// The inputs with one statistic per channel. If statistics are per element of a sample, each element is a channel of x
// [samples, channels].
struct Channels {
  Val x;
  Shape parameter;  // required shape of the other inputs

  Val Of(Val v) const { return Cast(Reshape(v, {x.dim(1)}), x.dtype()); }
};

absl::StatusOr<Channels> ReadChannels(ImportContext& c) {
  const Val x = c.in(0);
  if (x.rank() < 2) return Invalid("expected [N,C,…], got ", ToString(x.type()));
  Channels channels{x, {x.dim(1)}};
  if (PerPlace(c)) {
    channels.parameter.assign(x.shape().begin() + 1, x.shape().end());
    channels.x = Reshape(x, {x.dim(0), NumElements(channels.parameter)});
  }
  for (size_t i = 1; i < 5; ++i) {
    if (c.in(i).shape() == channels.parameter) continue;
    return Invalid("input ", i, " should have the shape ", ToString(channels.parameter), ", got ",
                   ToString(c.in(i).type()));
  }
  return channels;
}

// Returns true if both statistics are weights. Otherwise they cannot be updated, and training uses them unchanged.
bool Updatable(ImportContext& c) { return c.AsState(3).ok() && c.AsState(4).ok(); }

ImportOr NormalizeBatch(ImportContext& c, const Channels& channels) {
  const Val x = channels.x, scale = channels.Of(c.in(1)), bias = channels.Of(c.in(2));
  if (c.conformance && FileSaysTraining(c)) return BatchNormAsWritten(c, x, scale, bias);
  if (!c.batch_norm_frozen && c.for_training() && Updatable(c)) return TrainBatchNorm(c, x, scale, bias);
  return std::vector<Val>{c.b().Op("BatchNormInference",
                                   {x, scale, bias, channels.Of(Statistic(c, 3)), channels.Of(Statistic(c, 4))},
                                   {{"epsilon", Epsilon(c)}})};
}

ImportOr ImportBatchNorm(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 5));
  ASSIGN_OR_RETURN(const Channels channels, ReadChannels(c));
  ASSIGN_OR_RETURN(std::vector<Val> y, NormalizeBatch(c, channels));
  y[0] = Reshape(y[0], c.in(0).shape());
  return y;
}

// Builds LayerNorm over the axes from `axis` on. `scale` and `bias` (may be invalid) broadcast against x. Uses the
// inputs of the row if they have the shape of the normalized axes, otherwise a separate Mul and Add.
std::vector<Val> LayerNorm(Val x, Val scale, Val bias, int64_t axis, double epsilon) {
  Builder& b = x.b();
  const Shape own(x.shape().begin() + axis, x.shape().end());
  const Attrs attrs = {{"axis", axis}, {"epsilon", epsilon}};
  scale = Cast(scale, x.dtype());
  bias = Cast(bias, x.dtype());
  if (scale && scale.shape() == own && (!bias || bias.shape() == own))
    return b.Ops("LayerNorm", {x, scale, bias}, attrs);
  std::vector<Val> y = b.Ops("LayerNorm", {x, Ones(x, own)}, attrs);
  if (scale) y[0] = y[0] * scale;
  if (bias) y[0] = y[0] + bias;
  return y;
}

absl::Status CheckBroadcastsTo(Val v, Val x) {
  if (!v || BroadcastShapes(v.shape(), x.shape()) == x.shape()) return absl::OkStatus();
  return Invalid(ToString(v.type()), " does not broadcast to ", ToString(x.type()));
}

// Casts a statistic to the type in which the node computes: stash_type, float32 unless x is float64.
Val Stashed(Val statistic, Val x) {
  return x.dtype() == DType::kFloat64 ? statistic : Cast(statistic, DType::kFloat32);
}

ImportOr ImportLayerNorm(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(c.attrs().Int("axis", -1), c.in(0).rank()));
  for (size_t i : {1, 2}) RETURN_IF_ERROR(CheckBroadcastsTo(c.in(i), c.in(0)));
  const std::vector<Val> y = LayerNorm(c.in(0), c.in(1), c.in(2), axis, Epsilon(c));
  return std::vector<Val>{y[0], Stashed(y[1], c.in(0)), Stashed(y[2], c.in(0))};
}

struct RmsNormalized {
  Val y, rstd;
};

// Builds x/√(mean(x²)+ε)·scale over the axes from `axis` on (Zhang and Sennrich, 2019). Squares 16-bit types in
// float32.
RmsNormalized RmsNorm(Val x, Val scale, int64_t axis, double epsilon) {
  if (x && scale && DTypeSize(x.dtype()) >= 4 &&
      scale.type() == Type{x.dtype(), Shape(x.shape().begin() + axis, x.shape().end())}) {
    const std::vector<Val> y = x.b().Ops("RmsNorm", {x, scale}, {{"axis", axis}, {"epsilon", epsilon}});
    return {y[0], y[1]};
  }
  std::vector<int64_t> axes(x.rank() - axis);
  std::iota(axes.begin(), axes.end(), axis);
  const Val wide = DTypeSize(x.dtype()) < 4 ? Cast(x, DType::kFloat32) : x;
  const Val rstd = Rsqrt(ReduceMean(wide * wide, axes) + epsilon);
  return {Cast(wide * rstd, x.dtype()) * Cast(scale, x.dtype()), rstd};
}

ImportOr ImportRmsNorm(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(c.attrs().Int("axis", -1), c.in(0).rank()));
  RETURN_IF_ERROR(CheckBroadcastsTo(c.in(1), c.in(0)));
  const RmsNormalized y = RmsNorm(c.in(0), c.in(1), axis, Epsilon(c));
  return std::vector<Val>{y.y, y.rstd};
}

// Returns x + skip + bias (may be absent). Requires scale and bias to be vectors along the last axis.
absl::StatusOr<Val> SkipSum(ImportContext& c, size_t bias) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  if (c.in(0).rank() < 1) return Invalid("expected a hidden axis, got ", ToString(c.in(0).type()));
  for (size_t i = 1; i < c.num_inputs(); ++i) RETURN_IF_ERROR(CheckBroadcastsTo(c.in(i), c.in(0)));
  Val sum = c.in(0) + c.in(1);
  return c.has(bias) ? sum + c.in(bias) : sum;
}

ImportOr ImportSkipLayerNorm(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, SkipSum(c, 4));
  if (!x) return std::vector<Val>{x};
  const std::vector<Val> y = LayerNorm(x, c.in(2), c.in(3), x.rank() - 1, Epsilon(c, 1e-12));
  return std::vector<Val>{y[0], Stashed(y[1], x), Stashed(y[2], x), x};
}

ImportOr ImportSkipRmsNorm(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, SkipSum(c, 3));
  if (!x) return std::vector<Val>{x};
  const RmsNormalized y = RmsNorm(x, c.in(2), x.rank() - 1, Epsilon(c, 1e-12));
  return std::vector<Val>{y.y, Val(), y.rstd, x};
}

// Normalizes x [N,C,…] within each group of channels of each sample. Returns [N·groups, rest].
Val NormalizeGroups(Val x, int64_t groups, double epsilon) {
  const int64_t rows = x.dim(0) * groups;
  const int64_t rest = rows == 0 ? 0 : x.type().elements() / rows;
  return LayerNorm(Reshape(x, {rows, rest}), Val(), Val(), 1, epsilon)[0];
}

absl::Status CheckChannelVector(const ImportContext& c, size_t i, int64_t extent) {
  if (c.in(i).shape() == Shape{extent}) return absl::OkStatus();
  return Invalid("input ", i, " should have shape [", extent, "], got ", ToString(c.in(i).type()));
}

absl::Status CheckNonEmptyChannels(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  const Val x = c.in(0);
  if (x.rank() < 2 || x.type().elements() == 0)
    return Invalid("expected [N,C,…] with elements, got ", ToString(x.type()));
  return absl::OkStatus();
}

ImportOr ImportInstanceNorm(ImportContext& c) {
  RETURN_IF_ERROR(CheckNonEmptyChannels(c));
  const Val x = c.in(0);
  for (size_t i : {1, 2}) RETURN_IF_ERROR(CheckChannelVector(c, i, x.dim(1)));
  const Val y = Reshape(NormalizeGroups(x, x.dim(1), Epsilon(c)), x.shape());
  return std::vector<Val>{y * UnsqueezeToChannels(c.in(1), x.rank()) + UnsqueezeToChannels(c.in(2), x.rank())};
}

// Imports GroupNormalization. Scale and bias are per group in version 18, per channel in version 21.
ImportOr ImportGroupNorm(ImportContext& c) {
  RETURN_IF_ERROR(CheckNonEmptyChannels(c));
  const Val x = c.in(0);
  const int64_t groups = c.attrs().Int("num_groups");
  if (groups < 1 || x.dim(1) % groups != 0)
    return Invalid("num_groups ", groups, " does not divide ", x.dim(1), " channels");
  const int64_t parts = c.since(21, x.dim(1), groups);
  for (size_t i : {1, 2}) RETURN_IF_ERROR(CheckChannelVector(c, i, parts));
  const Shape by_part = {x.dim(0), parts, x.type().elements() / (x.dim(0) * parts)};
  const Val y = Reshape(NormalizeGroups(x, groups, Epsilon(c)), by_part);
  const Val scale = Cast(UnsqueezeToChannels(c.in(1), 3), x.dtype()),
            bias = Cast(UnsqueezeToChannels(c.in(2), 3), x.dtype());
  return std::vector<Val>{Reshape(y * scale + bias, x.shape())};
}

// Imports x/‖x‖ along an axis. If the norm is 0, the result is 0 and gradients are finite.
ImportOr ImportLpNorm(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(c.attrs().Int("axis", -1), x.rank()));
  const int64_t p = c.attrs().Int("p", 2);
  if (p != 1 && p != 2) return Unsupported(StrCat("p = ", p));
  const Val sum = ReduceSum(p == 2 ? x * x : c.b().Op("Abs", {x}), {axis});
  const Val positive = Where(Equal(sum, c.b().Scalar(x.dtype(), 0)), c.b().Scalar(x.dtype(), 1), sum);
  return std::vector<Val>{x / (p == 2 ? Sqrt(positive) : positive)};
}

ImportOr ImportMeanVariance(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  std::vector<int64_t> axes = c.since(9, c.attrs().Ints("axes", {0, 2, 3}),
                                      c.attrs().Int("across_channels") != 0 ? Shape{0, 1, 2, 3} : Shape{0, 2, 3});
  for (int64_t& axis : axes) {
    ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, x.rank()));
  }
  const Val centered = x - ReduceMean(x, axes);
  if (c.since(9, false, c.attrs().Int("normalize_variance", 1) == 0)) return std::vector<Val>{centered};
  const Val variance = ReduceMean(centered * centered, axes);
  // Avoids the infinite derivative of √0 if all elements are equal.
  const Val equal = Equal(variance, c.b().Scalar(x.dtype(), 0)), one = c.b().Scalar(x.dtype(), 1);
  const Val deviation = Where(equal, c.b().Scalar(x.dtype(), 0), Sqrt(Where(equal, one, variance)));
  return std::vector<Val>{centered / (deviation + 1e-9)};
}

// Imports x/(bias + α·mean(x²))^β. The mean is over a window of `size` channels, in which missing channels are zeros.
ImportOr ImportLrn(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  const int64_t size = c.attrs().Int("size");
  if (x.rank() < 2 || size < 1)
    return Invalid("size ", size, " is no window over the channels of ", ToString(x.type()));
  if (x.type().elements() == 0) return std::vector<Val>{x};
  const Val rows = Reshape(x, {x.dim(0), 1, x.dim(1), x.type().elements() / (x.dim(0) * x.dim(1))});
  const Windows w = {{size, 1}, {1, 1}, {(size - 1) / 2, 0, size / 2, 0}, {1, 1}};
  Attrs attrs = PoolAttrs(w);
  attrs.Set("count_include_pad", int64_t{1});
  const Val mean = c.b().Op("AveragePool", {rows * rows}, std::move(attrs));
  const Val base = mean * c.attrs().Float("alpha", 1e-4) + c.attrs().Float("bias", 1.0);
  const Val factor = c.b().Op("Pow", {base, c.b().Scalar(x.dtype(), -c.attrs().Float("beta", 0.75))});
  return std::vector<Val>{Reshape(rows * factor, x.shape())};
}

}  // namespace

std::span<const OnnxOp> NormImports() {
  static constexpr OnnxOp ops[] = {
      {"", "BatchNormalization", 5, 5, ImportBatchNorm, {.weight_inputs = 0b11110}},
      {"", "LayerNormalization", 2, 3, ImportLayerNorm, {.weight_inputs = 0b110}},
      {"", "RMSNormalization", 2, 2, ImportRmsNorm, {.weight_inputs = 0b10}},
      {"", "SimplifiedLayerNormalization", 2, 2, ImportRmsNorm, {.weight_inputs = 0b10}},
      {"com.microsoft", "SkipLayerNormalization", 3, 5, ImportSkipLayerNorm, {.weight_inputs = 0b11100}},
      {"com.microsoft", "SkipSimplifiedLayerNormalization", 3, 4, ImportSkipRmsNorm, {.weight_inputs = 0b1100}},
      {"", "InstanceNormalization", 3, 3, ImportInstanceNorm, {.weight_inputs = 0b110}},
      {"", "GroupNormalization", 3, 3, ImportGroupNorm, {.weight_inputs = 0b110}},
      {"", "LpNormalization", 1, 1, ImportLpNorm},
      {"", "MeanVarianceNormalization", 1, 1, ImportMeanVariance},
      {"", "LRN", 1, 1, ImportLrn},
  };
  return ops;
}

}  // namespace onnxtrain
