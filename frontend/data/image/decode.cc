#include "frontend/data/image/decode.h"

#include <algorithm>
#include <string_view>

#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int kOrientationTag = 0x0112, kShort = 3;

// Reads numbers in either byte order; 0 beyond the end.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool big_endian;

  uint32_t Number(size_t at, int size) const {
    if (at > bytes.size() || bytes.size() - at < static_cast<size_t>(size)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) value |= uint32_t{bytes[at + i]} << 8 * (big_endian ? size - 1 - i : i);
    return value;
  }
};

}  // namespace

int ExifOrientation(std::span<const uint8_t> exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.size() >= 6 && std::equal(kPrefix.begin(), kPrefix.end(), exif.begin())) exif = exif.subspan(6);
  if (exif.size() < 8 || exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M')) return 1;
  const Tiff tiff{exif, exif[0] == 'M'};
  const size_t directory = tiff.Number(4, 4);
  const uint32_t entries = tiff.Number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (tiff.Number(entry, 2) != kOrientationTag || tiff.Number(entry + 2, 2) != kShort) continue;
    const auto value = static_cast<int>(tiff.Number(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

namespace {

using namespace std::string_view_literals;

bool HasAt(ByteSpan bytes, size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() &&
         std::equal(text.begin(), text.end(), reinterpret_cast<const char*>(bytes.data()) + at);
}

// The 32-bit size of the second header is at byte 14; its upper bytes are 0.
bool IsBmp(ByteSpan b) { return HasAt(b, 0, "BM") && b.size() >= 18 && b[15] == 0 && b[16] == 0 && b[17] == 0; }

// "II+" and "MM\0+" mark BigTIFF.
bool IsTiff(ByteSpan b) {
  return HasAt(b, 0, "II*\0"sv) || HasAt(b, 0, "MM\0*"sv) || HasAt(b, 0, "II+\0"sv) || HasAt(b, 0, "MM\0+"sv);
}

struct Format {
  bool (*matches)(ByteSpan bytes);
  std::unique_ptr<PictureReader> (*make)();
};
constexpr Format kFormats[] = {
    {[](ByteSpan b) { return HasAt(b, 0, "\xff\xd8\xff"); }, MakeJpegReader},
    {[](ByteSpan b) { return HasAt(b, 0, "\x89PNG\r\n\x1a\n"); }, MakePngReader},
    {[](ByteSpan b) { return HasAt(b, 0, "RIFF") && HasAt(b, 8, "WEBP"); }, MakeWebpReader},
    {[](ByteSpan b) { return HasAt(b, 0, "GIF87a") || HasAt(b, 0, "GIF89a"); }, MakeGifReader},
    {IsBmp, MakeBmpReader},
    {IsTiff, MakeTiffReader},
};

size_t FindFormat(ByteSpan bytes) {
  return std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.matches(bytes); }) -
         std::begin(kFormats);
}

}  // namespace

absl::Status CheckPixels(int64_t width, int64_t height) {
  if (width < 1 || height < 1) return Invalid("the header declares ", width, " × ", height, " pixels");
  if (width <= kMaxPixels && height <= kMaxPixels && width * height <= kMaxPixels) return absl::OkStatus();
  return Invalid("the header declares ", width, " × ", height, " pixels, more than ", kMaxPixels >> 20, " Mi");
}

bool IsPicture(ByteSpan bytes) { return FindFormat(bytes) < std::size(kFormats); }

PictureDecoder::PictureDecoder() : readers_(std::size(kFormats)) {}
PictureDecoder::~PictureDecoder() = default;

absl::StatusOr<PictureInfo> PictureDecoder::Open(ByteSpan bytes) {
  current_ = nullptr;
  if (bytes.empty()) return Invalid("the file is empty");
  const size_t format = FindFormat(bytes);
  if (format == std::size(kFormats)) return Invalid("not a JPEG, PNG, WebP, GIF, BMP or TIFF picture");
  if (readers_[format] == nullptr) readers_[format] = kFormats[format].make();
  ASSIGN_OR_RETURN(const PictureInfo info, readers_[format]->Open(bytes));
  RETURN_IF_ERROR(CheckPixels(info.width, info.height));
  current_ = readers_[format].get();
  return info;
}

absl::Status PictureDecoder::Decode(const DecodeRequest& request, Image* image) {
  CHECK(current_ != nullptr);
  return current_->Decode(request, image);
}

}  // namespace onnxtrain
