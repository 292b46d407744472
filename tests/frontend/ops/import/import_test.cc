// Shapes and attributes that import gives. Numbers are compared by the conformance cases.
#include <gtest/gtest.h>

#include "frontend/ops/row.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;
using Ints = std::vector<int64_t>;

const Node& OnlyNode(SingleNodeImporter& n, std::string_view op) {
  for (const Node& node : n.graph().nodes()) {
    if (node.op == op) return node;
  }
  ADD_FAILURE() << "no " << op;
  return n.graph().nodes().front();
}

Shape OutputShape(SingleNodeImporter& n, size_t output = 0) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {-1};
  EXPECT_TRUE(Verify(n.graph()).ok()) << Verify(n.graph());
  return (*outputs)[output].shape();
}

TEST(ImportConv, AutoPad) {
  SingleNodeImporter upper("Conv", 11), lower("Conv", 11), valid("Conv", 11);
  int i = 0;
  for (SingleNodeImporter* n : {&upper, &lower, &valid}) {
    const char* names[] = {"SAME_UPPER", "SAME_LOWER", "VALID"};
    n->Input({kF32, {1, 2, 8, 7}})
        .Input({kF32, {4, 2, 2, 3}})
        .Attr("strides", Ints{1, 2})
        .Attr("auto_pad", std::string(names[i++]));
  }
  EXPECT_EQ(OutputShape(upper), (Shape{1, 4, 8, 4}));
  EXPECT_EQ(OnlyNode(upper, "Conv").attrs.Ints("pads"), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(OutputShape(lower), (Shape{1, 4, 8, 4}));
  EXPECT_EQ(OnlyNode(lower, "Conv").attrs.Ints("pads"), (Ints{1, 1, 0, 1}));
  EXPECT_EQ(OutputShape(valid), (Shape{1, 4, 7, 3}));
}

TEST(ImportConv, NegativePadsCrop) {
  SingleNodeImporter n("Conv", 11), nothing_left("Conv", 11);
  n.Input({kF32, {1, 1, 6}}).Input({kF32, {1, 1, 3}}).Attr("pads", Ints{-2, 1});
  EXPECT_EQ(OutputShape(n), (Shape{1, 1, 3}));
  nothing_left.Input({kF32, {1, 1, 6}}).Input({kF32, {1, 1, 3}}).Attr("pads", Ints{-3, -3});
  EXPECT_FALSE(nothing_left.Import().ok());
}

TEST(ImportConv, RefusesNonsense) {
  struct {
    const char* attr;
    Ints value;
  } cases[] = {{"strides", {0}},
               {"strides", {1, 1}},
               {"dilations", {-1}},
               {"pads", {0}},
               {"kernel_shape", {5}},
               {"pads", {int64_t{1} << 40, 0}},
               {"strides", {int64_t{1} << 62}},
               {"dilations", {100}}};
  for (const auto& c : cases) {
    for (const char* op : {"Conv", "ConvTranspose"}) {
      if (c.value == Ints{100} && std::string(op) == "ConvTranspose") continue;  // a valid transposed convolution
      SingleNodeImporter n(op, 11);
      n.Input({kF32, {1, 1, 6}}).Input({kF32, {1, 1, 3}}).Attr(c.attr, c.value);
      EXPECT_FALSE(n.Import().ok()) << op << " " << c.attr << " " << ToString(c.value);
    }
  }
}

// output = stride·(in−1) + output_padding + reach − pads, also where the convolution's adjoint alone cannot give it.
TEST(ImportConvTranspose, Extents) {
  struct {
    Ints strides, pads, output_padding, dilations;
    int64_t out;
  } cases[] = {
      {{2}, {0, 0}, {0}, {1}, 9}, {{2}, {1, 1}, {1}, {1}, 8},   {{3}, {0, 2}, {2}, {2}, 14},
      {{1}, {0, 0}, {1}, {2}, 9}, {{2}, {-1, 0}, {0}, {1}, 10}, {{1}, {0, 3}, {0}, {1}, 3},
  };
  for (const auto& c : cases) {
    SingleNodeImporter n("ConvTranspose", 11);
    n.Input({kF32, {2, 3, 4}}).Input({kF32, {3, 5, 3}}).Input({kF32, {5}});
    n.Attr("strides", c.strides)
        .Attr("pads", c.pads)
        .Attr("output_padding", c.output_padding)
        .Attr("dilations", c.dilations);
    EXPECT_EQ(OutputShape(n), (Shape{2, 5, c.out}));
  }
}

TEST(ImportConvTranspose, OutputShapeAndSame) {
  SingleNodeImporter given("ConvTranspose", 11), same("ConvTranspose", 11);
  given.Input({kF32, {1, 1, 3, 3}})
      .Input({kF32, {1, 2, 3, 3}})
      .Attr("strides", Ints{3, 2})
      .Attr("output_shape", Ints{10, 8});
  EXPECT_EQ(OutputShape(given), (Shape{1, 2, 10, 8}));
  same.Input({kF32, {1, 1, 3, 3}})
      .Input({kF32, {1, 2, 3, 3}})
      .Attr("strides", Ints{2, 2})
      .Attr("auto_pad", std::string("SAME_UPPER"));
  EXPECT_EQ(OutputShape(same), (Shape{1, 2, 6, 6}));
}

TEST(ImportPool, CeilModeDropsWindowsThatStartInThePadding) {
  SingleNodeImporter reaches("MaxPool", 12), dropped("MaxPool", 12);
  reaches.Input({kF32, {1, 1, 4}}).Attr("kernel_shape", Ints{3}).Attr("strides", Ints{2}).Attr("ceil_mode", int64_t{1});
  EXPECT_EQ(OutputShape(reaches), (Shape{1, 1, 2}));
  EXPECT_EQ(OnlyNode(reaches, "MaxPool").attrs.Ints("pads"), (Ints{0, 1}));
  dropped.Input({kF32, {1, 1, 4}}).Attr("kernel_shape", Ints{2}).Attr("strides", Ints{4}).Attr("pads", Ints{1, 1});
  dropped.Attr("ceil_mode", int64_t{1});
  EXPECT_EQ(OutputShape(dropped), (Shape{1, 1, 2}));
  SingleNodeImporter beyond("MaxPool",
                            12);  // ⌈(2+2−2)/3⌉+1 = 2 windows, but the second would start at 3, in the end pad
  beyond.Input({kF32, {1, 1, 2}}).Attr("kernel_shape", Ints{2}).Attr("strides", Ints{3}).Attr("pads", Ints{1, 1});
  beyond.Attr("ceil_mode", int64_t{1});
  EXPECT_EQ(OutputShape(beyond), (Shape{1, 1, 1}));
}

TEST(ImportPool, AverageCountsPadsButNotWhatIsBeyondThem) {
  SingleNodeImporter n("AveragePool", 11);
  n.Input({kF32, {1, 1, 4}}).Attr("kernel_shape", Ints{3}).Attr("strides", Ints{2}).Attr("pads", Ints{1, 0});
  n.Attr("ceil_mode", int64_t{1}).Attr("count_include_pad", int64_t{1});
  EXPECT_EQ(OutputShape(n), (Shape{1, 1, 2}));
  SingleNodeImporter over("AveragePool", 11);
  over.Input({kF32, {1, 1, 5}}).Attr("kernel_shape", Ints{3}).Attr("strides", Ints{2}).Attr("pads", Ints{1, 0});
  over.Attr("ceil_mode", int64_t{1}).Attr("count_include_pad", int64_t{1});
  EXPECT_EQ(OutputShape(over), (Shape{1, 1, 3}));
  const Node& pool = OnlyNode(over, "AveragePool");
  EXPECT_EQ(pool.attrs.Int("count_include_pad"), 0);
  EXPECT_EQ(pool.attrs.Ints("pads"), (Ints{0, 1}));
}

// PyTorch pools by windows that are longer than the whole axis, which it clips.
TEST(ImportPool, CeilModeHasAWindowBeyondTheWholeAxis) {
  SingleNodeImporter mean("AveragePool", 19), two("AveragePool", 19), none("AveragePool", 19);
  mean.Input({kF32, {1, 1, 3}}).Attr("kernel_shape", Ints{320}).Attr("strides", Ints{320});
  mean.Attr("ceil_mode", int64_t{1}).Attr("count_include_pad", int64_t{1});
  EXPECT_EQ(OutputShape(mean), (Shape{1, 1, 1}));
  EXPECT_EQ(OnlyNode(mean, "AveragePool").attrs.Ints("kernel_shape"), (Ints{3}));
  none.Input({kF32, {1, 1, 3}}).Attr("kernel_shape", Ints{8}).Attr("strides", Ints{5}).Attr("ceil_mode", int64_t{1});
  EXPECT_FALSE(none.Import().ok());  // ⌈(3−8)/5⌉+1 = 0 windows
  two.Input({kF32, {1, 1, 3}}).Attr("kernel_shape", Ints{4}).Attr("strides", Ints{1}).Attr("ceil_mode", int64_t{0});
  EXPECT_FALSE(two.Import().ok());
}

TEST(ImportPool, MaxIndicesCountThroughAllPlanes) {
  SingleNodeImporter n("MaxPool", 12);
  n.Input({kF32, {2, 3, 4, 4}}).Attr("kernel_shape", Ints{2, 2}).Attr("storage_order", int64_t{1}).Outputs(2);
  EXPECT_EQ(OutputShape(n, 1), (Shape{2, 3, 3, 3}));
}

void AddBatchNormInputs(SingleNodeImporter& n) {
  n.Input({kF32, {4, 3, 2}});
  for (int i = 0; i < 4; ++i) n.Input({kF32, {3}}, InputKind::kFrozen);
}

TEST(ImportBatchNorm, TrainingUpdatesRunningStatistics) {
  SingleNodeImporter n("BatchNormalization", 15);
  n.training = true;
  AddBatchNormInputs(n);
  EXPECT_EQ(OutputShape(n), (Shape{4, 3, 2}));
  EXPECT_EQ(n.updates().size(), 2u);
  OnlyNode(n, "BatchNorm");
}

TEST(ImportBatchNorm, FrozenOrInferenceDoesNot) {
  for (bool frozen : {false, true}) {
    SingleNodeImporter n("BatchNormalization", 15);
    n.training = frozen;
    n.batch_norm_frozen = frozen;
    AddBatchNormInputs(n);
    n.Attr("training_mode", int64_t{1});
    EXPECT_EQ(OutputShape(n), (Shape{4, 3, 2}));
    EXPECT_TRUE(n.updates().empty());
    OnlyNode(n, "BatchNormInference");
  }
}

TEST(ImportSoftmax, FlattensBeforeVersion13) {
  SingleNodeImporter old("Softmax", 11), now("Softmax", 13);
  for (SingleNodeImporter* n : {&old, &now}) n->Input({kF32, {2, 3, 4}});
  EXPECT_EQ(OutputShape(old), (Shape{2, 3, 4}));
  EXPECT_EQ(old.graph().type(OnlyNode(old, "Softmax").outputs[0]).shape, (Shape{2, 12}));
  EXPECT_EQ(OutputShape(now), (Shape{2, 3, 4}));
  EXPECT_EQ(OnlyNode(now, "Softmax").attrs.Int("axis"), 2);
}

TEST(ImportDropout, ActiveInTrainingAlone) {
  SingleNodeImporter inference("Dropout", 13), training("Dropout", 13), off("Dropout", 13);
  for (SingleNodeImporter* n : {&inference, &training, &off}) {
    n->Input({kF32, {2, 3}}).Constant(HostTensor::Scalar(kF32, 0.25)).Outputs(2);
  }
  OutputShape(inference);
  EXPECT_EQ(inference.graph().FindInput("key"), nullptr);
  training.training = true;
  EXPECT_EQ(OutputShape(training, 1), (Shape{2, 3}));
  EXPECT_EQ(OnlyNode(training, "Dropout").attrs.Float("ratio"), 0.25);
  off.training = true;
  off.dropout = 0;
  OutputShape(off);
  EXPECT_EQ(off.graph().FindInput("key"), nullptr);
}

TEST(ImportGroupNorm, ScalePerGroupOrPerChannel) {
  for (auto [version, parts] : {std::pair{18, 2}, std::pair{21, 6}}) {
    SingleNodeImporter n("GroupNormalization", version), wrong("GroupNormalization", version);
    n.Input({kF32, {2, 6, 5}}).Input({kF32, {parts}}).Input({kF32, {parts}}).Attr("num_groups", int64_t{2});
    EXPECT_EQ(OutputShape(n), (Shape{2, 6, 5}));
    wrong.Input({kF32, {2, 6, 5}}).Input({kF32, {parts}}).Input({kF32, {parts}}).Attr("num_groups", int64_t{4});
    EXPECT_FALSE(wrong.Import().ok());
  }
}

TEST(ImportAttention, HeadsAreSplitSharedAndMerged) {
  SingleNodeImporter n("Attention", 23);
  n.Input({kF32, {2, 5, 4 * 8}})
      .Input({kF32, {2, 7, 2 * 8}})
      .Input({kF32, {2, 7, 2 * 6}})
      .Input({DType::kBool, {5, 7}});
  n.Attr("q_num_heads", int64_t{4}).Attr("kv_num_heads", int64_t{2}).Attr("is_causal", int64_t{1});
  EXPECT_EQ(OutputShape(n), (Shape{2, 5, 4 * 6}));
  SingleNodeImporter wrong("Attention", 23);
  wrong.Input({kF32, {2, 5, 32}}).Input({kF32, {2, 7, 16}}).Input({kF32, {2, 7, 12}});
  wrong.Attr("q_num_heads", int64_t{5}).Attr("kv_num_heads", int64_t{2});
  EXPECT_FALSE(wrong.Import().ok());
}

TEST(ImportAttention, FusedNodes) {
  for (const Shape& mask : {Shape{2}, Shape{2, 5}, Shape{2, 5, 5}, Shape{3}}) {
    SingleNodeImporter n("Attention", 1, "com.microsoft");
    n.Input({kF32, {2, 5, 7}}).Input({kF32, {7, 24}}).Input({kF32, {24}}).Input({DType::kInt32, mask});
    n.Attr("num_heads", int64_t{4}).Attr("unidirectional", int64_t{1});
    if (mask == Shape{3})
      EXPECT_EQ(n.Import().status().code(), absl::StatusCode::kUnimplemented);
    else
      EXPECT_EQ(OutputShape(n), (Shape{2, 5, 8}));
  }
  SingleNodeImporter multi("MultiHeadAttention", 1, "com.microsoft");
  multi.Input({kF32, {2, 5, 8}}).Input({kF32, {2, 6, 8}}).Input({kF32, {2, 6, 4}}).Input({kF32, {20}});
  multi.Attr("num_heads", int64_t{2});
  EXPECT_EQ(OutputShape(multi), (Shape{2, 5, 4}));
}

TEST(ImportTransformer, EmbeddingsAndActivations) {
  SingleNodeImporter embed("EmbedLayerNormalization", 1, "com.microsoft");
  embed.Input({DType::kInt32, {2, 5}}).Input({DType::kInt32, {2, 5}}).Input({kF32, {9, 8}}).Input({kF32, {6, 8}});
  embed.Input({kF32, {2, 8}}).Input({kF32, {8}}).Input({kF32, {8}}).Input({DType::kInt32, {2, 5}}).Outputs(2);
  EXPECT_EQ(OutputShape(embed), (Shape{2, 5, 8}));
  for (const char* op : {"BiasGelu", "FastGelu", "QuickGelu"}) {
    SingleNodeImporter n(op, 1, "com.microsoft");
    n.Input({kF32, {2, 8}});
    if (op != std::string("QuickGelu")) n.Input({kF32, {8}});
    EXPECT_EQ(OutputShape(n), (Shape{2, 8})) << op;
  }
}

TEST(ImportLoss, Reductions) {
  for (const char* op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    for (const char* reduction : {"none", "sum", "mean"}) {
      SingleNodeImporter n(op, 13);
      n.Input({kF32, {2, 5, 3}}).Input({DType::kInt32, {2, 3}}).Input({kF32, {5}});
      n.Attr("ignore_index", int64_t{-1}).Attr("reduction", std::string(reduction));
      EXPECT_EQ(OutputShape(n), std::string(reduction) == "none" ? (Shape{2, 3}) : Shape{});
    }
    SingleNodeImporter wrong(op, 13);
    wrong.Input({kF32, {2, 5, 3}}).Input({DType::kInt64, {2}});
    EXPECT_FALSE(wrong.Import().ok());
  }
}

TEST(ImportNorm, OthersKeepTheShape) {
  const Shape shape = {2, 4, 3, 5};
  struct {
    const char *op, *domain;
    std::vector<Shape> more;
  } cases[] = {
      {"InstanceNormalization", "", {{4}, {4}}},
      {"LayerNormalization", "", {{5}, {5}}},
      {"LayerNormalization", "", {{1}}},
      {"RMSNormalization", "", {{5}}},
      {"SkipLayerNormalization", "com.microsoft", {shape, {5}, {5}, {5}}},
      {"LpNormalization", "", {}},
      {"MeanVarianceNormalization", "", {}},
  };
  for (const auto& c : cases) {
    SingleNodeImporter n(c.op, 17, c.domain);
    n.Input({kF32, shape});
    for (const Shape& s : c.more) n.Input({kF32, s});
    EXPECT_EQ(OutputShape(n), shape) << c.op;
  }
  SingleNodeImporter lrn("LRN", 13);
  lrn.Input({kF32, shape}).Attr("size", int64_t{3});
  EXPECT_EQ(OutputShape(lrn), shape);
}

}  // namespace
}  // namespace onnxtrain
