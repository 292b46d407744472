#include "tools/onnxtrain/report/sample_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "frontend/base/strings.h"
#include "frontend/data/image/png_encoder.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/report/html_page.h"

namespace onnxtrain::cli {
namespace {

constexpr int64_t kMostPixels = 160;  // per side

// Where the pixels of a tensor are.
struct ImageLayout {
  int64_t height, width, channels;
  int64_t row, column, channel;  // strides
};

// [H,W], [C,H,W] and [H,W,C] with one or three channels (of four the first three count).
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

// Every n-th pixel of a large image; numbers that are not bytes are stretched to 0–255.
std::string ImageHtml(const HostTensor& tensor, const ImageLayout& layout, bool bytes) {
  double least = 0, most = 255;
  if (!bytes) {
    least = std::numeric_limits<double>::infinity(), most = -least;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      least = std::min(least, tensor.At(i));
      most = std::max(most, tensor.At(i));
    }
  }
  const int64_t every = (std::max(layout.height, layout.width) + kMostPixels - 1) / kMostPixels;
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
  const std::string png = EncodePng(pixels, height, width, layout.channels);
  return png.empty() ? "" : StrCat("<img alt=\"sample\" src=\"data:image/png;base64,", absl::Base64Escape(png), "\">");
}

std::optional<HostTensor> ReadColumn(const TrainData& data, int64_t sample, int column) {
  const Column& c = data.dataset->columns()[column];
  HostTensor tensor(c.sample);
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
    StrAppend(&text, text.empty() ? "" : "<br>", EscapeHtml(c.name), " ",
              named ? EscapeHtml(c.classes[index]) : FormatNumber(tensor->At(0)));
  }
  return text + (columns.size() > kMost ? "<br>…" : "");
}

// The beginning of a text, up to a whole character.
std::string Shortened(std::string text) {
  constexpr size_t kMost = 400;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " …";
}

// The columns of text, each a paragraph; "" where there are none.
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

}  // namespace

std::string SampleHtml(const TrainData& data, int64_t sample) {
  if (data.specs.empty() || data.specs[0].columns.empty()) return "";
  if (std::string text = TextHtml(data, sample); !text.empty()) return text;
  const std::vector<int>& columns = data.specs[0].columns;
  const Type& type = data.dataset->columns()[columns[0]].sample;
  const auto layout = columns.size() == 1 ? FindLayout(type.shape) : std::nullopt;
  if (!layout) return NumbersHtml(data, sample, columns);
  const auto tensor = ReadColumn(data, sample, columns[0]);
  return tensor ? ImageHtml(*tensor, *layout, type.dtype == DType::kUInt8) : "";
}

}  // namespace onnxtrain::cli
