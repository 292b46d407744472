// Folders of pictures and sounds through the program.
#include <nlohmann/json.hpp>

#include <cmath>

#include "frontend/base/strings.h"
#include "tests/media_files.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// x[batch, shape…] → classes, linear.
tiny::Model Linear(std::vector<int64_t> sample, int64_t classes) {
  int64_t width = 1;
  for (const int64_t extent : sample) width *= extent;
  tiny::Model m;
  m.input_shape = {-1};
  m.input_shape.insert(m.input_shape.end(), sample.begin(), sample.end());
  m.nodes = {{"Flatten", {"x"}, {"flat"}}, {"MatMul", {"flat", "w"}, {"p"}}, {"Add", {"p", "b"}, {"y"}}};
  m.weights = {{"w", {width, classes}, tiny::Uniform(width * classes, 0.01F, 1)},
               {"b", {classes}, std::vector<float>(classes, 0)}};
  return m;
}

class Media : public Scratch {
 protected:
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    WriteAll(Path(name), bytes);
  }
  Outcome Train(const std::string& flags) const {
    return Run("--model m.onnx --seed 3 --overwrite --out r --lr 0.02 " + flags);
  }
  Json Summary() const { return Json::parse(ReadAll(Path("r/summary.json"))); }
  double Accuracy(const std::string& flags) const {
    const Outcome run = Run("eval --json " + flags);
    EXPECT_EQ(run.code, 0) << flags << ": " << run.err;
    return run.code == 0 ? Json::parse(run.out)["accuracy"].get<double>() : -1;
  }
  void Refuses(const std::string& flags, const std::string& part) const {
    const Outcome run = Train(flags);
    EXPECT_EQ(run.code, 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  }
};

// Sounds above and below zero, at two rates, of one and two channels, of several lengths.
class Sounds : public Media {
 protected:
  Sounds() {
    for (int i = 0; i < 24; ++i) {
      const bool high = i % 2 == 0, fast = i % 3 == 0;
      const int channels = 1 + i % 4 / 2;
      std::vector<int16_t> samples(static_cast<size_t>((fast ? 96 : 48) - i % 5) * channels, high ? 8000 : -8000);
      const std::string name = StrCat(high ? "high/" : "low/", i, ".wav");
      Write("sounds/" + name, Wav(fast ? 16000 : 8000, channels, samples));
      StrAppend(&table_, "sounds/", name, ",", high ? "up" : "down", "\n");
    }
    Linear({40}, 2).Save(Path("m.onnx"));
  }
  std::string table_ = "path,label\n";
};

TEST_F(Sounds, AreResampledCutAndPadded) {
  const Outcome run = Train("--data sounds --sample-rate 8000 --epochs 30");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("sounds: 8000 Hz, 1 channel, 40 frames"), std::string::npos) << run.err;
  const Json audio = Json::parse(ReadAll(Path("r/preprocess.json")))["audio"];
  EXPECT_EQ(audio, Json::parse(R"({"sample_rate": 8000, "channels": 1, "frames": 40})"));
  EXPECT_EQ(Accuracy("--model r/model.onnx --data sounds"), 1);
  const Outcome predicted = Run("predict --model r/model.onnx --data sounds --out p.csv");
  EXPECT_EQ(predicted.code, 0) << predicted.err;
}

TEST_F(Sounds, ATableOfPathsTrains) {
  Write("t.csv", table_);
  const Outcome run = Train("--data t.csv --sample-rate 8000 --epochs 30");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["classes"], Json::parse(R"(["down", "up"])"));
  EXPECT_EQ(Accuracy("--model r/model.onnx --data t.csv"), 1);
}

TEST_F(Sounds, TheModelSaysItsRate) {
  const tiny::Message rate = tiny::Message().Bytes(1, "sample_rate").Bytes(2, "4000");
  WriteAll(Path("m.onnx"), ReadAll(Path("m.onnx")) + tiny::Message().Sub(14, rate).text());
  const Outcome run = Train("--data sounds --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["audio"]["sample_rate"], 4000);
}

TEST_F(Sounds, WhatDoesNotFitIsRefused) {
  Refuses("--data sounds", ".wav: sample rate ");
  Refuses("--data sounds --sample-rate 8000 --audio-length 41", "--audio-length 41: input 'x' takes 40 frames");
  Refuses("--data sounds --audio-length soon", "--audio-length: expected a number of frames or seconds");
  Write("d.csv", "a,b,c,d,y\n1,0,1,0,1\n2,1,0,0,0\n");
  tiny::Mlp(2).Save(Path("m.onnx"));
  Refuses("--data d.csv --sample-rate 8000", "--sample-rate: has no effect: d.csv feeds no files of sound");
}

// Pictures that are red or blue, of several sizes.
class Pictures : public Media {
 protected:
  Pictures() {
    for (int i = 0; i < 24; ++i) {
      const bool red = i % 2 == 0;
      Write(StrCat("pictures/", red ? "red/" : "blue/", i, ".bmp"),
            Bmp(8 + i, 9, [&](int x, int) { return red ? 0xc00000 + 3 * x : 0x0000c0 + (3 * x << 16); }));
    }
    Linear({3, 6, 6}, 2).Save(Path("m.onnx"));
  }
};

// The first frame of a picture of one pixel.
std::string Gif() {
  return std::string("GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;", 35);
}

TEST_F(Pictures, TrainEvaluateAndPredict) {
  ASSERT_EQ(Train("--data pictures --normalize 0.5/0.5 --resize stretch --epochs 30").code, 0);
  const Json preprocess = Json::parse(ReadAll(Path("r/preprocess.json")));
  EXPECT_EQ(preprocess["normalize"], "0.5/0.5");
  EXPECT_EQ(preprocess["classes"], Json::parse(R"(["blue", "red"])"));
  EXPECT_EQ(preprocess["pictures"]["resize"], "stretch");
  EXPECT_EQ(Accuracy("--model r/model.onnx --data pictures"), 1);
  EXPECT_LT(Accuracy("--model r/model.onnx --data pictures --channel-order bgr"), 0.5);
  ASSERT_EQ(Run("predict --model r/model.onnx --data pictures --out p.csv").code, 0);
  const std::string predictions = ReadAll(Path("p.csv"));
  EXPECT_EQ(std::count(predictions.begin(), predictions.end(), '\n'), 25);
  EXPECT_NE(predictions.find("red"), std::string::npos);
}

TEST_F(Pictures, StrayFiles) {
  Write("pictures/.DS_Store", "x");
  Write("pictures/red/.DS_Store", "x");
  Write("pictures/red/Thumbs.db", "x");
  Write("pictures/red/gif.jpg", Gif());
  ASSERT_EQ(Train("--data pictures --epochs 1").code, 0);
  EXPECT_EQ(Summary()["samples"], 25) << "a picture is known by its content";
  Write("pictures/red/empty.png", "");
  Write("pictures/red/text.jpg", "no picture");
  Refuses("--data pictures --epochs 1", "pictures/red/");
  const Outcome skipped = Train("--data pictures --epochs 1 --on-bad-sample skip");
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("left out 2 of 27 samples"), std::string::npos) << skipped.err;
  EXPECT_NE(skipped.err.find("red/empty.png"), std::string::npos) << skipped.err;
  EXPECT_EQ(Summary()["samples"], 25);
}

// What the program writes of the pixels' normalization.
std::string PixelHint(const Outcome& run) {
  const size_t at = run.err.find("pixels are probably normalized");
  return at == std::string::npos ? "" : run.err.substr(at, run.err.find('\n', at) - at);
}

TEST_F(Pictures, AnotherNormalizationFitsBetter) {
  ASSERT_EQ(Train("--data pictures --normalize raw --channel-order bgr --epochs 40").code, 0);
  std::filesystem::copy_file(Path("r/model.onnx"), Path("trained.onnx"));  // without its preprocess.json
  const Outcome wrong = Run("eval --model trained.onnx --data pictures --normalize unit --channel-order rgb");
  ASSERT_EQ(wrong.code, 0) << wrong.err;
  EXPECT_NE(PixelHint(wrong).find("--channel-order bgr"), std::string::npos) << wrong.err;
  const Outcome right = Run("eval --model trained.onnx --data pictures --normalize raw --channel-order bgr");
  ASSERT_EQ(right.code, 0) << right.err;
  EXPECT_EQ(PixelHint(right), "");
}

TEST_F(Pictures, TheModelDeclaresItsPixels) {
  const auto entry = [](const char* key, const char* value) {
    return tiny::Message().Sub(14, tiny::Message().Bytes(1, key).Bytes(2, value)).text();
  };
  const std::string plain = ReadAll(Path("m.onnx"));
  WriteAll(Path("m.onnx"),
           plain + entry("Image.BitmapPixelFormat", "Bgr8") + entry("Image.NominalPixelRange", "NominalRange_0_255"));
  const Outcome run = Train("--data pictures --epochs 1");
  EXPECT_NE(run.err.find("says its metadata: --normalize raw --channel-order bgr"), std::string::npos) << run.err;
  EXPECT_EQ(Train("--data pictures --epochs 1 --normalize raw").err.find("says its metadata"), std::string::npos);
  WriteAll(Path("m.onnx"), plain);
  Write("preprocessor_config.json", R"({"do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [1, 1, 1]})");
  const Outcome beside = Train("--data pictures --epochs 1");
  EXPECT_NE(beside.err.find("preprocessor_config.json: --normalize 0.5,0.5,0.5/1,1,1"), std::string::npos)
      << beside.err;
  Write("preprocessor_config.json", "[]");
  EXPECT_EQ(Train("--data pictures --epochs 1").err.find("the model wants"), std::string::npos);
}

TEST_F(Pictures, MixedSamplesTrainAndResumeExactly) {
  const std::string flags = "--data pictures --batch-size 8 --eval-split 0.3 --augment ";
  const std::string mixed = flags + "mixup,cutmix,flip --num-workers ";
  ASSERT_EQ(Train(mixed + "0 --max-steps 18").code, 0);
  const std::string model = ReadAll(Path("r/model.onnx"));
  ASSERT_EQ(Train(mixed + "3 --max-steps 18 --cache ram").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model) << "neither threads nor the cache change a run";
  ASSERT_EQ(Train(mixed + "1 --max-steps 5").code, 0);
  ASSERT_EQ(Run("--resume r --quiet --max-steps 18").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
  EXPECT_EQ(Accuracy("--model r/model.onnx --data pictures"), 1) << "labels of an evaluation are classes";
  ASSERT_EQ(Train(flags + "flip --max-steps 18").code, 0);
  EXPECT_NE(ReadAll(Path("r/model.onnx")), model);
}

TEST_F(Pictures, WhatCannotBeMixedOrKeptIsRefused) {
  Write("d.csv", "a,b,c,d,y\n1,0,1,0,1\n2,1,0,0,0\n");
  tiny::Mlp(2).Save(Path("mlp.onnx"));
  const Outcome no_pictures = Run("--model mlp.onnx --data d.csv --augment mixup --out q");
  EXPECT_EQ(no_pictures.code, 1);
  EXPECT_NE(no_pictures.err.find("--augment: has no effect"), std::string::npos) << no_pictures.err;
  Refuses("--data pictures --augment mixup:0", "'mixup:0': expected mixup:X with X above 0");
  Refuses("--data pictures --cache disk", "--cache: expected none, ram or ram:SIZE");
  Refuses("--data pictures --cache ram --augment crop --decode-scaling", "--cache: keeps whole pictures");
  const Outcome in_memory = Run("--model mlp.onnx --data d.csv --cache ram --out q");
  EXPECT_EQ(in_memory.code, 1);
  EXPECT_NE(in_memory.err.find("the samples of d.csv are in memory already"), std::string::npos) << in_memory.err;
}

TEST_F(Pictures, BenchTimesAugmentation) {
  const Outcome plain = Run("bench --model m.onnx --data pictures --json");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_FALSE(Json::parse(plain.out).contains("augment_samples_per_second"));
  const Outcome augmented = Run("bench --model m.onnx --data pictures --augment crop,flip,rotate:20 --json");
  ASSERT_EQ(augmented.code, 0) << augmented.err;
  EXPECT_TRUE(Json::parse(augmented.out).contains("augment_samples_per_second"));
  EXPECT_EQ(Run("bench --model m.onnx --augment flip").code, 1) << "without effect";
}

}  // namespace
}  // namespace onnxtrain
