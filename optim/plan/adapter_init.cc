#include "optim/plan/adapter_init.h"

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>

#include "frontend/base/status.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "optim/plan/peft_adapter.h"
#include "optim/step/weight_initializer.h"

namespace onnxtrain {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The weight of a target as [outputs, inputs].
Matrix ReadMatrix(const HostTensor& weight, const LowRankTarget& target) {
  const int64_t rows = weight.shape()[0], columns = weight.size() / rows;
  Matrix stored(rows, columns);
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    weight.Read(r * columns, row);
    std::ranges::copy(row, stored.row(r).data());
  }
  if (target.outputs_first) return stored.middleRows(target.outputs_before, target.outputs);
  return stored.middleCols(target.outputs_before, target.outputs).transpose();
}

// An orthonormal basis of the columns' span.
Matrix Orthonormal(const Matrix& m) {
  const Eigen::HouseholderQR<Matrix> qr(m);
  return qr.householderQ() * Matrix::Identity(m.rows(), m.cols());
}

struct SingularValues {
  Matrix u;           // [outputs, rank]
  Eigen::VectorXf s;  // [rank], the largest first
  Matrix v;           // [inputs, rank]
};

SingularValues FindLargest(const Matrix& w, int64_t rank, const std::string& name, uint64_t seed) {
  constexpr int kIterations = 16;
  constexpr int64_t kMore = 16;  // directions beyond the rank, for faster convergence
  const int64_t width = std::min<int64_t>({rank + kMore, w.rows(), w.cols()});
  const HostTensor noise = DrawNormal(name, {DType::kFloat32, {w.cols(), width}}, 1, seed);
  Matrix v = Eigen::Map<const Matrix>(noise.data<float>().data(), w.cols(), width);
  Matrix u;
  for (int i = 0; i < kIterations; ++i) {
    u = Orthonormal(w * v);
    v = Orthonormal(w.transpose() * u);
  }
  const Eigen::JacobiSVD<Matrix> inner(u.transpose() * w * v, Eigen::ComputeThinU | Eigen::ComputeThinV);
  return {.u = (u * inner.matrixU()).leftCols(rank),
          .s = inner.singularValues().head(rank),
          .v = (v * inner.matrixV()).leftCols(rank)};
}

HostTensor ToTensor(const Matrix& m, DType dtype, const Shape& shape) {
  HostTensor floats({DType::kFloat32, shape});
  std::copy_n(m.data(), m.size(), floats.mutable_data<float>().data());
  return floats.CastTo(dtype);
}

void InitializeFromWeight(const HostTensor& weight, const LowRankTarget& target, const AdapterShapes& shapes,
                          uint64_t seed, LowRankUpdate* update) {
  const int64_t rank = shapes.a[0];
  const SingularValues found = FindLargest(ReadMatrix(weight, target), rank, update->a_name(), seed);
  const Eigen::VectorXf root = (found.s / static_cast<float>(update->scale)).cwiseSqrt();
  const DType dtype = weight.dtype();
  update->a = ToTensor(root.asDiagonal() * found.v.transpose(), dtype, shapes.a);
  update->b = ToTensor(found.u * root.asDiagonal(), dtype, shapes.b);
  update->first_a = update->a;
  update->first_b = update->b;
}

// Fails on what PEFT does not train beside parameters of modules.
absl::Status CheckParameter(const TrainConfig& config, const LowRankTarget& target) {
  const std::string_view refused = !target.of_parameter                                ? ""
                                   : config.lora_dropout > 0                           ? "`lora_dropout`"
                                   : config.lora_variant == "dora"                     ? "`lora_variant` dora"
                                   : config.lora_init == "pissa" && target.experts > 0 ? "`lora_init` pissa"
                                                                                       : "";
  if (refused.empty()) return absl::OkStatus();
  return Invalid(refused, ": not for '", Printable(target.parameter()),
                 "', a parameter of a module that is no linear layer (name other targets by `lora_target`)");
}

HostTensor DrawA(std::string_view how, const LowRankUpdate& update, const Type& type, int64_t rank, int64_t inputs,
                 uint64_t seed) {
  if (how == "gaussian") return DrawNormal(update.a_name(), type, 1 / static_cast<double>(rank), seed);
  return DrawUniform(update.a_name(), type, 1 / std::sqrt(static_cast<double>(inputs)), seed);
}

}  // namespace

HostTensor MakeMagnitude(const LazyTensor& weight, const LowRankUpdate& update, const Type& type) {
  const HostTensor squares = SumSquares(weight, update.outputs_first);
  HostTensor lengths(type);
  for (int64_t i = 0; i < lengths.size(); ++i) lengths.Set(i, std::sqrt(squares.At(update.outputs_before + i)));
  return lengths;
}

int64_t CountInputs(const LowRankTarget& target) {
  return std::accumulate(target.kernel.begin(), target.kernel.end(), target.inputs, std::multiplies<>());
}

AdapterShapes GetAdapterShapes(const LowRankTarget& target, int64_t rank) {
  const int64_t ranks = rank * std::max<int64_t>(target.experts, 1);
  AdapterShapes shapes{.a = {ranks, target.inputs}, .b = {target.outputs, ranks}, .magnitude = {target.outputs}};
  if (target.kernel.empty()) return shapes;
  shapes.a.insert(shapes.a.end(), target.kernel.begin(), target.kernel.end());
  shapes.b.insert(shapes.b.end(), target.kernel.size(), 1);
  shapes.magnitude.assign(target.kernel.size() + 2, 1);
  shapes.magnitude[1] = target.outputs;
  return shapes;
}

LowRankUpdate MakeUpdate(const LowRankTarget& target) {
  return {.nodes = target.nodes,
          .weight = target.weight,
          .outputs_first = target.outputs_first,
          .outputs_before = target.outputs_before,
          .outputs_after = target.outputs_after,
          .experts = target.experts,
          .of_parameter = target.of_parameter,
          .module = target.module};
}

absl::StatusOr<LowRankUpdate> MakeInitialUpdate(const TrainConfig& config, const LowRankTarget& target, int64_t rank,
                                                const OnnxModel& model) {
  RETURN_IF_ERROR(CheckParameter(config, target));
  const double alpha = config.lora_alpha > 0 ? config.lora_alpha : 2 * static_cast<double>(rank);
  const HostTensor& weight = model.parsed().graph.initializers.at(target.weight);
  if (config.lora_init == "pissa" && !IsFloat(weight.dtype()))
    return Invalid("`lora_init` pissa: needs float weights; that of '", Printable(target.module), "' is quantized");
  const AdapterShapes shapes = GetAdapterShapes(target, rank);
  const auto seed = static_cast<uint64_t>(config.seed);
  LowRankUpdate update = MakeUpdate(target);
  update.scale = alpha / AlphaDivisor(config.lora_variant == "rslora", rank);
  update.dropout = config.lora_dropout;
  if (config.lora_init == "pissa") {
    InitializeFromWeight(weight, target, shapes, seed, &update);
  } else {
    update.a = DrawA(config.lora_init, update, {target.dtype, shapes.a}, rank, CountInputs(target), seed);
    update.b = HostTensor({target.dtype, shapes.b});
  }
  if (config.lora_variant == "dora") {
    ASSIGN_OR_RETURN(const LazyTensor floats, ReadTargetFloats(model, target));
    update.magnitude = MakeMagnitude(floats, update, {target.dtype, shapes.magnitude});
  }
  return update;
}

}  // namespace onnxtrain
