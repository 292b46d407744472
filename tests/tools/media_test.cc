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
  void LeavesOut(const std::string& flags, const std::string& count, const std::string& name) const {
    const Outcome run = Train(flags + " --epochs 1 --on-bad-sample skip");
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.err.find("left out " + count + " samples"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(name), std::string::npos) << run.err;
  }
  void Refuses(const std::string& flags, const std::string& part) const { ExpectRefused(Train(flags), part); }
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
  Json Standardized() const {
    const Json preprocess = Json::parse(ReadAll(Path("r/preprocess.json")));
    return preprocess["audio"].value("standardize", Json());
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

TEST_F(Sounds, TheModelsFilesSayTheirRate) {
  Write("preprocessor_config.json", R"({"feature_size": 1, "sampling_rate": 4000})");
  const Outcome run = Train("--data sounds --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["audio"]["sample_rate"], 4000);
}

// wav2vec2's files ask for zero mean and unit variance of each sound, whatever its loudness and offset.
TEST_F(Sounds, TheModelsFilesStandardizeThem) {
  std::vector<int16_t> quiet, loud;
  for (int t = 0; t < 30; ++t) {
    quiet.push_back(static_cast<int16_t>(1000 + 40 * (t % 7)));
    loud.push_back(static_cast<int16_t>(-3000 + 400 * (t % 7)));
  }
  Write("two/quiet.wav", Wav(8000, 1, quiet));
  Write("two/loud.wav", Wav(8000, 1, loud));
  const auto predict = [&](const std::string& config) {
    if (!config.empty()) Write("preprocessor_config.json", config);
    const Outcome run = Train("--data sounds --sample-rate 8000 --epochs 2");
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err.find("zero mean and unit variance") == std::string::npos, Standardized().is_null()) << run.err;
    EXPECT_EQ(Run("predict --model r/model.onnx --data two --out p.csv").code, 0);
    std::istringstream lines(ReadAll(Path("p.csv")));
    std::vector<double> probabilities;
    for (std::string line; std::getline(lines, line);)
      probabilities.push_back(std::atof(line.substr(line.rfind(',') + 1).c_str()));
    return std::abs(probabilities.at(1) - probabilities.at(2));
  };
  EXPECT_GT(predict(""), 1e-2);
  EXPECT_LT(predict(R"({"feature_size": 1, "sampling_rate": 8000, "do_normalize": true})"), 1e-4);
  EXPECT_EQ(Standardized(), true);
  EXPECT_LT(
      predict(R"({"feature_size": 1, "sampling_rate": 8000, "feature_extractor_type": "Wav2Vec2FeatureExtractor"})"),
      1e-4)
      << "the default of that class";
  EXPECT_GT(predict(R"({"feature_size": 1, "sampling_rate": 8000, "do_normalize": false})"), 1e-2);
  EXPECT_GT(predict(R"({"feature_size": 80, "sampling_rate": 8000, "do_normalize": true})"), 1e-2) << "spectrograms";
}

// Padded frames have the value that the files name, not 0 scaled like the sound.
TEST_F(Sounds, TheModelsFilesSayThePadding) {
  Write("preprocessor_config.json",
        R"({"feature_size": 1, "sampling_rate": 8000, "do_normalize": true, "padding_value": 50})");
  Write("short/a.wav", Wav(8000, 1, {100, -100, 100, -100}));
  ASSERT_EQ(Train("--data sounds --max-steps 1").code, 0);
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["audio"]["padding"], 50);
  const auto predict = [&] {
    const Outcome o = Run("predict --model r/model.onnx --data short --out p.csv");
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string text = ReadAll(Path("p.csv"));
    return std::abs(std::atof(text.substr(text.rfind(',') + 1).c_str()) - 0.5);
  };
  const double padded = predict();
  std::string preprocess = ReadAll(Path("r/preprocess.json"));
  const size_t at = preprocess.find("50");
  ASSERT_NE(at, std::string::npos);
  Write("r/preprocess.json", preprocess.replace(at, 2, " 0"));
  EXPECT_GT(padded, predict() + 0.1);
}

TEST_F(Sounds, TheCacheChangesNoRun) {
  const std::string flags = "--data sounds --sample-rate 8000 --max-steps 6 --batch-size 8 ";
  ASSERT_EQ(Train(flags + "--num-workers 0").code, 0);
  const std::string model = ReadAll(Path("r/model.onnx"));
  const Outcome kept = Train(flags + "--num-workers 3 --cache ram");
  ASSERT_EQ(kept.code, 0) << kept.err;
  EXPECT_NE(kept.err.find("decoded samples stay in memory"), std::string::npos) << kept.err;
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
  ASSERT_EQ(Train(flags + "--cache ram:1KiB").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model) << "a cache that holds some of them";
}

TEST_F(Sounds, BrokenFilesAreSkippedByName) {
  Write("sounds/high/x.wav", "RIFF, and no more");
  Refuses("--data sounds --sample-rate 8000", "sounds/high/x.wav");
  LeavesOut("--data sounds --sample-rate 8000", "1 of 25", "sounds/high/x.wav");
  Write("t.csv", table_ + "sounds/low/gone.wav,down\n");
  LeavesOut("--data t.csv --sample-rate 8000", "1 of 25", "(--on-bad-sample skip): sounds/low/gone.wav");
}

TEST_F(Sounds, ABrokenMp3IsOneLine) {
  Write("sounds/high/x.mp3", "no frames of MPEG audio");
  const Outcome run = Train("--data sounds --sample-rate 8000");
  ExpectRefused(run, "sounds/high/x.mp3: no readable sound of its format (");
  EXPECT_EQ(run.err.find("Note:"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("error"), run.err.rfind("error")) << run.err;
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
  EXPECT_TRUE(predictions.starts_with("sample,file,prediction,probability,p_blue,p_red\n0,blue/1.bmp,blue,"))
      << predictions;
  EXPECT_NE(predictions.find("\n23,red/8.bmp,red,"), std::string::npos) << predictions;
}

// Folders are sorted as texts, which is told; a class without a name gets one that no other class has.
TEST_F(Pictures, FoldersThatAreNumbersAreToldWhereTheirOrderDiffers) {
  Linear({3, 6, 6}, 4).Save(Path("m.onnx"));
  for (int i = 0; i < 9; ++i)
    Write(StrCat("numbers/", std::vector<int>{2, 10, 3}[i % 3], "/", i, ".bmp"),
          Bmp(8, 8, [&](int, int) { return i; }));
  const Outcome run = Train("--data numbers --epochs 1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(
      run.err.find("classes are numbered in the order of their names as text: '10' is class 0, before '2' (--class"),
      std::string::npos)
      << run.err;
  ASSERT_EQ(Run("predict --model r/model.onnx --data numbers --out p.csv").code, 0);
  const std::string predictions = ReadAll(Path("p.csv"));
  EXPECT_TRUE(predictions.starts_with("sample,file,prediction,probability,p_10,p_2,p_3,p_class_3\n")) << predictions;
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
  LeavesOut("--data pictures", "2 of 27", "red/empty.png");
  EXPECT_EQ(Summary()["samples"], 25);
}

TEST_F(Pictures, TablesAndArchivesSkipBadSamplesByName) {
  Write("t.csv", "path,label\npictures/red/0.bmp,1\npictures/blue/1.bmp,0\npictures/gone.bmp,1\n");
  LeavesOut("--data t.csv", "1 of 3", "(--on-bad-sample skip): t.csv: row 4");
  for (int i = 0; i < 4; ++i) {
    Write(StrCat("tar/", i, ".bmp"),
          i == 2 ? "BM" : ReadAll(Path(StrCat("pictures/", i % 2 == 0 ? "red/" : "blue/", i, ".bmp"))));
    Write(StrCat("tar/", i, ".cls"), StrCat(i % 2));
  }
  ASSERT_EQ(std::system(StrCat("tar --sort=name -C ", Path("tar"), " -cf ", Path("s.tar"), " .").c_str()), 0);
  Refuses("--data s.tar --epochs 1", "2.bmp");
  LeavesOut("--data s.tar", "1 of 4", "2.bmp");
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
  EXPECT_NE(beside.err.find("preprocessor_config.json says: --normalize 0.5,0.5,0.5/1,1,1"), std::string::npos)
      << beside.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["normalize"], "0.5,0.5,0.5/1,1,1");
  EXPECT_EQ(Train("--data pictures --epochs 1 --normalize raw").err.find("says: --normalize"), std::string::npos);
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["normalize"], "raw");
  Write("preprocessor_config.json", "[]");
  EXPECT_EQ(Train("--data pictures --epochs 1").err.find("the model wants"), std::string::npos);
}

// The flags that the program proposes because of the first nodes of a model; "" for none.
class InnerNormalization : public Pictures {
 protected:
  std::string Propose(const std::vector<tiny::Op>& front, const std::string& flags = "") const {
    tiny::Model m = Linear({3, 6, 6}, 2);
    m.nodes[0].inputs[0] = "n";
    m.nodes.insert(m.nodes.begin(), front.begin(), front.end());
    const std::vector<float> mean = {0.485F, 0.456F, 0.406F}, bgr = {103.939F, 116.779F, 123.68F};
    m.weights.push_back({"mean", {1, 3, 1, 1}, mean});
    m.weights.push_back({"std", {1, 3, 1, 1}, {0.229F, 0.224F, 0.225F}});
    m.weights.push_back({"bgr_mean", {3, 1, 1}, bgr});
    for (const float value : {255.0F, 127.5F, 1.0F, 0.00392157F})
      m.weights.push_back({StrCat("c", static_cast<int>(value)), {}, {value}});
    m.Save(Path("m.onnx"));
    const Outcome run = Train("--data pictures --max-steps 1 " + flags);
    EXPECT_EQ(run.code, 0) << run.err;
    const std::string key = "says what it does to input 'x' first: ";
    const size_t at = run.err.find(key);
    return at == std::string::npos ? "" : run.err.substr(at + key.size(), run.err.find('\n', at) - at - key.size());
  }
};

TEST_F(InnerNormalization, TellsWhatPixelsTheModelTakes) {
  const tiny::Op minus_mean{"Sub", {"x", "mean"}, {"m"}}, over_std{"Div", {"m", "std"}, {"n"}};
  EXPECT_EQ(Propose({minus_mean, over_std}), "") << "pixels from 0 to 1 are the default";
  EXPECT_EQ(Propose({minus_mean, over_std}, "--normalize imagenet"), "--normalize unit");
  EXPECT_EQ(Propose({minus_mean, over_std}, "--normalize unit --channel-order bgr"), "--channel-order rgb");
  EXPECT_EQ(Propose({{"Mul", {"x", "c0"}, {"n"}}}), "--normalize raw");
  EXPECT_EQ(Propose({{"Div", {"x", "c127"}, {"d"}}, {"Sub", {"d", "c1"}, {"n"}}}), "--normalize raw");
  EXPECT_EQ(Propose({{"Mul", {"x", "c255"}, {"m"}}, {"Sub", {"m", "bgr_mean"}, {"n"}}}), "--channel-order bgr");
  EXPECT_EQ(Propose({{"Sub", {"x", "bgr_mean"}, {"n"}}}), "--normalize raw --channel-order bgr");
  const std::vector<tiny::Op> reversed = {{"Split", {"x"}, {"red", "green", "blue"}, {}, {{"axis", 1}}},
                                          {"Concat", {"blue", "green", "red"}, {"v"}, {}, {{"axis", 1}}},
                                          {"Sub", {"v", "bgr_mean"}, {"n"}}};
  EXPECT_EQ(Propose(reversed), "--normalize raw") << "the model reverses the channels itself";
  EXPECT_EQ(Propose(reversed, "--normalize raw --channel-order bgr"), "--channel-order rgb");
}

TEST_F(InnerNormalization, SaysNothingWhereItCannotTell) {
  EXPECT_EQ(Propose({{"Relu", {"x"}, {"n"}}}), "");
  EXPECT_EQ(Propose({{"Mul", {"x", "c0"}, {"m"}}, {"Add", {"m", "x"}, {"n"}}}), "") << "about 1: as it comes";
  EXPECT_EQ(Propose({{"Mul", {"x", "c255"}, {"m"}}, {"Mul", {"m", "c255"}, {"n"}}}), "") << "no usual pixels";
  EXPECT_EQ(Propose({{"Mul", {"x", "c0"}, {"m"}}, {"Relu", {"m"}, {"n"}}}), "--normalize raw") << "up to Relu";
}

TEST_F(Pictures, MixedSamplesTrainAndResumeExactly) {
  const std::string flags = "--data pictures --batch-size 8 --eval-split 0.3 --augment ";
  const std::string mixed = flags + "mixup,cutmix,crop,flip,color,rotate:20,randaugment,erase --num-workers ";
  ASSERT_EQ(Train(mixed + "0 --max-steps 18").code, 0);
  const std::string model = ReadAll(Path("r/model.onnx"));
  ASSERT_EQ(Train(mixed + "3 --max-steps 18 --cache ram").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model) << "neither threads nor the cache change a run";
  ASSERT_EQ(Train(mixed + "0 --max-steps 1").code, 0);
  const double loss = Summary()["final_loss"];
  ASSERT_EQ(Train(mixed + "4 --max-steps 1 --micro-batch-size 2").code, 0);
  EXPECT_NEAR(Summary()["final_loss"], loss, 1e-6) << "micro-batches see the same pixels";
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
  ExpectRefused(Run("--model mlp.onnx --data d.csv --augment mixup --out q"), "--augment: has no effect");
  Refuses("--data pictures --augment mixup:0", "'mixup:0': expected mixup:X with X above 0");
  Refuses("--data pictures --cache disk", "--cache: expected none, ram or ram:SIZE");
  Refuses("--data pictures --cache ram --augment crop --decode-scaling", "--cache: keeps whole pictures");
  ExpectRefused(Run("--model mlp.onnx --data d.csv --cache ram --out q"), "the samples of d.csv are in memory already");
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

// Red and blue pictures of 24 sizes for a model that averages over all pixels.
class SeveralSizes : public Pictures {
 protected:
  SeveralSizes() { Averaging({{"Conv", {"x", "k"}, {"c"}}}).Save(Path("m.onnx")); }

  // x[batch,3,height,width] → `front`, which gives c of 4 channels → classes.
  static tiny::Model Averaging(std::vector<tiny::Op> front) {
    tiny::Model m{.input_shape = {-1, 3, -2, -3}, .nodes = std::move(front)};
    const std::vector<tiny::Op> back = {{"Relu", {"c"}, {"r"}},
                                        {"GlobalAveragePool", {"r"}, {"a"}},
                                        {"Flatten", {"a"}, {"f"}},
                                        {"MatMul", {"f", "w"}, {"p"}},
                                        {"Add", {"p", "b"}, {"y"}}};
    m.nodes.insert(m.nodes.end(), back.begin(), back.end());
    m.weights = {
        {"k", {4, 3, 1, 1}, tiny::Uniform(12, 0.5F, 1)}, {"w", {4, 2}, tiny::Uniform(8, 0.5F, 2)}, {"b", {2}, {0, 0}}};
    return m;
  }
  double Loss(const std::string& flags) const {
    const Outcome run = Run("eval --json " + flags);
    EXPECT_EQ(run.code, 0) << flags << ": " << run.err;
    return run.code == 0 ? Json::parse(run.out)["loss"].get<double>() : -1;
  }
  // Colors and their classes at the same places, in pairs of files.
  void WritePair(int i, int width, int height, int mask_width) const {
    const auto red = [&](int x, int y) { return (x + y * i) % 3 == 0; };
    Write(StrCat("pairs/images/", i, ".bmp"),
          Bmp(width, height, [&](int x, int y) { return red(x, y) ? 0xff0000 : 0x0000ff; }));
    Write(StrCat("pairs/masks/", i, ".bmp"),
          GreyBmp(mask_width, height, [&](int x, int y) { return red(x, y) ? 1 : 0; }));
  }
};

TEST_F(SeveralSizes, TrainWithoutResizing) {
  const Outcome run = Train("--data pictures --epochs 30 --batch-size 8");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("pictures keep their sizes: 24 sizes from 9 × 8 to 9 × 31 (--image-size N"), std::string::npos)
      << run.err;
  EXPECT_EQ(Json::parse(ReadAll(Path("r/preprocess.json")))["pictures"]["size_multiple"], 1);
  EXPECT_EQ(Accuracy("--model r/model.onnx --data pictures"), 1);
  const double one = Loss("--model r/model.onnx --data pictures --batch-size 1");
  EXPECT_NEAR(Loss("--model r/model.onnx --data pictures --batch-size 24"), one, 1e-6 * one);
  ASSERT_EQ(Run("predict --model r/model.onnx --data pictures --out p1.csv --batch-size 1").code, 0);
  ASSERT_EQ(Run("predict --model r/model.onnx --data pictures --out p24.csv --batch-size 24").code, 0);
  EXPECT_EQ(ReadAll(Path("p1.csv")), ReadAll(Path("p24.csv"))) << "in the order of the samples";
}

// Files of transformers set the size that pictures get: stretched, or cut out of the middle.
TEST_F(SeveralSizes, ThePreprocessorConfigSetsOneSize) {
  const auto pictures = [&](const std::string& config, const std::string& flags) {
    Write("preprocessor_config.json", config);
    const Outcome run = Train("--data pictures --epochs 1 " + flags);
    EXPECT_EQ(run.code, 0) << run.err;
    const Json preprocess = Json::parse(ReadAll(Path("r/preprocess.json")));
    const Json& p = preprocess["pictures"];
    return StrCat(p["height"].get<int>(), "x", p["width"].get<int>(), " ", p["resize"].get<std::string>(), " ",
                  preprocess["normalize"].get<std::string>());
  };
  EXPECT_EQ(pictures(R"({"do_rescale": true, "size": {"height": 12, "width": 10}})", ""), "12x10 stretch unit");
  EXPECT_EQ(pictures(R"({"do_rescale": false, "do_normalize": false, "size": {"shortest_edge": 9},
                        "crop_size": {"height": 7, "width": 7}})",
                     ""),
            "7x7 crop raw");
  EXPECT_EQ(pictures(R"({"do_rescale": true, "size": 12})", "--image-size 6 --resize pad --normalize imagenet"),
            "6x6 pad imagenet");
}

// The filter of the files, or the default of their class, also for predictions with the trained model.
TEST_F(SeveralSizes, ThePreprocessorConfigSetsTheFilter) {
  const auto filter = [&](const std::string& config) {
    Write("preprocessor_config.json", config);
    const Outcome run = Train("--data pictures --epochs 1 --image-size 7");
    EXPECT_EQ(run.code, 0) << run.err;
    const std::string name =
        Json::parse(ReadAll(Path("r/preprocess.json")))["pictures"].value("resample", std::string("bilinear"));
    const bool noted = run.err.find("resample " + name) != std::string::npos;
    return name + (noted ? "" : " by default");
  };
  EXPECT_EQ(filter(R"({"do_rescale": true})"), "bilinear by default");
  EXPECT_EQ(filter(R"({"do_rescale": true, "resample": 3})"), "bicubic");
  EXPECT_EQ(filter(R"({"do_rescale": true, "resample": 1, "image_processor_type": "CLIPImageProcessor"})"), "lanczos");
  EXPECT_EQ(filter(R"({"do_rescale": true, "image_processor_type": "EfficientNetImageProcessor"})"), "nearest");
  EXPECT_EQ(filter(R"({"do_rescale": true, "feature_extractor_type": "CLIPFeatureExtractor"})"), "bicubic");
  EXPECT_EQ(filter(R"({"do_rescale": true, "resample": 17})"), "bilinear by default");
  const auto predict = [&] {
    EXPECT_EQ(Run("predict --model r/model.onnx --data pictures --out p.csv").code, 0);
    return ReadAll(Path("p.csv"));
  };
  const std::string bilinear = predict();
  std::string preprocess = ReadAll(Path("r/preprocess.json"));
  const std::string field = R"("resize": )";
  Write("r/preprocess.json", std::string(preprocess).insert(preprocess.find(field), R"("resample": "lanczos", )"));
  EXPECT_NE(predict(), bilinear);
  Write("r/preprocess.json", preprocess.insert(preprocess.find(field), R"("resample": "cubic", )"));
  ExpectRefused(Run("predict --model r/model.onnx --data pictures --out p.csv"), "no filter is named 'cubic'");
}

TEST_F(SeveralSizes, NeitherThreadsNorTheCacheNorResumingChangeARun) {
  const std::string flags =
      "--data pictures --eval-split 0.3 --batch-size 8 --augment flip,color,rotate:20,randaugment";
  ASSERT_EQ(Train(flags + " --num-workers 0 --max-steps 9").code, 0);
  const std::string model = ReadAll(Path("r/model.onnx"));
  ASSERT_EQ(Train(flags + " --num-workers 3 --max-steps 9 --cache ram").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
  ASSERT_EQ(Train(flags + " --num-workers 1 --max-steps 4").code, 0);
  ASSERT_EQ(Run("--resume r --quiet --max-steps 9").code, 0);
  EXPECT_EQ(ReadAll(Path("r/model.onnx")), model);
}

TEST_F(SeveralSizes, GroupingBringsEqualSizesTogether) {
  for (int i = 0; i < 32; ++i)
    Write(StrCat("two/", i % 2, "/", i, ".bmp"), Bmp(8 + i / 2 % 2, 9, [](int, int) { return 0x808080; }));
  const auto programs = [&](const std::string& flags) {
    EXPECT_EQ(Train("--data two --batch-size 8 --dump-order o.tsv --epochs 1 " + flags).code, 0);
    return ReadAll(Path("o.tsv"));
  };
  EXPECT_NE(programs("--no-length-grouping"), programs(""));
  EXPECT_EQ(programs("--length-grouping"), programs("")) << "the default where sizes differ";
  for (int i = 0; i < 8; ++i) Write(StrCat("one/", i % 2, "/", i, ".bmp"), Bmp(8, 9, [](int, int) { return 0; }));
  Refuses("--data one --length-grouping", "all samples have the same length");
  EXPECT_EQ(Train("--data one --epochs 1").code, 0);
}

TEST_F(SeveralSizes, MasksArePaddedWithIgnoredLabels) {
  for (int i = 0; i < 16; ++i) WritePair(i, 5 + i % 5, 6 + i % 3, 5 + i % 5);
  tiny::Model m{.input_shape = {-1, 3, -2, -3}};
  m.nodes = {{"MaxPool", {"x"}, {"half"}, {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}},
             {"ConvTranspose", {"half", "up"}, {"coarse"}, {{"strides", {2, 2}}}},
             {"Conv", {"x", "k"}, {"fine"}},
             {"Add", {"coarse", "fine"}, {"y"}}};
  m.weights = {{"up", {3, 2, 2, 2}, tiny::Uniform(24, 0.2F, 1)}, {"k", {2, 3, 1, 1}, tiny::Uniform(6, 0.5F, 2)}};
  m.Save(Path("m.onnx"));
  const std::string pairs = "--data pairs --input x=images --label mask=masks ";
  const Outcome run = Train(pairs + "--epochs 100 --batch-size 5");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("padded to multiples of 2 ("), std::string::npos) << run.err;
  EXPECT_EQ(Accuracy("--model r/model.onnx --data pairs"), 1);
  const double one = Loss("--model r/model.onnx --data pairs --batch-size 1");
  EXPECT_NEAR(Loss("--model r/model.onnx --data pairs --batch-size 16"), one, 1e-6 * one);
  for (const char* data : {"pairs", "pairs/images"})
    EXPECT_EQ(Run(StrCat("predict --model r/model.onnx --batch-size 1 --data ", data, " --out p.csv")).code, 0);
  tiny::Model one_channel = m;
  one_channel.weights = {{"up", {3, 1, 2, 2}, tiny::Uniform(12, 0.2F, 1)},
                         {"k", {1, 3, 1, 1}, tiny::Uniform(3, 0.5F, 2)}};
  one_channel.Save(Path("m.onnx"));
  Refuses(pairs + "--loss bce", "would count in loss bce, which ignores no labels");
  m.Save(Path("m.onnx"));
  WritePair(16, 7, 7, 8);
  Refuses(pairs, "16.bmp: has 7 × 8 pixels, its counterpart another size");
  const Outcome skipped = Train(pairs + "--epochs 1 --on-bad-sample skip");
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("left out 1 of 17 samples"), std::string::npos) << skipped.err;
  ASSERT_EQ(Train(pairs + "--epochs 1 --on-bad-sample skip --eval-split last:0.25").code, 0);
  const std::string report = ReadAll(Path("r/report.html"));
  for (const char* map : {"<img alt=\"label\"", "<img alt=\"prediction\""})
    EXPECT_NE(report.find(map), std::string::npos) << map;
}

// Most programs draw masks in black and white.
TEST_F(SeveralSizes, DrawnMasksAreLabelsOfZeroAndOne) {
  const auto red = [](int x, int y) { return (x + 2 * y) % 3 == 0; };
  for (int i = 0; i < 8; ++i) {
    for (const std::string folder : {"ones", "drawn"}) {
      Write(StrCat(folder, "/images/", i, ".bmp"),
            Bmp(6, 6, [&](int x, int y) { return red(x + i, y) ? 0xff0000 : 0x0000ff; }));
      const int white = folder == "ones" ? 1 : 255;
      Write(StrCat(folder, "/masks/", i, ".bmp"),
            GreyBmp(6, 6, [&](int x, int y) { return red(x + i, y) ? white : 0; }));
    }
  }
  tiny::Model m{.input_shape = {-1, 3, -2, -3}};
  m.nodes = {{"Conv", {"x", "k"}, {"y"}}};
  m.weights = {{"k", {1, 3, 1, 1}, tiny::Uniform(3, 0.5F, 2)}};
  m.Save(Path("m.onnx"));
  const std::string columns = " --input x=images --label mask=masks ";
  for (const std::string loss : {"bce", "dice"}) {
    const Outcome run = Train(StrCat("--data drawn", columns, "--epochs 20 --loss ", loss));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.err.find("labels 'mask' of 0 and 255 are taken for 0 and 1"), std::string::npos) << run.err;
    Write("plain.onnx", ReadAll(Path("r/model.onnx")));
    EXPECT_EQ(Loss("--model r/model.onnx --data drawn"),
              Loss(StrCat("--model plain.onnx --data ones", columns, "--loss ", loss)));
  }
  for (int i = 0; i < 80; ++i) {
    Write(StrCat("late/images/", 100 + i, ".bmp"), Bmp(6, 6, [&](int x, int y) { return red(x, y) ? 0xff0000 : 255; }));
    Write(StrCat("late/masks/", 100 + i, ".bmp"), GreyBmp(6, 6, [&](int x, int) { return i > 77 && x > 2 ? 255 : 0; }));
  }
  EXPECT_LT(Loss("--model r/model.onnx --data late"), 2) << "training has decided what masks are";
  Write("late/masks/178.bmp", GreyBmp(6, 6, [&](int x, int) { return x > 2 ? 1 : 0; }));
  EXPECT_NE(Run("eval --model r/model.onnx --data late").err.find("1 in a mask of 0 and 255"), std::string::npos);
  tiny::Model classes = m;
  classes.weights = {{"k", {2, 3, 1, 1}, tiny::Uniform(6, 0.5F, 2)}};
  classes.Save(Path("m.onnx"));
  const Outcome two = Train(StrCat("--data drawn", columns, "--epochs 150"));
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_NE(two.err.find("labels 'mask' of 0 and 255 are taken for 0 and 1"), std::string::npos) << two.err;
  EXPECT_EQ(Accuracy("--model r/model.onnx --data drawn"), 1);
  m.Save(Path("m.onnx"));
  Write("drawn/masks/7.bmp", GreyBmp(6, 6, [&](int x, int y) { return red(x, y) ? 77 : 0; }));
  Refuses(StrCat("--data drawn", columns, "--loss bce"), "is outside of 0 to 1, the labels of bce");
  Write("drawn/masks/7.bmp", GreyBmp(6, 6, [&](int x, int y) { return red(x, y) ? 255 : 0; }));
  Write("drawn/masks/0.bmp", "no picture");
  const Outcome skipped = Train(StrCat("--data drawn", columns, "--epochs 1 --loss bce --on-bad-sample skip"));
  EXPECT_NE(skipped.err.find("left out 1 of 8 samples"), std::string::npos) << skipped.err;
}

TEST_F(SeveralSizes, WhatTakesOneSizeOnlyIsRefused) {
  Refuses("--data pictures --augment crop", "--augment crop: only with pictures of one size");
  Averaging({{"MaxPool", {"x"}, {"pooled"}, {{"kernel_shape", {12, 1}}}}, {"Conv", {"pooled", "k"}, {"c"}}})
      .Save(Path("m.onnx"));
  Refuses("--data pictures", "blue/1.bmp: the model takes no pictures of 9 × 9");
  tiny::Model dense = Linear({3, 6, 6}, 2);
  dense.input_shape = {-1, 3, -2, -3};
  dense.Save(Path("m.onnx"));
  Refuses("--data pictures", "--image-size N and --resize make them one size");
  const Outcome run = Train("--data pictures --image-size 6 --resize stretch --epochs 1");
  EXPECT_EQ(run.code, 0) << run.err;
}

}  // namespace
}  // namespace onnxtrain
