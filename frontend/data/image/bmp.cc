// Reads Windows bitmaps: 1, 4 and 8 bits with a palette (also run-length encoded), 16, 24 and 32 bits (also with
// masks). No small, maintained library for them is in Debian.
#include <algorithm>
#include <array>
#include <bit>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"

namespace onnxtrain {
namespace {

enum Compression : uint8_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kMasks = 3, kAlphaMasks = 6 };

constexpr size_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;

// Extracts one channel of a pixel with bit masks, scaled to 8 bits.
struct Mask {
  uint32_t bits = 0;
  uint8_t Extract(uint32_t pixel) const {
    if (bits == 0) return 0;
    const int shift = std::countr_zero(bits);
    const uint64_t most = bits >> shift;
    return static_cast<uint8_t>(((pixel & bits) >> shift) * uint64_t{255} / most);
  }
};

class BmpReader : public PictureReader {
 public:
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    bytes_ = bytes;
    header_ = Number(14, 4);
    if (header_ != kCoreHeader && (header_ < kInfoHeader || header_ > 1024)) return Invalid("broken BMP: bad header");
    const bool core = header_ == kCoreHeader;
    const auto width = core ? static_cast<int64_t>(Number(18, 2)) : static_cast<int32_t>(Number(18, 4));
    const auto height = core ? static_cast<int64_t>(Number(20, 2)) : static_cast<int32_t>(Number(22, 4));
    bits_ = static_cast<int>(Number(core ? 24 : 28, 2));
    compression_ = core ? uint32_t{kPlain} : Number(30, 4);
    top_down_ = height < 0;
    RETURN_IF_ERROR(CheckPixels(width, std::abs(height)));
    RETURN_IF_ERROR(CheckForm());
    info_ = {static_cast<int>(width), static_cast<int>(std::abs(height))};
    return info_;
  }

  absl::Status Decode(const DecodeRequest& request, Image* image) override {
    indices_ = request.indices && bits_ <= 8;
    if (bits_ <= 8) ReadPalette();
    ReadMasks();
    const size_t offset = Number(10, 4);
    if (offset >= bytes_.size()) return Truncated();
    const ByteSpan data = bytes_.subspan(offset);
    if (compression_ == kRle8 || compression_ == kRle4) return DecodeRuns(data, image);
    const size_t stride = (static_cast<size_t>(info_.width) * bits_ + 31) / 32 * 4;
    const size_t last = (static_cast<size_t>(info_.width) * bits_ + 7) / 8;  // padding of the last row may be missing
    if (data.size() < stride * (info_.height - 1) + last) return Truncated();
    image->Reset(info_.width, info_.height, indices_ ? 1 : 3);
    for (int y = 0; y < info_.height; ++y) {
      uint8_t* out = image->row(top_down_ ? y : info_.height - 1 - y);
      for (int x = 0; x < info_.width; ++x) WritePixel(data.subspan(y * stride), x, out + x * image->channels);
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Truncated() { return Invalid("truncated BMP"); }

  // Reads a little-endian number; 0 beyond the end.
  uint32_t Number(size_t at, int size) const { return Number(bytes_, at, size); }
  static uint32_t Number(ByteSpan bytes, size_t at, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size && at + i < bytes.size(); ++i) value |= uint32_t{bytes[at + i]} << 8 * i;
    return value;
  }

  absl::Status CheckForm() const {
    const bool masks = compression_ == kMasks || compression_ == kAlphaMasks;
    const bool known = (compression_ == kPlain &&
                        (bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32)) ||
                       (compression_ == kRle8 && bits_ == 8) || (compression_ == kRle4 && bits_ == 4) ||
                       (masks && (bits_ == 16 || bits_ == 32));
    if (known) return absl::OkStatus();
    return Invalid("BMP of ", bits_, " bits with compression ", compression_, " is not supported");
  }

  void ReadPalette() {
    const bool core = header_ == kCoreHeader;
    const size_t at = kFileHeader + header_ + (compression_ == kMasks && header_ == kInfoHeader ? 12 : 0);
    const uint32_t stated = core ? 0 : Number(46, 4);
    const size_t colors = stated == 0 || stated > 256 ? size_t{1} << bits_ : stated;
    palette_ = {};
    for (size_t i = 0; i < colors; ++i) {
      const size_t entry = at + i * (core ? 3 : 4);
      palette_[i] = {static_cast<uint8_t>(Number(entry + 2, 1)), static_cast<uint8_t>(Number(entry + 1, 1)),
                     static_cast<uint8_t>(Number(entry, 1))};
    }
  }

  void ReadMasks() {
    constexpr Mask k555[] = {{0x7C00}, {0x03E0}, {0x001F}}, k888[] = {{0xFF0000}, {0xFF00}, {0xFF}};
    const bool stated = compression_ == kMasks || compression_ == kAlphaMasks;
    for (int c = 0; c < 3; ++c)
      masks_[c] = stated ? Mask{Number(kFileHeader + kInfoHeader + 4 * c, 4)} : bits_ == 16 ? k555[c] : k888[c];
  }

  void WriteColor(uint8_t index, uint8_t* out) const {
    if (indices_) {
      *out = index;
    } else {
      std::ranges::copy(palette_[index], out);
    }
  }

  void WritePixel(ByteSpan row, int x, uint8_t* out) const {
    if (bits_ <= 8) {
      const int per_byte = 8 / bits_, shift = 8 - bits_ * (x % per_byte + 1);
      WriteColor(row[x / per_byte] >> shift & ((1 << bits_) - 1), out);
    } else if (bits_ == 24) {
      std::reverse_copy(&row[3 * size_t(x)], &row[3 * size_t(x)] + 3, out);
    } else {
      const uint32_t pixel = Number(row, size_t(x) * bits_ / 8, bits_ / 8);
      for (int c = 0; c < 3; ++c) out[c] = masks_[c].Extract(pixel);
    }
  }

  // Decodes pairs of (count, color). After a count of 0 the next byte means: end of row (0), end of picture (1), a move
  // (2), or a number of literal colors. Pixels that no pair covers have color 0.
  absl::Status DecodeRuns(ByteSpan data, Image* image) {
    image->Reset(info_.width, info_.height, indices_ ? 1 : 3);
    for (size_t i = 0; i < image->pixels.size(); i += image->channels) WriteColor(0, &image->pixels[i]);
    int x = 0, y = 0;
    const auto put = [&](uint8_t index) {
      if (x < info_.width) WriteColor(index, image->row(info_.height - 1 - y) + x * image->channels);
      ++x;
    };
    const auto color = [&](ByteSpan colors, int i) -> uint8_t {
      if (bits_ == 8) return colors[i];
      return i % 2 == 0 ? colors[i / 2] >> 4 : colors[i / 2] & 15;
    };
    for (size_t at = 0; y < info_.height;) {
      if (at + 2 > data.size()) return Truncated();
      const int count = data[at], value = data[at + 1];
      at += 2;
      if (count > 0) {
        const uint8_t pair[] = {data[at - 1], data[at - 1]};
        for (int i = 0; i < count; ++i) put(color(pair, bits_ == 8 ? 0 : i % 2));
      } else if (value == 0) {
        x = 0, ++y;
      } else if (value == 1) {
        break;
      } else if (value == 2) {
        if (at + 2 > data.size()) return Truncated();
        x += data[at], y += data[at + 1];
        at += 2;
      } else {
        const size_t size = bits_ == 8 ? value : (value + 1) / 2;
        if (at + size > data.size()) return Truncated();
        for (int i = 0; i < value; ++i) put(color(data.subspan(at), i));
        at += size + size % 2;
      }
    }
    return absl::OkStatus();
  }

  ByteSpan bytes_;
  uint32_t header_ = 0, compression_ = 0;
  int bits_ = 0;
  bool top_down_ = false, indices_ = false;
  PictureInfo info_;
  std::array<std::array<uint8_t, 3>, 256> palette_ = {};
  std::array<Mask, 3> masks_ = {};
};

}  // namespace

std::unique_ptr<PictureReader> MakeBmpReader() { return std::make_unique<BmpReader>(); }

}  // namespace onnxtrain
