// Spectrograms of sounds in the forms that speech models take: logarithms of mel bands, as the feature extractors of
// transformers and NeMo compute them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Describes what models take instead of sounds. A style sets all that the numbers do not:
//   whisper  WhisperFeatureExtractor: reflected ends, Slaney's mel bands, log10, the upper 8 units, scaled to about ±1
//   nemo     NeMo and ParakeetFeatureExtractor: emphasis of high frequencies, Slaney's bands, natural logarithm, zero
//            mean and unit variance per band
//   ast      ASTFeatureExtractor: Kaldi's filter bank, scaled by a mean and a deviation
//   seamless SeamlessM4TFeatureExtractor (Wav2Vec2-BERT): Kaldi's filter bank, zero mean and unit variance per band,
//            two frames in one
//   s2t      Speech2TextFeatureExtractor: Kaldi's filter bank, zero mean and unit variance per band
struct SpectrogramOptions {
  std::string style;               // "": sounds stay as they are
  int64_t bands = 0;               // numbers per frame
  int64_t window = 0, hop = 0;     // length of a window and distance of windows, in samples
  int64_t fft = 0;                 // samples of the Fourier transform, at least `window`; the rest are zeros
  double mean = 0, deviation = 0;  // of the style "ast": y = (x − mean) / (2 · deviation)
  bool bands_first = false;        // [bands, frames], else [frames, bands]

  bool operator==(const SpectrogramOptions&) const = default;
};

// Returns the names of the styles, which the field `spectrogram` takes.
std::vector<std::string> ListSpectrogramStyles();

// Returns the options of a style with the numbers that its models usually have.
absl::StatusOr<SpectrogramOptions> FindSpectrogramStyle(std::string_view name);

// Returns the style of transformers' feature extractor of this class; "" if it is none of these.
std::string FindStyleOfExtractor(std::string_view class_name);

// Returns the frames that models of a style take if they say nothing else; 0: any number.
int64_t FindUsualFrames(std::string_view style);

// Checks that the numbers are possible.
absl::Status CheckSpectrogram(const SpectrogramOptions& options);

struct SpectrogramStyle;

// Computes spectrograms of sounds of one rate. Thread-safe.
class Spectrogram {
 public:
  // `options` passed CheckSpectrogram. `rate` in Hz.
  Spectrogram(const SpectrogramOptions& options, int64_t rate);

  // Returns the numbers of a frame: bands, times the frames that a style joins.
  int64_t width() const;
  // Returns the frames of a sound of that many samples, at least 1.
  int64_t CountFrames(int64_t samples) const;
  // Returns how many samples that many frames depend on.
  int64_t CountSamples(int64_t frames) const;
  // Returns the shape of that many frames.
  Shape FrameShape(int64_t frames) const;

  // Writes `frames` frames of a sound in [-1, 1] in the shape of FrameShape. Frames after its end are as the style pads
  // them.
  void Compute(std::span<const float> sound, int64_t frames, float* out) const;

 private:
  struct Band {  // of a triangular filter: the weights of consecutive frequencies
    int64_t first = 0;
    std::vector<double> weights;
  };

  int64_t CountRows(int64_t samples) const;
  std::vector<double> MakeRows(std::span<const float> sound, int64_t rows) const;
  void Normalize(std::vector<double>* rows, int64_t sounding) const;

  SpectrogramOptions options_;
  const SpectrogramStyle* style_;
  std::vector<double> window_;
  std::vector<Band> bands_;
};

}  // namespace onnxtrain
