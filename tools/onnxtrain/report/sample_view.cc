#include "tools/onnxtrain/report/quality_html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>
#include "absl/strings/escaping.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/image/image.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/token_text.h"
#include "tools/onnxtrain/report/html_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMostPixels = 160;  // per side

// The image layout of a tensor.
struct ImageLayout {
  int64_t height, width, channels;
  int64_t row, column, channel;  // strides
};

// Recognizes [H,W], [C,H,W] and [H,W,C] with one or three channels; a fourth is ignored.
std::optional<ImageLayout> FindLayout(const Shape& s) {
  const auto is_channels = [](int64_t c) { return c == 1 || c == 3 || c == 4; };
  std::optional<ImageLayout> found;
  if (s.size() == 2) found = ImageLayout{s[0], s[1], 1, s[1], 1, 0};
  if (s.size() == 3 && is_channels(s[2]))
    found = ImageLayout{s[0], s[1], std::min<int64_t>(s[2], 3), s[1] * s[2], s[2], 1};
  if (s.size() == 3 && is_channels(s[0]))
    found = ImageLayout{s[1], s[2], std::min<int64_t>(s[0], 3), s[2], 1, s[1] * s[2]};
  return found && found->height >= 8 && found->width >= 8 ? found : std::nullopt;
}

int64_t Stride(const ImageLayout& layout) {
  return (std::max(layout.height, layout.width) + kMostPixels - 1) / kMostPixels;
}

std::string ImageTag(const char* name, const std::string& pixels, int64_t height, int64_t width, int64_t channels) {
  const std::string png = EncodePng(pixels, height, width, channels);
  if (png.empty()) return "";
  return StrCat("<img alt=\"", name, "\" src=\"data:image/png;base64,", absl::Base64Escape(png), "\">");
}

// Draws an image, subsampled if it is large; values other than bytes are scaled to 0–255.
std::string ImageHtml(const HostTensor& tensor, const ImageLayout& layout, bool bytes) {
  double least = 0, most = 255;
  if (!bytes) {
    least = std::numeric_limits<double>::infinity(), most = -least;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      least = std::min(least, tensor.At(i));
      most = std::max(most, tensor.At(i));
    }
  }
  const int64_t every = Stride(layout);
  const int64_t height = layout.height / every, width = layout.width / every;
  std::string pixels;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < layout.channels; ++c) {
        const double v = tensor.At(y * every * layout.row + x * every * layout.column + c * layout.channel);
        const double part = most > least ? (v - least) / (most - least) : 0;
        pixels += static_cast<char>(static_cast<unsigned char>(std::lround(255 * std::clamp(part, 0.0, 1.0))));
      }
    }
  }
  return ImageTag("sample", pixels, height, width, layout.channels);
}

// Returns the color of a class, unlike that of the next classes; grey for no label.
std::array<double, 3> ClassColor(int64_t c) {
  if (c < 0) return {0.5, 0.5, 0.5};
  if (c == 0) return {0, 0, 0};
  const double hue = std::fmod(static_cast<double>(c) * 0.618034, 1.0), light = c % 2 == 0 ? 0.75 : 1;
  std::array<double, 3> color = {};
  for (size_t i = 0; i < 3; ++i) {
    const double turn = std::fmod(hue + static_cast<double>(i) / 3, 1.0);
    color[i] = light * std::clamp(std::abs(6 * turn - 3) - 1, 0.0, 1.0);
  }
  return color;
}

std::string ClassMapHtml(const char* name, const std::vector<double>& classes, const ImageLayout& layout) {
  const int64_t every = Stride(layout), height = layout.height / every, width = layout.width / every;
  std::string pixels;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double c = classes[static_cast<size_t>(y * every * layout.row + x * every * layout.column)];
      for (const double part : ClassColor(static_cast<int64_t>(c)))
        pixels += static_cast<char>(static_cast<unsigned char>(std::lround(255 * part)));
    }
  }
  return StrCat("<div>", ImageTag(name, pixels, height, width, 3), name, "</div>");
}

std::optional<HostTensor> ReadColumn(const TrainData& data, int64_t sample, int column) {
  HostTensor tensor(SampleType(*data.dataset, sample, column));
  if (!data.dataset->Read(sample, column, tensor.mutable_bytes()).ok()) return std::nullopt;
  return tensor;
}

std::string NumbersHtml(const TrainData& data, int64_t sample, const std::vector<int>& columns) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(columns.size(), kMost); ++i) {
    const auto tensor = ReadColumn(data, sample, columns[i]);
    if (!tensor || tensor->size() != 1) return "";
    const Column& c = data.dataset->columns()[columns[i]];
    const auto index = static_cast<size_t>(tensor->At(0));
    const bool named = index < c.classes.size();
    StrAppend(&text, text.empty() ? "" : "<br>", EscapeHtml(c.name), ": ",
              named ? EscapeHtml(c.classes[index]) : FormatNumber(tensor->At(0)));
  }
  return text + (columns.size() > kMost ? "<br>…" : "");
}

// Shortens a long text at a character boundary.
std::string Shortened(std::string text) {
  constexpr size_t kMost = 400;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " …";
}

// Returns a paragraph per column of text; "" if there are none.
std::string TextHtml(const TrainData& data, int64_t sample) {
  std::string html;
  const std::vector<Column>& columns = data.dataset->columns();
  for (size_t c = 0; c < columns.size(); ++c) {
    if (!columns[c].text) continue;
    const auto text = data.dataset->ReadText(sample, static_cast<int>(c));
    if (text.ok()) StrAppend(&html, "<p class=\"text\">", EscapeHtml(Shortened(*text)), "</p>");
  }
  return html;
}

bool IsTokens(const Type& type) { return !IsFloat(type.dtype) && type.rank() == 1; }

std::string TokensHtml(const TrainData& data, int64_t sample, int column, const TokenText& tokens) {
  const auto ids = ReadColumn(data, sample, column);
  const std::string text = ids ? tokens.Join(ids->ToInts()) : "";
  return text.empty() ? "" : StrCat("<p class=\"text\">", EscapeHtml(Shortened(text)), "</p>");
}

}  // namespace

std::string SampleHtml(const TrainData& data, int64_t sample, const TokenText* tokens) {
  if (data.specs.empty() || data.specs[0].columns.empty()) return "";
  if (std::string text = TextHtml(data, sample); !text.empty()) return text;
  const std::vector<int>& columns = data.specs[0].columns;
  const Type type = SampleType(*data.dataset, sample, columns[0]);
  if (tokens != nullptr && IsTokens(type)) return TokensHtml(data, sample, columns[0], *tokens);
  const auto layout = columns.size() == 1 ? FindLayout(type.shape) : std::nullopt;
  if (!layout) return NumbersHtml(data, sample, columns);
  const auto tensor = ReadColumn(data, sample, columns[0]);
  return tensor ? ImageHtml(*tensor, *layout, type.dtype == DType::kUInt8) : "";
}

std::string ClassMapsHtml(const SampleResult& result, const Shape& labels) {
  const auto layout = FindLayout(labels);
  const auto pixels = static_cast<size_t>(layout ? layout->height * layout->width : 0);
  if (!layout || layout->channels != 1 || result.labels.size() != pixels || result.predictions.size() != pixels)
    return "";
  return StrCat("<div class=\"maps\">", ClassMapHtml("label", result.labels, *layout),
                ClassMapHtml("prediction", result.predictions, *layout), "</div>");
}

}  // namespace onnxtrain::cli
