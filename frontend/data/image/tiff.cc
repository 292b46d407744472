// Reads the first picture of a TIFF file with libtiff.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"

namespace onnxtrain {
namespace {

constexpr tmsize_t kMaxAllocation = tmsize_t{1} << 28;  // limit on a single allocation by libtiff
constexpr int64_t kMaxRow = int64_t{1} << 26;           // limit on bytes of a row of pixels or tiles

// Lets libtiff read from memory.
struct Source {
  ByteSpan bytes;
  size_t at = 0;
  std::string message = {};  // text of the first error

  static Source* Of(thandle_t handle) { return static_cast<Source*>(handle); }
  static tmsize_t Read(thandle_t handle, void* out, tmsize_t size) {
    Source* s = Of(handle);
    const size_t left = s->at < s->bytes.size() ? s->bytes.size() - s->at : 0;
    const size_t count = std::min(left, static_cast<size_t>(std::max<tmsize_t>(size, 0)));
    if (count > 0) std::memcpy(out, s->bytes.data() + s->at, count);
    s->at += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t Write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    Source* s = Of(handle);
    s->at = offset + (whence == SEEK_CUR ? s->at : whence == SEEK_END ? s->bytes.size() : 0);
    return s->at;
  }
  static int Close(thandle_t) { return 0; }
  static toff_t Size(thandle_t handle) { return Of(handle)->bytes.size(); }
  static int Map(thandle_t handle, void** base, toff_t* size) {
    *base = const_cast<uint8_t*>(Of(handle)->bytes.data());
    *size = Of(handle)->bytes.size();
    return 1;
  }
  static void Unmap(thandle_t, void*, toff_t) {}

  static int Ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }
  static int Fail(TIFF*, void* user, const char*, const char* format, va_list values) {
    auto* s = static_cast<Source*>(user);
    char text[128];
    std::vsnprintf(text, sizeof(text), format, values);
    if (s->message.empty()) s->message = Printable(text);
    return 1;
  }
};

using Handle = std::unique_ptr<TIFF, decltype(&TIFFClose)>;

Handle OpenTiff(Source* source) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMaxAllocation);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), Source::Fail, source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), Source::Ignore, nullptr);
  return {TIFFClientOpenExt("picture", "r", source, Source::Read, Source::Write, Source::Seek, Source::Close,
                            Source::Size, Source::Map, Source::Unmap, options.get()),
          TIFFClose};
}

// The storage layout of the pixels.
struct Layout {
  uint32_t width = 0, height = 0;
  uint16_t bits = 1, samples = 1, photometric = PHOTOMETRIC_MINISBLACK, planes = PLANARCONFIG_CONTIG;
  uint16_t format = SAMPLEFORMAT_UINT, compression = COMPRESSION_NONE, orientation = ORIENTATION_TOPLEFT;

  bool grey() const { return photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE; }
  bool palette() const { return photometric == PHOTOMETRIC_PALETTE; }
  bool cmyk() const { return photometric == PHOTOMETRIC_SEPARATED && planes == PLANARCONFIG_CONTIG && bits == 8; }
  // Returns the number of color samples per pixel; further ones are alpha etc.
  int wanted() const { return cmyk() ? 4 : photometric == PHOTOMETRIC_RGB ? 3 : 1; }
  // Returns true if samples are pixel values that are read here; libtiff converts the others.
  bool plain() const {
    const bool size = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16;
    const bool values = grey() || (palette() && bits <= 8) || photometric == PHOTOMETRIC_RGB || cmyk();
    return size && values && samples >= wanted();
  }
};

Layout ReadLayout(TIFF* tiff) {
  Layout l;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &l.width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &l.height);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &l.bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &l.samples);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &l.photometric);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &l.planes);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &l.format);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &l.compression);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &l.orientation);
  return l;
}

class TiffReader : public PictureReader {
 public:
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    tiff_.reset();
    source_ = {.bytes = bytes};
    tiff_ = OpenTiff(&source_);
    if (tiff_ == nullptr) return Broken();
    layout_ = ReadLayout(tiff_.get());
    RETURN_IF_ERROR(CheckPixels(layout_.width, layout_.height));
    if (layout_.format != SAMPLEFORMAT_UINT && layout_.format != SAMPLEFORMAT_VOID)
      return Invalid("TIFF of ", layout_.bits,
                     layout_.format == SAMPLEFORMAT_INT ? "-bit signed integers" : "-bit floats",
                     " is not supported: store 8 or 16 bits without a sign");
    DecodeYcc();
    const bool turned = layout_.orientation >= 1 && layout_.orientation <= 8;
    return PictureInfo{static_cast<int>(layout_.width), static_cast<int>(layout_.height),
                       turned ? layout_.orientation : 1};
  }

  absl::Status Decode(const DecodeRequest& request, Image* image) override {
    if (!layout_.plain()) return DecodeConverted(image);
    const bool colors = layout_.palette() && !request.indices;
    if (colors) RETURN_IF_ERROR(ReadPalette());
    indices_ = request.indices;
    image->Reset(static_cast<int>(layout_.width), static_cast<int>(layout_.height), layout_.grey() ? 1 : 3);
    if (layout_.palette() && !colors) image->Reset(image->width, image->height, 1);
    RETURN_IF_ERROR(TIFFIsTiled(tiff_.get()) != 0 ? ReadTiles(image) : ReadRows(image));
    return absl::OkStatus();
  }

 private:
  absl::Status Broken() const { return Invalid("broken TIFF: ", source_.message); }

  // Lets libtiff convert YCbCr of JPEG to RGB.
  void DecodeYcc() {
    if (layout_.photometric != PHOTOMETRIC_YCBCR || layout_.compression != COMPRESSION_JPEG) return;
    TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    layout_.photometric = PHOTOMETRIC_RGB;
  }

  // Lets libtiff convert pixels in other color spaces.
  absl::Status DecodeConverted(Image* image) {
    char why[1024] = "";
    if (TIFFRGBAImageOK(tiff_.get(), why) == 0)
      return Invalid("TIFF of ", layout_.samples, " × ", layout_.bits, " bits is not supported: ", Printable(why));
    std::vector<uint32_t> pixels(static_cast<size_t>(layout_.width) * layout_.height);
    // Keeps the stored order of rows; the caller turns the picture.
    TIFFSetField(tiff_.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
    const int stop_on_error = 1;
    if (TIFFReadRGBAImageOriented(tiff_.get(), layout_.width, layout_.height, pixels.data(), ORIENTATION_TOPLEFT,
                                  stop_on_error) == 0)
      return Broken();
    image->Reset(static_cast<int>(layout_.width), static_cast<int>(layout_.height), 3);
    for (size_t i = 0; i < pixels.size(); ++i) {
      image->pixels[3 * i] = TIFFGetR(pixels[i]);
      image->pixels[3 * i + 1] = TIFFGetG(pixels[i]);
      image->pixels[3 * i + 2] = TIFFGetB(pixels[i]);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPalette() {
    uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
    if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &red, &green, &blue) == 0)
      return Invalid("broken TIFF: there is no palette");
    for (size_t i = 0; i < size_t{1} << layout_.bits; ++i) {
      palette_[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8),
                     static_cast<uint8_t>(blue[i] >> 8)};
    }
    return absl::OkStatus();
  }

  // Returns true if each sample is in a plane of its own, which are read in passes.
  bool split() const { return layout_.planes == PLANARCONFIG_SEPARATE && layout_.samples > 1; }
  int passes() const { return split() ? layout_.wanted() : 1; }

  absl::Status ReadRows(Image* image) {
    const tmsize_t size = TIFFScanlineSize(tiff_.get());
    RETURN_IF_ERROR(Reserve(size, layout_.width));
    for (int pass = 0; pass < passes(); ++pass) {
      for (uint32_t y = 0; y < layout_.height; ++y) {
        if (TIFFReadScanline(tiff_.get(), buffer_.data(), y, static_cast<uint16_t>(pass)) < 0) return Broken();
        WriteRow(buffer_.data(), 0, layout_.width, pass, image->row(static_cast<int>(y)), image->channels);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadTiles(Image* image) {
    uint32_t width = 0, height = 0;
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &height);
    if (width == 0 || height == 0) return Invalid("broken TIFF: tiles without a size");
    const tmsize_t row = TIFFTileRowSize(tiff_.get());
    RETURN_IF_ERROR(Reserve(TIFFTileSize(tiff_.get()), width));
    if (row < 1 || int64_t{row} * height > std::ssize(buffer_)) return Invalid("broken TIFF: tiles without a size");
    for (int pass = 0; pass < passes(); ++pass) {
      for (uint32_t y = 0; y < layout_.height; y += height) {
        for (uint32_t x = 0; x < layout_.width; x += width) {
          if (TIFFReadTile(tiff_.get(), buffer_.data(), x, y, 0, static_cast<uint16_t>(pass)) < 0) return Broken();
          for (uint32_t r = 0; r < std::min(height, layout_.height - y); ++r)
            WriteRow(buffer_.data() + r * row, x, std::min(width, layout_.width - x), pass,
                     image->row(static_cast<int>(y + r)), image->channels);
        }
      }
    }
    return absl::OkStatus();
  }

  // Resizes the buffer for a row or tile of `width` pixels.
  absl::Status Reserve(tmsize_t size, uint32_t width) {
    const int64_t samples = split() ? 1 : layout_.samples;
    const int64_t needed = (int64_t{width} * samples * layout_.bits + 7) / 8;
    if (needed > kMaxRow || size > kMaxRow) return Invalid("the header declares rows of more than 64 MiB");
    if (size < needed) return Invalid("broken TIFF: rows of ", size, " bytes instead of ", needed);
    buffer_.assign(size, 0);
    return absl::OkStatus();
  }

  // Returns sample `i` of a row; for 16 bits, the upper 8.
  unsigned Sample(const uint8_t* row, size_t i) const {
    if (layout_.bits == 8) return row[i];
    if (layout_.bits == 16) {
      uint16_t value = 0;
      std::memcpy(&value, row + 2 * i, sizeof(value));
      return value >> 8;
    }
    const size_t per_byte = 8 / layout_.bits;
    const size_t shift = 8 - layout_.bits * (i % per_byte + 1);
    return row[i / per_byte] >> shift & ((1U << layout_.bits) - 1);
  }

  // Scales a sample to 0 … 255; for masks, returns it unchanged.
  uint8_t Level(unsigned value) const {
    const unsigned most = layout_.bits >= 8 ? 255 : (1U << layout_.bits) - 1;
    if (layout_.photometric == PHOTOMETRIC_MINISWHITE) value = most - value;
    return static_cast<uint8_t>(indices_ ? value : value * (255 / most));
  }

  // Writes `count` pixels of a row from column x: one plane, or all channels.
  void WriteRow(const uint8_t* row, uint32_t x, uint32_t count, int plane, uint8_t* out, int channels) const {
    out += static_cast<size_t>(x) * channels;
    const size_t step = split() ? 1 : layout_.samples;
    for (size_t i = 0; i < count; ++i, out += channels) {
      if (layout_.palette()) {
        WriteIndex(Sample(row, i * step), out, channels);
      } else if (layout_.cmyk()) {
        for (int c = 0; c < channels; ++c) out[c] = FromInk(row[i * step + c], row[i * step + 3]);
      } else if (split()) {
        out[plane] = Level(Sample(row, i));
      } else {
        for (int c = 0; c < channels; ++c) out[c] = Level(Sample(row, i * step + c));
      }
    }
  }

  void WriteIndex(unsigned index, uint8_t* out, int channels) const {
    if (channels == 1) {
      *out = static_cast<uint8_t>(index);
    } else {
      std::ranges::copy(palette_[index], out);
    }
  }

  Source source_;
  Handle tiff_ = {nullptr, TIFFClose};
  Layout layout_;
  bool indices_ = false;
  std::array<std::array<uint8_t, 3>, 256> palette_ = {};
  std::vector<uint8_t> buffer_;  // one row or tile
};

}  // namespace

std::unique_ptr<PictureReader> MakeTiffReader() { return std::make_unique<TiffReader>(); }

}  // namespace onnxtrain
