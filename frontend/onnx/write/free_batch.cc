#include "frontend/onnx/write/export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/onnx/batched_model.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr size_t kModels = 3;
constexpr char kBatch[] = "batch";

template <typename T>
using Each = std::array<T, kModels>;  // one element per model

// The function offset + factor · f(batch).
struct Fit {
  double factor = 0, offset = 0;
};

// Returns the line through the first two points; nullopt if the third is not on it.
std::optional<Fit> FitLine(const Each<double>& x, const Each<double>& y) {
  Fit fit;
  fit.factor = (y[1] - y[0]) / (x[1] - x[0]);
  fit.offset = y[0] - fit.factor * x[0];
  if (std::abs(fit.offset) < 1e-6 * std::abs(y[0])) fit.offset = 0;
  const double error = std::abs(fit.offset + fit.factor * x[2] - y[2]);
  return error <= 1e-6 * std::abs(y[2]) ? std::optional(fit) : std::nullopt;
}

// Fits every element; returns nullopt if one does not fit.
std::optional<std::vector<Fit>> FitAll(const Each<double>& x, const Each<HostTensor>& tensors) {
  std::vector<Fit> fits;
  for (int64_t i = 0; i < tensors[0].size(); ++i) {
    const auto fit = FitLine(x, {tensors[0].At(i), tensors[1].At(i), tensors[2].At(i)});
    if (!fit.has_value()) return std::nullopt;
    fits.push_back(*fit);
  }
  return fits;
}

HostTensor Collect(const std::vector<Fit>& fits, double Fit::*part, const Type& type) {
  std::vector<double> values;
  for (const Fit& fit : fits) values.push_back(fit.*part);
  return HostTensor::FromDoubles(type, values);
}

class BatchFreer {
 public:
  explicit BatchFreer(Each<onnx::ModelProto> models, const Each<double>& batches)
      : models_(std::move(models)), batches_(batches) {
    for (size_t i = 0; i < kModels; ++i) reciprocals_[i] = 1 / batches_[i];
  }

  absl::StatusOr<std::string> Free() {
    RETURN_IF_ERROR(CheckNodes());
    RETURN_IF_ERROR(FindBatch());
    RETURN_IF_ERROR(FreeConstants());
    FreeDescriptions([](onnx::GraphProto* g) { return g->mutable_input(); });
    FreeDescriptions([](onnx::GraphProto* g) { return g->mutable_output(); });
    onnx::GraphProto* graph = models_[0].mutable_graph();
    first_.MergeFrom(graph->node());
    *graph->mutable_node() = std::move(first_);
    std::string bytes;
    if (!models_[0].SerializeToString(&bytes)) return absl::InternalError("the graph cannot be serialized");
    return bytes;
  }

 private:
  const onnx::GraphProto& graph(size_t i) const { return models_[i].graph(); }

  absl::Status CheckNodes() const {
    for (size_t i = 1; i < kModels; ++i) {
      if (graph(i).node_size() != graph(0).node_size() || graph(i).initializer_size() != graph(0).initializer_size())
        return Invalid("the operators of the graph depend on the batch");
    }
    for (int n = 0; n < graph(0).node_size(); ++n) {
      const std::string bytes = graph(0).node(n).SerializeAsString();
      for (size_t i = 1; i < kModels; ++i) {
        if (graph(i).node(n).SerializeAsString() != bytes)
          return Invalid("an attribute of a ", graph(0).node(n).op_type(), " depends on the batch");
      }
    }
    return absl::OkStatus();
  }

  bool IsBatch(const Each<int64_t>& extents) const {
    for (size_t i = 0; i < kModels; ++i) {
      if (static_cast<double>(extents[i]) != batches_[i]) return false;
    }
    return true;
  }

  // Appends the scalar batch_, the first extent of the first input with a batch.
  absl::Status FindBatch() {
    std::set<std::string> names;
    for (const auto& input : graph(0).input()) names.insert(input.name());
    for (const auto& output : graph(0).output()) names.insert(output.name());
    for (const auto& initializer : graph(0).initializer()) names.insert(initializer.name());
    for (batch_ = kBatch; names.contains(batch_);) batch_ += '_';
    for (int k = 0; k < graph(0).input_size(); ++k) {
      Each<int64_t> extents = {};
      for (size_t i = 0; i < kModels; ++i) {
        const auto& shape = graph(i).input(k).type().tensor_type().shape();
        if (shape.dim_size() > 0) extents[i] = shape.dim(0).dim_value();
      }
      if (!IsBatch(extents)) continue;
      onnx::NodeProto* shape = Append("Shape", {graph(0).input(k).name()}, batch_ + "_extent");
      for (const auto& [name, value] : {std::pair("start", 0), std::pair("end", 1)}) {
        onnx::AttributeProto* attribute = shape->add_attribute();
        attribute->set_name(name);
        attribute->set_type(onnx::AttributeProto::INT);
        attribute->set_i(value);
      }
      Append("Squeeze", {batch_ + "_extent"}, batch_);
      return absl::OkStatus();
    }
    return Invalid("no input begins with the batch");
  }

  absl::Status FreeConstants() {
    std::vector<onnx::TensorProto> kept;
    for (int k = 0; k < graph(0).initializer_size(); ++k) {
      ASSIGN_OR_RETURN(const bool follows, FreeConstant(k));
      if (!follows) kept.push_back(graph(0).initializer(k));
    }
    auto* initializers = models_[0].mutable_graph()->mutable_initializer();
    initializers->Clear();
    for (onnx::TensorProto& tensor : kept) *initializers->Add() = std::move(tensor);
    for (auto& [name, value] : constants_) AddInitializer(name, value, &models_[0]);
    return absl::OkStatus();
  }

  // Appends the nodes that compute an initializer; returns false if it is the same for all batches.
  absl::StatusOr<bool> FreeConstant(int k) {
    bool same = true;
    for (size_t i = 1; i < kModels; ++i) {
      const onnx::TensorProto &a = graph(0).initializer(k), &b = graph(i).initializer(k);
      same = same && a.raw_data() == b.raw_data() && std::ranges::equal(a.dims(), b.dims());
    }
    if (same) return false;
    const std::string name = graph(0).initializer(k).name();
    Each<HostTensor> tensors;
    for (size_t i = 0; i < kModels; ++i) {
      ASSIGN_OR_RETURN(TensorOrKind read, ReadTensor(graph(i).initializer(k), nullptr, nullptr));
      tensors[i] = std::move(read.tensor);
    }
    const bool shapes = tensors[0].shape() == tensors[1].shape() && tensors[0].shape() == tensors[2].shape();
    RETURN_IF_ERROR(Annotate(shapes ? FreeValues(name, tensors) : FreeShape(name, tensors), StrCat("'", name, "': ")));
    return true;
  }

  // Fits reciprocals first, because n / (n − 1) is almost linear for large n.
  absl::Status FreeValues(const std::string& name, const Each<HostTensor>& tensors) {
    const Type& type = tensors[0].type();
    if (IsFloat(type.dtype)) {
      if (auto fits = FitAll(reciprocals_, tensors)) return Compute(name, *fits, type, "Div");
      if (auto fits = FitAll(reciprocals_, Invert(tensors))) return ComputeInverse(name, *fits, type);
    }
    if (auto fits = FitAll(batches_, tensors)) return Compute(name, *fits, type, "Mul");
    return Invalid("a constant ", ToString(type), " depends on the batch");
  }

  static Each<HostTensor> Invert(const Each<HostTensor>& tensors) {
    Each<HostTensor> inverse;
    for (size_t i = 0; i < kModels; ++i) {
      inverse[i] = HostTensor({DType::kFloat64, tensors[i].shape()});
      for (int64_t k = 0; k < tensors[i].size(); ++k) inverse[i].Set(k, 1 / tensors[i].At(k));
    }
    return inverse;
  }

  // Expands constants that repeat along the axes whose extents depend on the batch.
  absl::Status FreeShape(const std::string& name, const Each<HostTensor>& tensors) {
    const absl::Status fails = Invalid("a constant ", ToString(tensors[0].type()), " depends on the batch");
    Each<HostTensor> shapes;
    for (size_t i = 0; i < kModels; ++i) {
      if (tensors[i].type().rank() != tensors[0].type().rank()) return fails;
      shapes[i] = HostTensor::FromInts(tensors[i].shape());
    }
    std::vector<bool> repeated;
    for (int axis = 0; axis < tensors[0].type().rank(); ++axis)
      repeated.push_back(tensors[0].shape()[axis] != tensors[1].shape()[axis]);
    const auto base = Unrepeat(tensors[0], repeated);
    if (!base.has_value()) return fails;
    for (size_t i = 1; i < kModels; ++i) {
      const auto other = Unrepeat(tensors[i], repeated);
      if (!other.has_value() || !other->SameBytes(*base)) return fails;
    }
    RETURN_IF_ERROR(FreeValues(name + "_shape", shapes));
    Append("Expand", {Constant(name + "_value", *base), name + "_shape"}, name);
    return absl::OkStatus();
  }

  // Computes 1 / (offset + factor / batch), with a lower bound on the denominator: the unbiased variance of one value,
  // 0 / 0, stays finite.
  absl::Status ComputeInverse(const std::string& name, const std::vector<Fit>& fits, const Type& type) {
    RETURN_IF_ERROR(Compute(name + "_inverse", fits, type, "Div"));
    std::vector<Fit> least = fits;
    for (Fit& fit : least) fit.offset = 1e-3 * std::abs(fit.offset);
    const bool positive = std::ranges::all_of(fits, [](const Fit& fit) { return fit.offset > 0; });
    if (!positive) return Invalid("a constant ", ToString(type), " depends on the batch");
    const std::string bounded = name + "_bounded";
    Append("Max", {name + "_inverse", Constant(name + "_least", Collect(least, &Fit::offset, type))}, bounded);
    Append("Reciprocal", {bounded}, name);
    return absl::OkStatus();
  }

  absl::Status Compute(const std::string& name, const std::vector<Fit>& fits, const Type& type, const char* op) {
    const HostTensor factor = Collect(fits, &Fit::factor, type), offset = Collect(fits, &Fit::offset, type);
    const bool whole = IsFloat(type.dtype) || std::ranges::all_of(fits, [](const Fit& fit) {
                         return fit.factor == std::round(fit.factor) && fit.offset == std::round(fit.offset);
                       });
    if (!whole) return Invalid("a constant ", ToString(type), " is a fraction of the batch");
    const bool only_factor = std::ranges::all_of(fits, [](const Fit& fit) { return fit.offset == 0; });
    const std::string product = only_factor ? name : name + "_product";
    Append(op, {Constant(name + "_factor", factor), GetBatch(type.dtype)}, product);
    if (!only_factor) Append("Add", {product, Constant(name + "_offset", offset)}, name);
    return absl::OkStatus();
  }

  // Returns the batch as a scalar of this type.
  std::string GetBatch(DType dtype) {
    if (dtype == DType::kInt64) return batch_;
    const std::string name = StrCat(batch_, "_", ToString(dtype));
    if (!cast_.insert(dtype).second) return name;
    onnx::AttributeProto* to = Append("Cast", {batch_}, name)->add_attribute();
    to->set_name("to");
    to->set_type(onnx::AttributeProto::INT);
    to->set_i(DTypeToOnnx(dtype));
    return name;
  }

  std::string Constant(const std::string& name, const HostTensor& value) {
    return constants_.emplace_back(name, value).first;
  }

  onnx::NodeProto* Append(const char* op, const std::vector<std::string>& inputs, const std::string& output) {
    onnx::NodeProto* node = first_.Add();
    node->set_op_type(op);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    return node;
  }

  template <typename List>
  void FreeDescriptions(List list) {
    auto* infos = list(models_[0].mutable_graph());
    for (int k = 0; k < infos->size(); ++k) {
      auto* shape = (*infos)[k].mutable_type()->mutable_tensor_type()->mutable_shape();
      for (int d = 0; d < shape->dim_size(); ++d) {
        Each<int64_t> extents = {};
        for (size_t i = 0; i < kModels; ++i) {
          const auto* other = list(models_[i].mutable_graph());
          extents[i] = (*other)[k].type().tensor_type().shape().dim(d).dim_value();
        }
        if (IsBatch(extents)) shape->mutable_dim(d)->set_dim_param(kBatch);
        if (!IsBatch(extents) && extents[1] != extents[0]) shape->mutable_dim(d)->clear_dim_value();
      }
    }
  }

  Each<onnx::ModelProto> models_;  // the first one becomes the result
  Each<double> batches_, reciprocals_ = {};
  std::string batch_;
  std::set<DType> cast_;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> first_;  // nodes that compute the constants
  std::vector<std::pair<std::string, HostTensor>> constants_;
};

}  // namespace

absl::StatusOr<std::string> FreeBatch(std::span<const SizedModel> models) {
  CHECK(models.size() == kModels) << models.size() << " models";
  Each<onnx::ModelProto> read;
  Each<double> batches = {};
  for (size_t i = 0; i < kModels; ++i) {
    if (!read[i].ParseFromString(models[i].bytes)) return absl::InternalError("the graph cannot be read again");
    batches[i] = static_cast<double>(models[i].batch);
  }
  return BatchFreer(std::move(read), batches).Free();
}

}  // namespace onnxtrain
