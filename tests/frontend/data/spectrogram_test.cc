// Spectrograms: numbers of the feature extractors of transformers 5.24, and data sets of spectrograms.
#include "frontend/data/audio/spectrogram.h"

#include <cmath>
#include <numbers>

#include "frontend/data/sources/dataset.h"
#include "gmock/gmock.h"
#include "tests/frontend/data/files.h"
#include "tests/media_files.h"

namespace onnxtrain {
namespace {

using testing::Each;
using testing::HasSubstr;

// A rising tone and a high one, at 16 kHz.
std::vector<float> MakeSound(int64_t samples) {
  std::vector<float> sound;
  for (int64_t i = 0; i < samples; ++i) {
    const double t = static_cast<double>(i) / 16000, turn = 2 * std::numbers::pi;
    sound.push_back(static_cast<float>(0.3 * std::sin(turn * (200 + 300 * t) * t) + 0.1 * std::sin(turn * 3000 * t)));
  }
  return sound;
}

struct Extracted {
  const char* style;
  int64_t frames, width;
  std::vector<double> values;  // of the first number of a frame, one after a third, and the last one, in frames 0, 7
                               // and the last
};

const std::vector<Extracted> kExtracted = {
    {"whisper",
     100,
     80,
     {1.06309, 0.189069, 0.0480937, -0.321147, -0.686652, -0.686652, -0.686652, -0.686652, -0.686652}},
    {"nemo", 33, 80, {4.28434, 5.35126, 5.1076, 0.4045, -0.229969, -0.231292, -0.815511, -0.211563, -0.231292}},
    {"ast", 40, 128, {-0.48952, -1.27759, -1.27759, -0.472607, -1.27759, -1.27759, 0.467032, 0.467032, 0.467032}},
    {"seamless", 15, 160, {-0.49314, 0, -0.417192, -1.85066, 0, 0.816556, 0.961963, 0, -0.118201}},
    {"s2t", 31, 80, {-0.501292, -0.862453, 0.676073, -0.551143, -0.326863, -0.607888, 0.780737, 1.25874, -0.913127}}};

TEST(Spectrogram, EqualsTheExtractorsOfTransformers) {
  const std::vector<float> sound = MakeSound(5333);
  for (const Extracted& e : kExtracted) {
    for (const bool bands_first : {false, true}) {
      SpectrogramOptions options = *FindSpectrogramStyle(e.style);
      options.bands_first = bands_first;
      const Spectrogram spectrogram(options, 16000);
      ASSERT_EQ(spectrogram.width(), e.width) << e.style;
      std::vector<float> out(e.frames * e.width);
      spectrogram.Compute(sound, e.frames, out.data());
      for (size_t k = 0; k < e.values.size(); ++k) {
        const int64_t frame = std::vector<int64_t>{0, 7, e.frames - 1}[k / 3];
        const int64_t number = std::vector<int64_t>{0, e.width / 3, e.width - 1}[k % 3];
        const float value = out[bands_first ? number * e.frames + frame : frame * e.width + number];
        // The references are rounded to float32 before bands, some nearly constant, are scaled.
        EXPECT_NEAR(value, e.values[k], 1e-3) << e.style << " frame " << frame << " number " << number;
      }
    }
  }
}

TEST(Spectrogram, CountsFramesOfSounds) {
  for (const Extracted& e : kExtracted) {
    const Spectrogram spectrogram(*FindSpectrogramStyle(e.style), 16000);
    for (const int64_t frames : {1, 2, 77}) {
      const int64_t samples = spectrogram.CountSamples(frames);
      EXPECT_EQ(spectrogram.CountFrames(samples), frames) << e.style;
      EXPECT_EQ(spectrogram.CountFrames(samples - 1), std::max<int64_t>(1, frames - 1)) << e.style;
    }
    std::vector<float> out(2 * e.width, NAN);
    spectrogram.Compute(std::vector<float>{0.5F}, 2, out.data());
    for (const float x : out) EXPECT_TRUE(std::isfinite(x)) << e.style;
  }
}

TEST(Spectrogram, ImpossibleNumbersAreRefused) {
  SpectrogramOptions options = *FindSpectrogramStyle("ast");
  EXPECT_TRUE(CheckSpectrogram(options).ok());
  options.deviation = 0;
  EXPECT_FALSE(CheckSpectrogram(options).ok());
  options = *FindSpectrogramStyle("nemo");
  options.window = 600;
  EXPECT_THAT(std::string(CheckSpectrogram(options).message()), HasSubstr("windows of 600 samples"));
  EXPECT_FALSE(FindSpectrogramStyle("none").ok());
}

// Two sounds of 5 and 3 frames.
TEST(Spectrogram, SoundsOfDifferentLengthsAreSamples) {
  const TempDir dir;
  for (const auto& [name, samples] : {std::pair{"a.wav", 800}, std::pair{"b.wav", 500}}) {
    std::vector<int16_t> sound;
    for (const float x : MakeSound(samples)) sound.push_back(static_cast<int16_t>(x * 32767));
    dir.Write(name, Wav(16000, 1, sound));
  }
  DatasetOptions options;
  options.audio = {.sample_rate = 16000, .any_length = true, .spectrogram = *FindSpectrogramStyle("nemo")};
  const auto data = OpenDataset("audio_folder:" + dir.path(), options);
  ASSERT_TRUE(data.ok()) << data.status();
  const Column& column = (*data)->columns()[0];
  EXPECT_EQ(column.sample, (Type{DType::kFloat32, {80, 5}}));
  EXPECT_EQ(column.length_axis, 1);
  EXPECT_EQ((*data)->Length(0), 5);
  EXPECT_EQ((*data)->Length(1), 3);
  std::vector<float> out(80 * 5, NAN);
  ASSERT_TRUE((*data)->Read(1, 0, std::as_writable_bytes(std::span(out))).ok());
  for (int64_t b = 0; b < 80; ++b)
    EXPECT_THAT(std::vector<float>(out.begin() + b * 5 + 3, out.begin() + b * 5 + 5), Each(0)) << "padding";
  EXPECT_NE(out[2], 0);
}

}  // namespace
}  // namespace onnxtrain
