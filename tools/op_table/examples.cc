#include "tools/op_table/op_table.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

using In = OpExample::Input;
using Ints = std::vector<int64_t>;
constexpr auto kFloat = DType::kFloat32;
constexpr auto kInt = DType::kInt64;

In Fed(Shape shape, DType dtype = kFloat) { return {In::kFed, {dtype, std::move(shape)}, {}}; }
In Weight(Shape shape) { return {In::kWeight, {kFloat, std::move(shape)}, {}}; }
In Known(const Ints& values) { return {In::kConstant, {}, HostTensor::FromInts(values)}; }
In KnownScalar(DType dtype, double value) { return {In::kConstant, {}, HostTensor::Scalar(dtype, value)}; }
In Absent() { return {In::kAbsent, {}, {}}; }
In KnownFloats(const std::vector<double>& values) {
  return {In::kConstant, {}, HostTensor::FromDoubles({kFloat, {static_cast<int64_t>(values.size())}}, values)};
}

In KnownTensor(Shape shape, std::vector<double> values) {
  return {In::kConstant, {}, HostTensor::FromDoubles({kFloat, std::move(shape)}, values)};
}
In KnownBytes(Shape shape, DType dtype = DType::kUInt8) {
  return {In::kConstant, {}, HostTensor::Filled({dtype, std::move(shape)}, 1)};
}
In KnownBoxes() { return KnownTensor({1, 2, 4}, {0, 0, 1, 1, 2, 2, 3, 3}); }
In KnownScores() { return KnownTensor({1, 1, 2}, {0.9, 0.8}); }

constexpr std::string_view kMicrosoft = "com.microsoft";

// Other nodes that ONNX Runtime's optimizers write.
std::vector<OpExample> FusedTable() {
  const std::string ms(kMicrosoft);
  const Attrs heads = {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}};
  return {
      {ms,
       "RotaryEmbedding",
       1,
       {Fed({1, 2, 3, 4}), Fed({1, 3}, kInt), KnownTensor({3, 2}, {1, 1, 0.8, 0.9, 0.3, 0.6}),
        KnownTensor({3, 2}, {0, 0, 0.6, 0.4, 0.9, 0.8})}},
      {ms,
       "GroupQueryAttention",
       1,
       {Fed({1, 3, 8}), Fed({1, 3, 4}), Fed({1, 3, 4}), Absent(), Absent(), Fed({1}, DType::kInt32),
        Fed({}, DType::kInt32)},
       heads,
       3},
      {ms, "NhwcConv", 1, {Fed({1, 4, 4, 2}), Weight({3, 2, 2, 2}), Weight({3})}},
      {ms,
       "GroupNorm",
       1,
       {Fed({1, 4, 4, 6}), Weight({6}), Weight({6})},
       {{"groups", int64_t{2}}, {"activation", int64_t{1}}}},
      {ms, "FusedGemm", 1, {Fed({2, 3}), Weight({3, 4}), Weight({4})}, {{"activation", std::string("Relu")}}},
      {ms, "BiasSplitGelu", 1, {Fed({2, 3, 6}), Weight({6})}},
      {ms, "BiasAdd", 1, {Fed({2, 3, 4}), Weight({4}), Fed({2, 3, 4})}},
      {ms,
       "MatMulNBits",
       1,
       {Fed({2, 16}), KnownBytes({3, 1, 8}), KnownTensor({3, 1}, {0.1, 0.2, 0.3})},
       {{"K", int64_t{16}}, {"N", int64_t{3}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}}},
      {ms,
       "GatherBlockQuantized",
       1,
       {KnownBytes({2, 16}), Fed({1, 3}, kInt), KnownTensor({2, 1}, {0.1, 0.2})},
       {{"bits", int64_t{8}}, {"block_size", int64_t{16}}, {"quantize_axis", int64_t{1}}}},
      {ms,
       "MoE",
       1,
       {Fed({3, 4}), Fed({3, 2}), Weight({2, 6, 4}), Weight({2, 6}), Weight({2, 4, 6}), Weight({2, 4})},
       {{"k", int64_t{1}}, {"activation_type", std::string("silu")}}},
      {ms,
       "QMoE",
       1,
       {Fed({3, 4}), Fed({3, 2}), KnownBytes({2, 6, 4}), KnownTensor({2, 6}, std::vector<double>(12, 0.1)), Absent(),
        KnownBytes({2, 4, 6}), KnownTensor({2, 4}, std::vector<double>(8, 0.1))},
       {{"k", int64_t{1}}, {"expert_weight_bits", int64_t{8}}}},
  };
}

std::vector<OpExample> QuantizedTable() {
  const std::string ms(kMicrosoft);
  const In scale = KnownScalar(kFloat, 0.1), zero = KnownScalar(DType::kUInt8, 128);
  const In a = Fed({2, 3}, DType::kUInt8), b = KnownBytes({3, 4}), image = Fed({1, 2, 4, 4}, DType::kUInt8);
  return {
      {ms, "MatMulIntegerToFloat", 1, {a, b, scale, scale, zero, zero}},
      {ms, "DynamicQuantizeMatMul", 1, {Fed({2, 3}), b, scale, zero}},
      {ms, "QGemm", 1, {a, scale, zero, b, scale, zero, Absent(), scale, zero}},
      {ms,
       "DynamicQuantizeLSTM",
       1,
       {Fed({3, 2, 3}), KnownBytes({1, 3, 8}), KnownBytes({1, 2, 8}), Weight({1, 16}), Absent(), Absent(), Absent(),
        Absent(), KnownTensor({1}, {0.01}), zero, KnownTensor({1}, {0.01}), zero}},
      {ms, "QLinearAdd", 1, {a, scale, zero, a, scale, zero, scale, zero}},
      {ms, "QLinearMul", 1, {a, scale, zero, a, scale, zero, scale, zero}},
      {ms, "QLinearSigmoid", 1, {a, scale, zero, scale, zero}},
      {ms, "QLinearLeakyRelu", 1, {a, scale, zero, scale, zero}},
      {ms, "QLinearGlobalAveragePool", 1, {image, scale, zero, scale, zero}},
      {ms, "QLinearAveragePool", 1, {image, scale, zero, scale, zero}, {{"kernel_shape", Ints{2, 2}}}},
      {ms, "QLinearSoftmax", 1, {a, scale, zero, scale, zero}, {{"axis", int64_t{-1}}, {"opset", int64_t{13}}}},
      {ms, "QLinearConcat", 1, {scale, zero, a, scale, zero, a, scale, zero}, {{"axis", int64_t{1}}}},
      {"qonnx.custom_op.general", "Quant", 1, {Fed({2, 3}), scale, KnownScalar(kFloat, 0), KnownScalar(kFloat, 4)}},
      {"qonnx.custom_op.general", "BipolarQuant", 1, {Fed({2, 3}), scale}},
      {"onnx.brevitas", "Quant", 1, {Fed({2, 3}), scale, KnownScalar(kFloat, 0), KnownScalar(kFloat, 4)}},
      {"onnx.brevitas", "BipolarQuant", 1, {Fed({2, 3}), scale}},
      {"finn.custom_op.general", "Quant", 1, {Fed({2, 3}), scale, KnownScalar(kFloat, 0), KnownScalar(kFloat, 4)}},
      {"finn.custom_op.general", "BipolarQuant", 1, {Fed({2, 3}), scale}},
  };
}

// Layers with weights, normalizations and products.
std::vector<OpExample> ExampleLayers() {
  const In image = Fed({2, 4, 6, 6});
  const Attrs kernel = {{"kernel_shape", Ints{2, 2}}};
  return {
      {"", "Conv", 17, {image, Weight({3, 4, 3, 3}), Weight({3})}},
      {"", "ConvTranspose", 17, {image, Weight({4, 3, 3, 3}), Weight({3})}},
      {"", "MaxPool", 17, {image}, kernel, 2},
      {"", "AveragePool", 17, {image}, kernel},
      {"", "LpPool", 17, {image}, kernel},
      {"", "BatchNormalization", 17, {image, Weight({4}), Weight({4}), Weight({4}), Weight({4})}},
      {"", "InstanceNormalization", 17, {image, Weight({4}), Weight({4})}},
      {"", "GroupNormalization", 21, {image, Weight({4}), Weight({4})}, {{"num_groups", int64_t{2}}}},
      {"", "LayerNormalization", 17, {Fed({2, 3, 4}), Weight({4}), Weight({4})}},
      {"", "RMSNormalization", 23, {Fed({2, 3, 4}), Weight({4})}},
      {"", "SimplifiedLayerNormalization", 17, {Fed({2, 3, 4}), Weight({4})}},
      {"", "LRN", 17, {image}, {{"size", int64_t{3}}}},
      {"", "Gemm", 17, {Fed({2, 3}), Weight({3, 4}), Weight({4})}},
      {"", "MatMul", 17, {Fed({2, 3}), Weight({3, 4})}},
      {"", "Einsum", 17, {Fed({2, 3}), Weight({3, 4})}, {{"equation", std::string("ij,jk->ik")}}},
  };
}

// Choices of elements, and losses.
std::vector<OpExample> ExampleSelections() {
  return {
      {"", "Where", 17, {Fed({2, 3}, DType::kBool), Fed({2, 3}), Fed({2, 3})}},
      {"", "Cast", 17, {Fed({2, 3})}, {{"to", int64_t{11}}}},
      {"", "CastLike", 17, {Fed({2, 3}), Fed({}, DType::kFloat64)}},
      {"", "Gather", 17, {Fed({4, 3}), Fed({2}, kInt)}},
      {"", "GatherElements", 17, {Fed({4, 3}), Fed({2, 3}, kInt)}},
      {"", "GatherND", 17, {Fed({4, 3}), Fed({2, 1}, kInt)}},
      {"", "Scatter", 10, {Fed({4, 3}), Fed({2, 3}, kInt), Fed({2, 3})}},
      {"", "ScatterElements", 17, {Fed({4, 3}), Fed({2, 3}, kInt), Fed({2, 3})}},
      {"", "ScatterND", 17, {Fed({4, 3}), Fed({2, 1}, kInt), Fed({2, 3})}},
      {"", "OneHot", 17, {Fed({3}, kInt), KnownScalar(kInt, 4), KnownFloats({0, 1})}},
      {"",
       "Compress",
       17,
       {Fed({3}), {In::kConstant, {}, HostTensor::FromDoubles({DType::kBool, {3}}, std::vector<double>{1, 0, 1})}}},
      {"", "NonZero", 17, {Known({1, 0, 2})}},
      {"", "SoftmaxCrossEntropyLoss", 17, {Fed({2, 3}), Fed({2}, kInt)}},
      {"", "NegativeLogLikelihoodLoss", 17, {Fed({2, 3}), Fed({2}, kInt)}},
      {"", "CumSum", 17, {Fed({2, 3}), KnownScalar(kInt, 1)}},
  };
}

// Shapes, parts and random numbers.
std::vector<OpExample> ExampleShapes() {
  const In image = Fed({2, 4, 6, 6});
  return {
      {"", "Reshape", 17, {Fed({2, 3}), Known({3, 2})}},
      {"", "Squeeze", 17, {Fed({2, 1, 3}), Known({1})}},
      {"", "Unsqueeze", 17, {Fed({2, 3}), Known({1})}},
      {"", "Expand", 17, {Fed({2, 1}), Known({2, 3})}},
      {"", "Tile", 17, {Fed({2, 3}), Known({2, 1})}},
      {"", "DepthToSpace", 17, {image}, {{"blocksize", int64_t{2}}}},
      {"", "SpaceToDepth", 17, {image}, {{"blocksize", int64_t{2}}}},
      {"", "Constant", 17, {}, {{"value_float", 1.0}}},
      {"", "ConstantOfShape", 17, {Known({2, 3})}},
      {"", "Range", 17, {KnownScalar(kInt, 0), KnownScalar(kInt, 5), KnownScalar(kInt, 1)}},
      {"", "Concat", 17, {Fed({2, 3}), Fed({2, 3})}, {{"axis", int64_t{0}}}},
      {"", "Split", 17, {Fed({4, 3})}, {{"axis", int64_t{0}}}, 2},
      {"", "Slice", 17, {Fed({4, 3}), Known({0}), Known({2})}},
      {"", "Pad", 17, {Fed({2, 3}), Known({0, 1, 0, 1})}},
      {"", "RandomUniform", 17, {}, {{"shape", Ints{2, 3}}}},
      {"", "RandomNormal", 17, {}, {{"shape", Ints{2, 3}}}},
      {"", "Dropout", 17, {Fed({2, 3}), KnownScalar(kFloat, 0.5), KnownScalar(DType::kBool, 1)}},
  };
}

// Operators of other frameworks and old versions.
std::vector<OpExample> ExampleOldOperators() {
  return {
      {"", "Affine", 1, {Fed({2, 3})}, {{"alpha", 2.0}, {"beta", 1.0}}},
      {"", "ScaledTanh", 1, {Fed({2, 3})}, {{"alpha", 2.0}, {"beta", 1.0}}},
      {"", "ParametricSoftplus", 1, {Fed({2, 3})}, {{"alpha", 2.0}, {"beta", 1.0}}},
      {"", "Scale", 1, {Fed({2, 3})}, {{"scale", 2.0}}},
      {"", "Erfc", 1, {Fed({2, 3})}},
      {"", "ImageScaler", 1, {Fed({1, 2, 3, 3})}, {{"scale", 2.0}, {"bias", std::vector<double>{1, 2}}}},
      {"", "Crop", 1, {Fed({1, 2, 5, 5})}, {{"border", Ints{1, 1, 1, 1}}}},
      {"", "ConstantFill", 1, {}, {{"shape", Ints{2, 3}}, {"value", 1.0}}},
      {"", "GivenTensorFill", 1, {}, {{"shape", Ints{2}}, {"values", std::vector<double>{1, 2}}}},
      {"", "DynamicSlice", 1, {Fed({4, 3}), Known({0}), Known({2})}},
      {"", "GRUUnit", 1, {Fed({1, 2, 3}), Fed({1, 2, 9}), Fed({2}, kInt), Fed({1}, kInt)}},
      {"", "ATen", 1, {Fed({2, 3})}, {{"operator", std::string("tanh")}}},
      {"org.pytorch.aten", "ATen", 1, {Fed({2, 3})}, {{"operator", std::string("tanh")}}},
  };
}

// Pictures and regions of them.
std::vector<OpExample> ExamplePictures() {
  const In image = Fed({2, 4, 6, 6});
  return {
      {"", "Clip", 17, {Fed({2, 3}), KnownScalar(kFloat, -1), KnownScalar(kFloat, 1)}},
      {"", "Resize", 17, {image, Absent(), KnownFloats({1, 1, 2, 2})}},
      {"", "Upsample", 9, {image, KnownFloats({1, 1, 2, 2})}},
      {"", "GridSample", 17, {image, Fed({2, 3, 3, 2})}},
      {"",
       "RoiAlign",
       17,
       {image, Fed({3, 4}), Fed({3}, kInt)},
       {{"output_height", int64_t{2}}, {"output_width", int64_t{2}}}},
      {"", "MaxRoiPool", 21, {image, Fed({3, 5})}, {{"pooled_shape", Ints{2, 2}}}},
      {"", "Det", 17, {Fed({2, 3, 3})}},
      {"", "AffineGrid", 20, {Fed({2, 2, 3}), Known({2, 1, 3, 4})}},
      {"", "DeformConv", 19, {image, Weight({3, 4, 3, 3}), Fed({2, 18, 4, 4})}},
      {"",
       "MaxUnpool",
       17,
       {Fed({2, 4, 3, 3}), Fed({2, 4, 3, 3}, kInt)},
       {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}},
      {"", "Col2Im", 18, {Fed({1, 4, 9}), Known({4, 4}), Known({2, 2})}},
      {"", "CenterCropPad", 18, {Fed({4, 3}), Known({2, 5})}},
  };
}

// Recurrent layers, sorting, windows and spectra.
std::vector<OpExample> ExampleSequences() {
  return {
      {"",
       "LSTM",
       17,
       {Fed({5, 2, 3}), Weight({1, 16, 3}), Weight({1, 16, 4}), Weight({1, 32})},
       {{"hidden_size", int64_t{4}}},
       3},
      {"",
       "GRU",
       17,
       {Fed({5, 2, 3}), Weight({1, 12, 3}), Weight({1, 12, 4}), Weight({1, 24})},
       {{"hidden_size", int64_t{4}}},
       2},
      {"",
       "RNN",
       17,
       {Fed({5, 2, 3}), Weight({1, 4, 3}), Weight({1, 4, 4}), Weight({1, 8})},
       {{"hidden_size", int64_t{4}}},
       2},
      {"", "TopK", 17, {Fed({2, 5}), Known({3})}, {}, 2},
      {"", "ReverseSequence", 17, {Fed({4, 2, 3}), Known({4, 2})}},
      {"", "BitShift", 17, {Fed({3}, DType::kUInt8), Fed({3}, DType::kUInt8)}, {{"direction", std::string("LEFT")}}},
      {"", "Unique", 17, {Known({2, 1, 2})}, {}, 1},
      {"", "NonMaxSuppression", 17, {KnownBoxes(), KnownScores(), KnownScalar(kInt, 1), KnownScalar(kFloat, 0.5)}},
      {"", "HannWindow", 17, {KnownScalar(kInt, 8)}},
      {"", "HammingWindow", 17, {KnownScalar(kInt, 8)}},
      {"", "BlackmanWindow", 17, {KnownScalar(kInt, 8)}},
      {"",
       "MelWeightMatrix",
       17,
       {KnownScalar(kInt, 8), KnownScalar(kInt, 16), KnownScalar(kInt, 8000), KnownScalar(kFloat, 0),
        KnownScalar(kFloat, 4000)}},
      {"", "DFT", 17, {Fed({1, 8, 1})}, {{"axis", int64_t{1}}}},
      {"", "STFT", 17, {Fed({1, 32, 1}), KnownScalar(kInt, 8), Absent(), KnownScalar(kInt, 16)}},
  };
}

// Quantized numbers, positions and caches.
std::vector<OpExample> ExampleIntegers() {
  return {
      {"", "QuantizeLinear", 17, {Fed({2, 3}), KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 128)}},
      {"",
       "DequantizeLinear",
       17,
       {Fed({2, 3}, DType::kUInt8), KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 128)}},
      {"", "DynamicQuantizeLinear", 17, {Fed({2, 3})}, {}, 3},
      {"", "MatMulInteger", 17, {Fed({2, 3}, DType::kUInt8), Fed({3, 4}, DType::kUInt8)}},
      {"", "ConvInteger", 17, {Fed({1, 1, 4, 4}, DType::kUInt8), Fed({1, 1, 2, 2}, DType::kUInt8)}},
      {"",
       "QLinearMatMul",
       17,
       {Fed({2, 3}, DType::kUInt8), KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 0), Fed({3, 4}, DType::kUInt8),
        KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 0), KnownScalar(kFloat, 0.1),
        KnownScalar(DType::kUInt8, 0)}},
      {"",
       "QLinearConv",
       17,
       {Fed({1, 1, 4, 4}, DType::kUInt8), KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 0),
        Fed({1, 1, 2, 2}, DType::kUInt8), KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 0),
        KnownScalar(kFloat, 0.1), KnownScalar(DType::kUInt8, 0)}},
      {"",
       "RotaryEmbedding",
       23,
       {Fed({1, 2, 3, 4}), KnownTensor({3, 2}, {1, 1, 0.8, 0.9, 0.3, 0.6}),
        KnownTensor({3, 2}, {0, 0, 0.6, 0.4, 0.9, 0.8}), Fed({1, 3}, kInt)}},
      {"", "TensorScatter", 24, {Fed({2, 1, 5, 3}), Fed({2, 1, 1, 3}), Known({1, 2})}},
  };
}

// Features of classical models.
std::vector<OpExample> ExampleFeatures() {
  return {
      {"ai.onnx.ml",
       "Scaler",
       1,
       {Fed({2, 3})},
       {{"offset", std::vector<double>{1, 2, 3}}, {"scale", std::vector<double>{1, 2, 3}}}},
      {"ai.onnx.ml",
       "Imputer",
       1,
       {Fed({2, 3})},
       {{"imputed_value_floats", std::vector<double>{1, 2, 3}}, {"replaced_value_float", 0.0}}},
      {"ai.onnx.ml", "Normalizer", 1, {Fed({2, 3})}, {{"norm", std::string("L2")}}},
      {"ai.onnx.ml",
       "LinearRegressor",
       1,
       {Fed({2, 3})},
       {{"coefficients", std::vector<double>{1, 2, 3}},
        {"intercepts", std::vector<double>{1}},
        {"targets", int64_t{1}}}},
      {"ai.onnx.ml",
       "LinearClassifier",
       1,
       {Fed({2, 3})},
       {{"coefficients", std::vector<double>{1, 2, 3, 4, 5, 6}},
        {"intercepts", std::vector<double>{1, 2}},
        {"classlabels_ints", Ints{0, 1}}},
       2},
      {"ai.onnx.ml", "FeatureVectorizer", 1, {Fed({2, 3}), Fed({2, 2})}, {{"inputdimensions", Ints{3, 2}}}},
      {"ai.onnx.ml", "ArrayFeatureExtractor", 1, {Fed({2, 3}), Known({1})}},
      {"ai.onnx.ml", "OneHotEncoder", 1, {Fed({3}, kInt)}, {{"cats_int64s", Ints{0, 1, 2}}}},
      {"ai.onnx.ml",
       "LabelEncoder",
       2,
       {Fed({3}, kInt)},
       {{"keys_int64s", Ints{0, 1}}, {"values_floats", std::vector<double>{1, 2}}}},
      {"ai.onnx.ml", "CategoryMapper", 1, {Fed({3}, kInt)}, {{"keys_int64s", Ints{0, 1}}, {"cats_int64s", Ints{2, 3}}}},
      {"ai.onnx.ml", "ZipMap", 1, {Fed({2, 3})}, {{"classlabels_int64s", Ints{0, 1, 2}}}},
      {"",
       "TfIdfVectorizer",
       17,
       {Fed({6}, kInt)},
       {{"mode", std::string("TF")},
        {"min_gram_length", int64_t{1}},
        {"max_gram_length", int64_t{1}},
        {"max_skip_count", int64_t{0}},
        {"ngram_counts", Ints{0}},
        {"ngram_indexes", Ints{0, 1}},
        {"pool_int64s", Ints{2, 3}}}},
      {"", "Multinomial", 17, {Fed({2, 3})}},
  };
}

// Optimizers, adapters and attention.
std::vector<OpExample> ExampleUpdates() {
  return {
      {"ai.onnx.preview.training",
       "Adam",
       1,
       {Fed({}), Fed({}, kInt), Fed({2}), Fed({2}), Fed({2}), Fed({2})},
       {{"alpha", 0.9}, {"beta", 0.999}, {"epsilon", 1e-6}, {"norm_coefficient", 0.0}},
       3},
      {"ai.onnx.preview.training", "Adagrad", 1, {Fed({}), Fed({}, kInt), Fed({2}), Fed({2}), Fed({2})}, {}, 2},
      {"ai.onnx.preview.training",
       "Momentum",
       1,
       {Fed({}), Fed({}, kInt), Fed({2}), Fed({2}), Fed({2})},
       {{"alpha", 0.9}, {"beta", 1.0}, {"mode", std::string("standard")}, {"norm_coefficient", 0.0}},
       2},
      {std::string(kRowDomain),
       std::string(kMagnitudeFactor),
       1,
       {Fed({3}), Fed({2, 3}), Fed({2, 4}), Fed({3, 2}), Fed({2, 3})}},
      {std::string(kRowDomain), std::string(kProjectedAttention), 1, {Fed({2, 3, 12})}, {{"num_heads", int64_t{2}}}},
      {std::string(kRowDomain),
       std::string(kLastSelected),
       1,
       {Fed({2, 3, 4}), Fed({2, 3}, DType::kBool), Known({2, -1, 4})}},
      {"", "Attention", 23, {Fed({1, 2, 3, 4}), Fed({1, 2, 5, 4}), Fed({1, 2, 5, 4})}},
  };
}

// Nodes of com.microsoft that are not in FusedTable.
std::vector<OpExample> ExampleMicrosoft() {
  const In image = Fed({2, 4, 6, 6});
  const std::string ms(kMicrosoft);
  return {
      {ms, "CropAndResize", 1, {image, Fed({3, 4}), Fed({3}, DType::kInt32), Known({2, 2})}},
      {ms, "FusedConv", 1, {image, Weight({3, 4, 3, 3}), Weight({3})}, {{"activation", std::string("Relu")}}},
      {ms, "FusedMatMul", 1, {Fed({2, 3}), Weight({3, 4})}, {{"alpha", 0.5}}},
      {ms, "SkipLayerNormalization", 1, {Fed({2, 3, 4}), Fed({2, 3, 4}), Weight({4}), Weight({4})}},
      {ms, "SkipSimplifiedLayerNormalization", 1, {Fed({2, 3, 4}), Fed({2, 3, 4}), Weight({4})}},
      {ms, "Attention", 1, {Fed({2, 3, 4}), Weight({4, 12}), Weight({12})}, {{"num_heads", int64_t{2}}}},
      {ms, "MultiHeadAttention", 1, {Fed({2, 3, 4}), Fed({2, 3, 4}), Fed({2, 3, 4})}, {{"num_heads", int64_t{2}}}},
      {ms,
       "EmbedLayerNormalization",
       1,
       {Fed({2, 3}, DType::kInt32), Fed({2, 3}, DType::kInt32), Weight({9, 4}), Weight({8, 4}), Weight({2, 4}),
        Weight({4}), Weight({4})},
       {},
       2},
      {ms, "BiasGelu", 1, {Fed({2, 3}), Weight({3})}},
      {ms, "FastGelu", 1, {Fed({2, 3}), Weight({3})}},
  };
}

// Operators that are not listed import with one of CommonInputs.
std::vector<OpExample> Table() {
  std::vector<OpExample> table;
  for (const auto part :
       {ExampleLayers, ExampleSelections, ExampleShapes, ExampleOldOperators, ExamplePictures, ExampleSequences,
        ExampleIntegers, ExampleFeatures, ExampleUpdates, ExampleMicrosoft, FusedTable, QuantizedTable}) {
    for (OpExample& example : part()) table.push_back(std::move(example));
  }
  return table;
}

const OpExample* Find(std::string_view domain, std::string_view op_type) {
  static const auto* table = new std::vector<OpExample>(Table());
  for (const OpExample& example : *table) {
    if (example.domain == domain && example.op_type == op_type) return &example;
  }
  return nullptr;
}

// Returns inputs that most operators accept, the likeliest first.
std::vector<std::vector<In>> CommonInputs(const OnnxOp& op) {
  std::vector<std::vector<In>> signatures;
  for (DType dtype : {kFloat, DType::kBool, DType::kInt32, DType::kUInt8, kInt}) {
    for (const Shape& shape : {Shape{2, 4, 6, 6}, Shape{2, 3}}) {
      for (int n = op.min_inputs; n <= std::min(op.max_inputs, op.min_inputs + 1); ++n) {
        signatures.emplace_back(n, Fed(shape, dtype));
      }
    }
  }
  return signatures;
}

}  // namespace

std::unique_ptr<SingleNodeImporter> MakeExampleNode(const OpExample& example) {
  auto node = std::make_unique<SingleNodeImporter>(example.op_type, example.version, example.domain);
  for (const In& in : example.inputs) {
    switch (in.kind) {
      case In::kFed:
        node->Input(in.type);
        break;
      case In::kWeight:
        node->Input(in.type, InputKind::kParameter);
        break;
      case In::kConstant:
        node->Constant(in.value);
        break;
      case In::kAbsent:
        node->Absent();
    }
  }
  for (const auto& [name, value] : example.attrs) node->Attr(std::string(name), value);
  node->Outputs(example.outputs);
  node->training = true;
  return node;
}

absl::StatusOr<Graph> ImportExample(const OpExample& example) {
  const std::unique_ptr<SingleNodeImporter> node = MakeExampleNode(example);
  ASSIGN_OR_RETURN(const std::vector<Val> outputs, node->Import());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]) node->graph().AddOutput(StrCat("y", i), outputs[i].id());
  }
  return std::move(node->graph());
}

absl::StatusOr<OpExample> FindExample(const OnnxOp& op) {
  if (const OpExample* example = Find(op.domain, op.op_type)) return *example;
  // Operators of the same name in other domains mostly accept the same inputs.
  if (const OpExample* example = Find("", op.op_type)) {
    OpExample other = *example;
    other.domain = op.domain;
    other.version = 1;
    if (ImportExample(other).ok()) return other;
  }
  absl::Status last = Invalid("no inputs to try");
  for (const std::vector<In>& inputs : CommonInputs(op)) {
    OpExample example{std::string(op.domain), std::string(op.op_type), op.domain.empty() ? 17 : 1, inputs};
    const auto graph = ImportExample(example);
    if (graph.ok() && !graph->outputs().empty()) return example;
    if (!graph.ok()) last = graph.status();
  }
  return Annotate(last, StrCat("no example of ", op.domain, op.domain.empty() ? "" : ".", op.op_type,
                               " (tools/op_table/examples.cc): "));
}

}  // namespace onnxtrain
