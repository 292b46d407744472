// `--augment` for pictures in arrays, through the program.
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class AugmentedArrays : public Scratch {
 protected:
  AugmentedArrays() {
    Save("u8.npz", DType::kUInt8, {2, 8, 8});
    tiny::Model m{.input_shape = {-1, 1, 8, 8}};
    m.nodes = {{"Flatten", {"x"}, {"flat"}}, {"MatMul", {"flat", "w"}, {"p"}}, {"Add", {"p", "b"}, {"y"}}};
    m.weights = {{"w", {64, 2}, tiny::Uniform(128, 0.01F, 1)}, {"b", {2}, {0, 0}}};
    m.Save(Path("m.onnx"));
  }
  // Pictures that are bright above (class 1) or below (class 0).
  void Save(const std::string& name, DType dtype, const Shape& labels_and_sides, NamedArrays more = {}) const {
    const int64_t n = 48, side = labels_and_sides[1];
    HostTensor x({dtype, {n, 1, side, side}}), y({DType::kInt64, {n}});
    for (int64_t i = 0; i < n; ++i) {
      y.SetInt(i, i % labels_and_sides[0]);
      for (int64_t p = 0; p < side * side; ++p) {
        const bool bright = (p / side < side / 2) == (i % 2 == 1);
        const double value = double(bright ? 120 : 10) + double((i * 7 + p * 3) % 40);
        dtype == DType::kUInt8 ? x.SetInt(i * side * side + p, int64_t(value)) : x.Set(i * side * side + p, value);
      }
    }
    more.insert(more.begin(), {{"x", x}, {"label", y}});
    ASSERT_TRUE(WriteNpz(Path(name), more).ok());
  }
  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --seed 3 --overwrite --out r --lr 0.02 --batch-size 8 " + flags);
  }
  std::string Trained(const std::string& flags) const {
    const Outcome run = Train(flags);
    EXPECT_EQ(run.code, 0) << flags << ": " << run.err;
    return ReadAll(Path("r/model.onnx"));
  }
  void Refuses(const std::string& flags, const std::string& part) const { ExpectRefused(Train(flags), part); }
};

TEST_F(AugmentedArrays, NeitherThreadsNorResumingChangeARun) {
  const std::string flags =
      "--data u8.npz --eval-split 0.25 --augment crop,flip,color,rotate:20,randaugment,erase,mixup,cutmix ";
  const std::string model = Trained(flags + "--num-workers 0 --max-steps 12");
  EXPECT_EQ(Trained(flags + "--num-workers 3 --max-steps 12"), model);
  Trained(flags + "--num-workers 1 --max-steps 5");
  ASSERT_EQ(Run("--resume r --quiet --max-steps 12").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
  EXPECT_NE(Trained("--data u8.npz --eval-split 0.25 --max-steps 12"), model);
}

TEST_F(AugmentedArrays, EveryChangeTrainsOtherPictures) {
  const std::string plain = Trained("--data u8.npz --max-steps 6");
  for (const char* how :
       {"crop", "flip:1", "vflip:1", "rotate:20", "color", "randaugment", "erase:1", "mixup", "cutmix"})
    EXPECT_NE(Trained(StrCat("--data u8.npz --max-steps 6 --augment ", how)), plain) << how;
  Save("f32.npz", DType::kFloat32, {2, 8, 8});
  const std::string floats = Trained("--data f32.npz --max-steps 6");
  for (const char* how : {"crop", "flip:1", "vflip:1", "rotate:20", "erase:1", "mixup", "cutmix"})
    EXPECT_NE(Trained(StrCat("--data f32.npz --max-steps 6 --augment ", how)), floats) << how;
}

TEST_F(AugmentedArrays, WhatCannotBeChangedIsRefused) {
  Save("f32.npz", DType::kFloat32, {2, 8, 8});
  Refuses("--data f32.npz --augment color", "color and randaugment need pixels of uint8");
  HostTensor boxes({DType::kFloat32, {48, 3, 4}});
  Save("boxes.npz", DType::kUInt8, {2, 8, 8}, {{"boxes", boxes}});
  Refuses("--data boxes.npz --label boxes --loss mse --augment flip", "boxes");
}

TEST_F(AugmentedArrays, ArraysOfBoolAreTold) {
  HostTensor x({DType::kBool, {4, 1, 8, 8}}), y({DType::kInt64, {4}});
  y.SetInt(1, 1);
  ASSERT_TRUE(WriteNpz(Path("bool.npz"), {{"x", x}, {"label", y}}).ok());
  Refuses("--data bool.npz --augment flip",
          "bool.npz feeds no pictures (arrays of bool are none: of uint8 or float32 they are)");
}

TEST_F(AugmentedArrays, BenchTimesIt) {
  const Outcome run = Run("bench --model m.onnx --data u8.npz --augment crop,rotate:20 --json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(Json::parse(run.out).contains("augment_samples_per_second")) << run.out;
}

TEST_F(AugmentedArrays, PixelsOfZeroAndOneAreTold) {
  HostTensor x({DType::kUInt8, {48, 1, 8, 8}}), y({DType::kInt64, {48}});
  for (int64_t i = 0; i < x.size(); ++i) x.SetInt(i, i % 3 == 0);
  ASSERT_TRUE(WriteNpz(Path("ones.npz"), {{"x", x}, {"label", y}}).ok());
  const std::string hint = "the pixels of input 'x' are 0 or 1 in the first 48 samples, and are divided by 255";
  EXPECT_NE(Train("--data ones.npz --epochs 1").err.find(hint), std::string::npos);
  EXPECT_EQ(Train("--data ones.npz --epochs 1 --normalize raw").err.find(hint), std::string::npos);
  EXPECT_EQ(Train("--data u8.npz --epochs 1").err.find("divided by 255"), std::string::npos);
}

}  // namespace
}  // namespace onnxtrain
