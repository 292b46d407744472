#include "frontend/data/image/image.h"

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <string_view>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"

namespace onnxtrain {
namespace {

constexpr png_alloc_size_t kMaxChunk = 8 << 20;  // limit for text, color profiles etc.

uint32_t BigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// Fails if a chunk before the pixels is longer than the file, since libpng would allocate memory for it.
absl::Status CheckChunks(ByteSpan bytes) {
  constexpr size_t kSignature = 8, kHead = 8, kChecksum = 4;
  for (size_t at = kSignature; at + kHead <= bytes.size();) {
    const std::string_view type(reinterpret_cast<const char*>(&bytes[at + 4]), 4);
    if (type == "IDAT") return absl::OkStatus();
    const size_t length = BigEndian(&bytes[at]), left = bytes.size() - at - kHead;
    if (length > left) return Invalid("broken PNG: a chunk of ", length, " bytes, and ", left, " are left");
    at += kHead + length + kChecksum;
  }
  return absl::OkStatus();
}

class PngReader : public PictureReader {
 public:
  ~PngReader() override { Close(); }

  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    Close();
    RETURN_IF_ERROR(CheckChunks(bytes));
    left_ = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &Fail, &Ignore);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) return absl::ResourceExhaustedError("out of memory");
    if (setjmp(jump_)) return Failed();  // NOLINT: how libpng reports errors
    png_set_chunk_malloc_max(png_, kMaxChunk);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // PictureDecoder checks
    png_set_read_fn(png_, this, &Read);
    png_read_info(png_, info_);
    return Describe();
  }

  absl::Status Decode(const DecodeRequest& request, Image* image) override {
    if (setjmp(jump_)) return Failed();  // NOLINT
    SetTransforms(request.indices);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    image->Reset(static_cast<int>(png_get_image_width(png_, info_)),
                 static_cast<int>(png_get_image_height(png_, info_)), png_get_channels(png_, info_));
    for (int pass = 0; pass < passes; ++pass) {
      for (int y = 0; y < image->height; ++y) png_read_row(png_, image->row(y), nullptr);
    }
    return absl::OkStatus();
  }

 private:
  static void Fail(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof(self->message_) - 1);
    std::longjmp(self->jump_, 1);
  }
  static void Ignore(png_structp, png_const_charp) {}
  static void Read(png_structp png, png_bytep out, size_t size) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > self->left_.size()) png_error(png, "unexpected end of file");
    std::memcpy(out, self->left_.data(), size);
    self->left_ = self->left_.subspan(size);
  }

  absl::Status Failed() const { return Invalid("broken PNG: ", message_); }

  PictureInfo Describe() {
    PictureInfo info{.width = static_cast<int>(png_get_image_width(png_, info_)),
                     .height = static_cast<int>(png_get_image_height(png_, info_))};
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) != 0) info.orientation = ExifOrientation({exif, size});
    return info;
  }

  // Selects libpng's conversions to 8-bit RGB, grey or indices.
  void SetTransforms(bool indices) {
    const int type = png_get_color_type(png_, info_), depth = png_get_bit_depth(png_, info_);
    if (depth == 16) png_set_strip_16(png_);
    png_set_strip_alpha(png_);  // including the alpha of a palette
    if (type == PNG_COLOR_TYPE_PALETTE) indices ? png_set_packing(png_) : png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
      indices ? png_set_packing(png_) : png_set_expand_gray_1_2_4_to_8(png_);
  }

  void Close() { png_destroy_read_struct(&png_, &info_, nullptr); }

  ByteSpan left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char message_[128] = {};
};

}  // namespace

std::unique_ptr<PictureReader> MakePngReader() { return std::make_unique<PngReader>(); }

std::string EncodePng(std::string_view pixels, int64_t height, int64_t width, int64_t channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(size, '\0');
  if (png_image_write_to_memory(&image, png.data(), &size, 0, pixels.data(), 0, nullptr) == 0) return "";
  png.resize(size);
  return png;
}

}  // namespace onnxtrain
