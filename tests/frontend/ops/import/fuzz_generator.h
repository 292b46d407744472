// Draws of what users' files may hold: numbers, shapes, attributes, likely and absurd.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "tests/frontend/ops/import/random_choices.h"

namespace onnxtrain {

class Generator : public RandomChoices {
 public:
  using RandomChoices::RandomChoices;

  int64_t Int() {
    if (Chance(75)) return Below(5) - 1;
    constexpr auto kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
    return Pick<int64_t>({-3, 7, 31, 1 << 20, int64_t{1} << 31, int64_t{1} << 40, kMax, kMin});
  }
  double Number() { return Pick<double>({0, 0.5, 1, -1, 2, 1e30, -1e300, std::numeric_limits<double>::quiet_NaN()}); }
  std::vector<int64_t> Ints() {
    std::vector<int64_t> values(Below(7));
    for (int64_t& v : values) v = Int();
    return values;
  }
  Shape AnyShape() {
    Shape shape(Below(6));
    for (int64_t& d : shape) d = Pick<int64_t>({0, 1, 1, 2, 2, 3, 4, 4, 5});
    if (Chance(5) && !shape.empty()) shape[Below(static_cast<int64_t>(shape.size()))] = int64_t{1} << 30;
    return shape;
  }
  HostTensor Tensor() {
    HostTensor t =
        Chance(60) ? HostTensor::FromInts(Ints()) : HostTensor({AnyDType(), Chance(60) ? Shape{} : Shape{2}});
    if (IsFloat(t.dtype())) {
      for (int64_t i = 0; i < t.size(); ++i) t.Set(i, Number());
    } else if (t.dtype() != DType::kInt64) {
      for (int64_t i = 0; i < t.size(); ++i) t.SetInt(i, Below(2));
    }
    return t;
  }
  AttrValue Value() {
    switch (Below(6)) {
      case 0:
      case 1:
        return Int();
      case 2:
        return Number();
      case 3:
        return std::string(Pick<const char*>({"SAME_UPPER",
                                              "SAME_LOWER",
                                              "VALID",
                                              "NOTSET",
                                              "mean",
                                              "sum",
                                              "none",
                                              "constant",
                                              "reflect",
                                              "edge",
                                              "wrap",
                                              "linear",
                                              "nearest",
                                              "cubic",
                                              "asymmetric",
                                              "ij,jk->ik",
                                              "...i->i",
                                              "add",
                                              "DCR",
                                              "CRD",
                                              "tanh",
                                              "LEFT",
                                              "cubic",
                                              "bilinear",
                                              "half_pixel",
                                              "align_corners",
                                              "tf_crop_and_resize",
                                              "half_pixel_symmetric",
                                              "not_larger",
                                              "border",
                                              "reflection",
                                              "avg",
                                              "max",
                                              "ceil",
                                              "?",
                                              ""}));
      case 4:
        return Ints();
      default:
        return Tensor();
    }
  }
};

// Attributes that some operator reads, by the kind that it expects.
inline constexpr const char* kIntNames[] = {"axis",
                                            "group",
                                            "ceil_mode",
                                            "count_include_pad",
                                            "keepdims",
                                            "p",
                                            "size",
                                            "to",
                                            "dtype",
                                            "num_heads",
                                            "num_groups",
                                            "q_num_heads",
                                            "kv_num_heads",
                                            "is_causal",
                                            "ignore_index",
                                            "blocksize",
                                            "num_outputs",
                                            "exclusive",
                                            "reverse",
                                            "upper",
                                            "k",
                                            "largest",
                                            "allowzero",
                                            "transA",
                                            "transB",
                                            "storage_order",
                                            "unidirectional",
                                            "batch_dims",
                                            "start",
                                            "end",
                                            "training_mode",
                                            "broadcast",
                                            "noop_with_empty_axes",
                                            "fmod",
                                            "select_last_index",
                                            "antialias",
                                            "exclude_outside",
                                            "align_corners",
                                            "output_height",
                                            "output_width",
                                            "sampling_ratio",
                                            "offset_group"};
inline constexpr const char* kIntsNames[] = {"kernel_shape", "strides", "pads",  "dilations", "output_padding",
                                             "output_shape", "axes",    "perm",  "split",     "shape",
                                             "starts",       "ends",    "steps", "repeats",   "qkv_hidden_sizes"};
inline constexpr const char* kNumberNames[] = {
    "alpha",        "beta", "epsilon", "momentum", "ratio", "scale", "bias",  "low",           "high",
    "mean",         "min",  "max",     "softcap",  "gamma", "lambd", "value", "cubic_coeff_a", "extrapolation_value",
    "spatial_scale"};
inline constexpr const char* kStringNames[] = {"auto_pad",
                                               "reduction",
                                               "mode",
                                               "approximate",
                                               "equation",
                                               "activation",
                                               "coordinate_transformation_mode",
                                               "nearest_mode",
                                               "direction",
                                               "keep_aspect_ratio_policy",
                                               "padding_mode"};

template <size_t N>
std::string NameFrom(Generator& g, const char* const (&names)[N]) {
  return names[g.Below(N)];
}

}  // namespace onnxtrain
