#include "frontend/data/audio/spectrogram.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <unsupported/Eigen/FFT>

#include "frontend/base/status.h"

namespace onnxtrain {

// Describes how a style prepares sounds. Rows are joined frames.
struct SpectrogramStyle {
  enum class Window : uint8_t { kPeriodicHann, kHann, kPovey };
  enum class Scale : uint8_t { kSlaney, kKaldi };
  enum class Log : uint8_t { kTen, kAdded, kFloor };
  enum class Level : uint8_t { kPeak, kBand, kFixed };

  const char *name, *extractor;  // of transformers
  int64_t bands, window = 400, hop = 160, fft, usual_frames = 0;
  Window form;
  Scale scale;
  Log log;
  Level level;
  bool bands_first = false;  // of an input whose extents are open
  bool centered = false;     // windows are centered on multiples of the hop, else they begin there
  bool reflects = false;     // the sound is reflected at its ends, else followed by zeros
  bool pads_sound = false;   // missing frames are those of silence, else zeros
  double gain = 1;           // of the sound
  double added = 0;          // to the variance of a band, or to its root for `added_to_root`
  bool added_to_root = false;
  int64_t freedom = 1;  // of the variance: the sum of squares is divided by frames − freedom
  int64_t joined = 1;   // consecutive frames in one row
};

namespace {

using Window = SpectrogramStyle::Window;
using Scale = SpectrogramStyle::Scale;
using Log = SpectrogramStyle::Log;
using Level = SpectrogramStyle::Level;

constexpr SpectrogramStyle kStyles[] = {
    {.name = "whisper",
     .extractor = "WhisperFeatureExtractor",
     .bands = 80,
     .fft = 400,
     .usual_frames = 3000,
     .form = Window::kPeriodicHann,
     .scale = Scale::kSlaney,
     .log = Log::kTen,
     .level = Level::kPeak,
     .bands_first = true,
     .centered = true,
     .reflects = true,
     .pads_sound = true},
    {.name = "nemo",
     .extractor = "ParakeetFeatureExtractor",
     .bands = 80,
     .fft = 512,
     .form = Window::kHann,
     .scale = Scale::kSlaney,
     .log = Log::kAdded,
     .level = Level::kBand,
     .bands_first = true,
     .centered = true,
     .added = 1e-5,
     .added_to_root = true},
    {.name = "ast",
     .extractor = "ASTFeatureExtractor",
     .bands = 128,
     .fft = 512,
     .usual_frames = 1024,
     .form = Window::kHann,
     .scale = Scale::kKaldi,
     .log = Log::kFloor,
     .level = Level::kFixed},
    {.name = "seamless",
     .extractor = "SeamlessM4TFeatureExtractor",
     .bands = 80,
     .fft = 512,
     .form = Window::kPovey,
     .scale = Scale::kKaldi,
     .log = Log::kFloor,
     .level = Level::kBand,
     .gain = 1 << 15,
     .added = 1e-7,
     .joined = 2},
    {.name = "s2t",
     .extractor = "Speech2TextFeatureExtractor",
     .bands = 80,
     .fft = 512,
     .form = Window::kPovey,
     .scale = Scale::kKaldi,
     .log = Log::kFloor,
     .level = Level::kBand,
     .gain = 1 << 15,
     .freedom = 0},
};

const SpectrogramStyle* FindStyle(std::string_view name) {
  const SpectrogramStyle* found = std::ranges::find(kStyles, name, &SpectrogramStyle::name);
  return found == std::end(kStyles) ? nullptr : found;
}

constexpr double kEmphasis = 0.97;  // of high frequencies, in NeMo and Kaldi

std::vector<double> MakeWindow(Window form, int64_t length) {
  std::vector<double> window(length);
  const auto period = static_cast<double>(form == Window::kPeriodicHann ? length : std::max<int64_t>(length - 1, 1));
  for (int64_t i = 0; i < length; ++i) {
    const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / period);
    window[i] = form == Window::kPovey ? std::pow(hann, 0.85) : hann;
  }
  return window;
}

// Slaney's scale (Auditory Toolbox, 1998) is linear up to 1,000 Hz; Kaldi's is that of O'Shaughnessy (1987).
double ToMel(Scale scale, double hertz) {
  if (scale == Scale::kKaldi) return 1127 * std::log(1 + hertz / 700);
  return hertz < 1000 ? 3 * hertz / 200 : 15 + 27 / std::log(6.4) * std::log(hertz / 1000);
}

double ToHertz(double mel) { return mel < 15 ? 200 * mel / 3 : 1000 * std::exp(std::log(6.4) / 27 * (mel - 15)); }

// Returns the weight at x of a triangle.
double Triangle(double x, double begin, double peak, double end) {
  return std::max(0.0, std::min((x - begin) / (peak - begin), (end - x) / (end - peak)));
}

double TakeLog(Log log, double power) {
  switch (log) {
    case Log::kTen:
      return std::log10(std::max(power, 1e-10));
    case Log::kAdded:
      return std::log(power + 0x1p-24);
    case Log::kFloor:
      return std::log(std::max(power, 0x1p-23));
  }
  return 0;
}

// Returns the index of the sample that stands for sample i of a sound of n samples; -1: zero.
int64_t FindSample(int64_t i, int64_t n, bool reflects) {
  if (i >= 0 && i < n) return i;
  if (!reflects) return -1;
  const int64_t period = std::max<int64_t>(2 * (n - 1), 1);
  i = (i % period + period) % period;
  return i < n ? i : period - i;
}

// Emphasizes high frequencies; the sample before the first one is `before`.
template <typename T>
void Emphasize(std::span<T> samples, double before) {
  for (T& x : samples) {
    const double own = x;
    x = static_cast<T>(own - kEmphasis * before);
    before = own;
  }
}

// Prepares a frame as Kaldi does: removes its mean and emphasizes high frequencies.
void PrepareFrame(std::span<double> frame) {
  double sum = 0;
  for (const double x : frame) sum += x;
  for (double& x : frame) x -= sum / static_cast<double>(frame.size());
  Emphasize(frame, frame[0]);
}

}  // namespace

std::vector<std::string> ListSpectrogramStyles() {
  std::vector<std::string> names;
  for (const SpectrogramStyle& style : kStyles) names.emplace_back(style.name);
  return names;
}

absl::StatusOr<SpectrogramOptions> FindSpectrogramStyle(std::string_view name) {
  const SpectrogramStyle* s = FindStyle(name);
  if (s == nullptr) return Invalid("no spectrograms have the style '", Printable(name), "'");
  return SpectrogramOptions{.style = s->name,
                            .bands = s->bands,
                            .window = s->window,
                            .hop = s->hop,
                            .fft = s->fft,
                            .mean = s->level == Level::kFixed ? -4.2677393 : 0,
                            .deviation = s->level == Level::kFixed ? 4.5689974 : 0,
                            .bands_first = s->bands_first};
}

std::string FindStyleOfExtractor(std::string_view class_name) {
  const SpectrogramStyle* found = std::ranges::find(kStyles, class_name, &SpectrogramStyle::extractor);
  return found == std::end(kStyles) ? "" : found->name;
}

int64_t FindUsualFrames(std::string_view style) {
  const SpectrogramStyle* found = FindStyle(style);
  return found == nullptr ? 0 : found->usual_frames;
}

absl::Status CheckSpectrogram(const SpectrogramOptions& options) {
  constexpr int64_t kMost = 1 << 16;
  RETURN_IF_ERROR(FindSpectrogramStyle(options.style).status());
  const bool lengths = options.window > 1 && options.fft >= options.window && options.fft <= kMost && options.hop > 0 &&
                       options.hop <= kMost;
  const bool scaled = FindStyle(options.style)->level != Level::kFixed || options.deviation > 0;
  if (lengths && scaled && options.bands > 0 && options.bands <= options.fft) return absl::OkStatus();
  return Invalid("a spectrogram of ", options.bands, " bands with windows of ", options.window, " samples every ",
                 options.hop, " and a transform of ", options.fft, " is not possible");
}

Spectrogram::Spectrogram(const SpectrogramOptions& options, int64_t rate)
    : options_(options), style_(FindStyle(options.style)), window_(MakeWindow(style_->form, options.window)) {
  const Scale scale = style_->scale;
  const bool slaney = scale == Scale::kSlaney;
  const double low = ToMel(scale, slaney ? 0 : 20), high = ToMel(scale, static_cast<double>(rate) / 2);
  const double step = (high - low) / static_cast<double>(options.bands + 1);
  const auto corner = [&](int64_t k) {
    const double mel = low + step * static_cast<double>(k);
    return slaney ? ToHertz(mel) : mel;
  };
  for (int64_t b = 0; b < options.bands; ++b) {
    const double begin = corner(b), peak = corner(b + 1), end = corner(b + 2);
    Band band;
    for (int64_t k = 0; k <= options.fft / 2; ++k) {
      const double hertz = static_cast<double>(rate) * static_cast<double>(k) / static_cast<double>(options.fft);
      const double weight = Triangle(slaney ? hertz : ToMel(scale, hertz), begin, peak, end);
      if (weight <= 0) continue;
      if (band.weights.empty()) band.first = k;
      band.weights.push_back(slaney ? weight * 2 / (end - begin) : weight);
    }
    bands_.push_back(std::move(band));
  }
}

int64_t Spectrogram::width() const { return options_.bands * style_->joined; }

int64_t Spectrogram::CountRows(int64_t samples) const {
  return std::max<int64_t>(1,
                           style_->centered ? samples / options_.hop : 1 + (samples - options_.window) / options_.hop);
}

int64_t Spectrogram::CountFrames(int64_t samples) const {
  return std::max<int64_t>(1, CountRows(samples) / style_->joined);
}

int64_t Spectrogram::CountSamples(int64_t frames) const {
  const int64_t rows = frames * style_->joined;
  return style_->centered ? rows * options_.hop : (rows - 1) * options_.hop + options_.window;
}

Shape Spectrogram::FrameShape(int64_t frames) const {
  return options_.bands_first ? Shape{width(), frames} : Shape{frames, width()};
}

// Returns the logarithms of the bands, [rows, bands].
std::vector<double> Spectrogram::MakeRows(std::span<const float> sound, int64_t rows) const {
  const int64_t lead = style_->centered ? options_.window / 2 : 0;
  std::vector<double> result;
  result.reserve(rows * options_.bands);
  Eigen::FFT<double> fft;
  std::vector<double> frame(options_.fft);
  std::vector<std::complex<double>> spectrum;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < options_.window; ++i) {
      const int64_t s = FindSample(t * options_.hop - lead + i, std::ssize(sound), style_->reflects);
      frame[i] = s < 0 ? 0 : style_->gain * sound[s];
    }
    if (style_->scale == Scale::kKaldi) PrepareFrame(std::span(frame).first(options_.window));
    for (int64_t i = 0; i < options_.window; ++i) frame[i] *= window_[i];
    fft.fwd(spectrum, frame);
    for (const Band& band : bands_) {
      double power = 0;
      for (size_t k = 0; k < band.weights.size(); ++k) power += band.weights[k] * std::norm(spectrum[band.first + k]);
      result.push_back(TakeLog(style_->log, power));
    }
  }
  return result;
}

// Scales the rows of the sound; rows after it are silence.
void Spectrogram::Normalize(std::vector<double>* rows, int64_t sounding) const {
  if (style_->level == Level::kPeak) {
    const double peak = *std::ranges::max_element(*rows);
    for (double& x : *rows) x = (std::max(x, peak - 8) + 4) / 4;
  }
  if (style_->level == Level::kFixed) {
    for (double& x : *rows) x = (x - options_.mean) / (2 * options_.deviation);
  }
  if (style_->level != Level::kBand) return;
  const auto count = static_cast<double>(sounding);
  const auto divisor = static_cast<double>(std::max<int64_t>(sounding - style_->freedom, 1));
  for (int64_t b = 0; b < options_.bands; ++b) {
    double sum = 0, squares = 0;
    const auto at = [&](int64_t t) -> double& { return (*rows)[t * options_.bands + b]; };
    for (int64_t t = 0; t < sounding; ++t) sum += at(t);
    for (int64_t t = 0; t < sounding; ++t) squares += (at(t) - sum / count) * (at(t) - sum / count);
    const double variance = squares / divisor;
    double deviation =
        style_->added_to_root ? std::sqrt(variance) + style_->added : std::sqrt(variance + style_->added);
    if (deviation == 0) deviation = 1;
    for (int64_t t = 0; t < sounding; ++t) at(t) = (at(t) - sum / count) / deviation;
  }
}

void Spectrogram::Compute(std::span<const float> sound, int64_t frames, float* out) const {
  const int64_t rows = frames * style_->joined;
  std::vector<float> changed(sound.begin(), sound.end());
  if (style_->pads_sound) changed.resize(std::max<size_t>(changed.size(), CountSamples(frames)));
  // A last row that fills no frame counts for the mean and the variance.
  const int64_t sounding = std::min(rows + style_->joined - 1, CountRows(std::ssize(changed)));
  if (style_->log == Log::kAdded) Emphasize(std::span(changed), 0);
  std::vector<double> values = MakeRows(changed, sounding);
  if (style_->level == Level::kFixed) values.resize(rows * options_.bands);  // zeros are scaled, too
  Normalize(&values, sounding);
  values.resize(rows * options_.bands);
  const int64_t wide = width();
  for (int64_t t = 0; t < frames; ++t) {
    for (int64_t b = 0; b < wide; ++b)
      out[options_.bands_first ? b * frames + t : t * wide + b] = static_cast<float>(values[t * wide + b]);
  }
}

}  // namespace onnxtrain
