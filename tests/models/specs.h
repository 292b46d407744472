// What each of the shared models is trained on in the test: samples that fit its inputs, and a target that fits its
// output.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain {

enum class Fill {
  kDigits,  // images of ../shared/data/mnist_idx in [0, 1]; a narrower input gets the first pixels of each
  kNormal,
  kTokens,  // integers in [0, limit)
  kOnes,
  kDigitLabels,
};

struct ModelColumn {
  std::string name;  // a model input; "label" is the target
  Type sample;       // without the batch axis
  Fill fill = Fill::kNormal;
  int64_t limit = 0;
};

struct ModelSpec {
  std::string file;
  std::vector<ModelColumn> columns;
  int64_t batch = 16;
  std::string flags;           // of every command
  std::string gradient_flags;  // of the checks of gradients alone
  std::string checked = "*";   // the weights whose gradients are checked against differences in float64: few, where one
                               // pass through the model takes long
  int coordinates = 2;         // of each
  // Gradients to which a value on the edge of a Relu or maximum contributes: rounding decides which way it goes, in
  // libtorch on another instruction set as well. They are judged by how far a nudge of the inputs moves libtorch's.
  std::vector<std::string> on_edge;
};

inline std::ostream& operator<<(std::ostream& out, const ModelSpec& spec) { return out << spec.file; }

inline ModelColumn Digits(std::string name, Shape shape) {
  return {std::move(name), {DType::kFloat32, std::move(shape)}, Fill::kDigits};
}
inline ModelColumn Normal(std::string name, Shape shape) {
  return {std::move(name), {DType::kFloat32, std::move(shape)}, Fill::kNormal};
}
inline ModelColumn Tokens(std::string name, Shape shape, int64_t limit, DType dtype = DType::kInt64) {
  return {std::move(name), {dtype, std::move(shape)}, Fill::kTokens, limit};
}
inline ModelColumn Ones(std::string name, Shape shape) {
  return {std::move(name), {DType::kInt64, std::move(shape)}, Fill::kOnes};
}
inline ModelColumn DigitLabels() { return {"label", {DType::kInt64, {}}, Fill::kDigitLabels}; }
inline ModelColumn Classes(Shape shape, int64_t count) { return Tokens("label", std::move(shape), count); }
inline ModelColumn Targets(Shape shape) { return Normal("label", std::move(shape)); }

inline std::vector<ModelSpec> ModelSpecs() {
  return {
      {"basic_pitch_nmp_opset15.onnx",
       {Normal("serving_default_input_2:0", {43844, 1}), Targets({172, 88})},
       1,
       "--logits StatefulPartitionedCall:2 --loss mse",
       "",
       "const_fold_opt__73*",
       1},
      {"bert_toy_optimized_opset12.onnx",
       {Tokens("input_ids", {12}, 99), Tokens("token_type_ids", {12}, 2), Ones("input_mask", {12}), Classes({12}, 99)},
       4,
       "--logits prediction_scores"},
      {"byte_sb_bidi_lstm_opset9.onnx", {Tokens("input", {20}, 256, DType::kUInt8), Classes({20}, 2)}, 4},
      {"cifar_deep_kw_opset9.onnx", {Normal("input", {3, 32, 32}), Classes({}, 10)}},
      {"cnn_mnist_pytorch_opset9.onnx", {Digits("0", {1, 28, 28}), DigitLabels()}},
      {"dice_scores_two_axes.onnx", {Normal("obs", {164}), Normal("move_features", {9}), Targets({})}, 4},
      {"gobblet_policy_opset20.onnx", {Normal("x", {54}), Classes({}, 108)}, 4},
      // So sure of these digits that float32 holds few digits of 1 − p: smoothed labels give gradients that can be
      // compared.
      {"keras_mnist_cnn_opset12.onnx",
       {Digits("conv2d_input", {28, 28, 1}), DigitLabels()},
       16,
       "",
       "--label-smoothing 0.1"},
      {"mistral_tiny_optimum.onnx",
       {Tokens("input_ids", {12}, 128), Ones("attention_mask", {12}), Tokens("position_ids", {12}, 12),
        Classes({12}, 128)},
       4},
      {"mnist_burn_bn_opset16.onnx", {Digits("input.1", {1, 28, 28}), DigitLabels()}},
      {"mnist_cntk_opset8.onnx", {Digits("Input3", {1, 28, 28}), DigitLabels()}},
      {"mnist_softmax_tf_opset4.onnx", {Digits("Placeholder:0", {784}), DigitLabels()}},
      {"sklearn_lr_mnist.onnx", {Digits("float_input", {780}), DigitLabels()}},
      {"super_resolution_pytorch02.onnx", {Normal("1", {1, 224, 224}), Targets({1, 672, 672})}, 1, "", "", "9", 1},
      {"swin_tiny_optimum.onnx", {Normal("pixel_values", {3, 16, 16}), Classes({}, 2)}, 4},
      {"test_training_model_opset12.onnx", {Digits("X", {784}), DigitLabels()}},
      {"unet_sed_opset18.onnx", {Normal("input", {1, 224, 224}), Targets({1, 224, 224})}, 1, "", "", "encoder1.0.*", 1},
      {"version-RFB-320_opset9.onnx",
       {Normal("input", {3, 240, 320}), Targets({4420, 4})},
       2,
       "--logits boxes",
       "",
       "base_net.0.*",
       1},
      {"vespa_dummy_transformer_opset12.onnx",
       {Tokens("input_ids", {12}, 20), Ones("attention_mask", {12}), Tokens("token_type_ids", {12}, 2),
        Targets({12, 16})},
       4},
      {"yunet_n_320_opset11.onnx",
       {Normal("input", {3, 320, 320}), Targets({1600, 10})},
       1,
       "--logits kps_8",
       "",
       "*.bias",
       1,
       {"grad:459"}},
      {"zero_model_mlp_opset14.onnx", {Digits("input-0", {784}), DigitLabels()}},
      // Of the artifacts of another program the model and its weights are taken: they are in three files.
      {"ort_training_api/training_model.onnx", {Digits("input-0", {784}), DigitLabels()}},
      {"ort_training_api/eval_model.onnx", {Digits("input-0", {784}), DigitLabels()}},
      {"external_data/add_with_external_data.onnx", {Normal("input1", {}), Normal("input2", {}), Targets({})}},
  };
}

// Detectors whose losses need more than a column of labels: they are trained on synthetic samples.
inline std::vector<std::string> Detectors() { return {"deimv2_atto_int8_detr.onnx"}; }

// What cannot be trained, and what the program must say about it.
struct Refusal {
  std::string file, reason;
};

inline std::vector<Refusal> Refusals() {
  return {
      // An optimizer's step over lists of tensors, of a training run of another program.
      {"ort_training_api/adamw.onnx", "unsupported operators: com.microsoft.AdamWOptimizer (1: "},
  };
}

}  // namespace onnxtrain
