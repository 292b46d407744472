// Reads JPEG with libjpeg-turbo, using the accurate integer DCT and smooth upsampling like Pillow.
#include <cstdio>  // jpeglib.h needs FILE
//
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"

namespace onnxtrain {
namespace {

constexpr int kMaxScans = 500;         // limit, since a progressive file may repeat scans endlessly
constexpr unsigned kExifBytes = 1024;  // enough for the first directory

struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void Fail(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<ErrorManager*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message);
  std::longjmp(errors->jump, 1);
}

// Turns warnings about missing pixels into errors; others ("extraneous bytes") lose nothing.
void Warn(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  const int code = jpeg->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) Fail(jpeg);
}

void CheckScans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  auto* errors = reinterpret_cast<ErrorManager*>(jpeg->err);
  std::strncpy(errors->message, "more than 500 scans", sizeof(errors->message));
  std::longjmp(errors->jump, 1);
}

// Converts inverted CMYK (Adobe's convention) to RGB in place.
void InvertedInkToRgb(uint8_t* row, int width) {
  for (int i = 0; i < width; ++i) {
    const int black = 255 - row[4 * i + 3];
    for (int c = 0; c < 3; ++c) row[3 * i + c] = FromInk(255 - row[4 * i + c], black);
  }
}

class JpegReader : public PictureReader {
 public:
  JpegReader() {
    jpeg_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = Fail;
    errors_.base.emit_message = Warn;
    progress_.progress_monitor = CheckScans;
  }
  ~JpegReader() override {
    if (created_) jpeg_destroy_decompress(&jpeg_);
  }

  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    if (setjmp(errors_.jump)) return Failed();  // NOLINT: how libjpeg reports errors
    if (!created_) {
      jpeg_create_decompress(&jpeg_);
      created_ = true;
      jpeg_.progress = &progress_;
      jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, kExifBytes);
    }
    jpeg_abort_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, bytes.data(), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    PictureInfo info{.width = static_cast<int>(jpeg_.image_width), .height = static_cast<int>(jpeg_.image_height)};
    for (jpeg_saved_marker_ptr m = jpeg_.marker_list; m != nullptr && info.orientation == 1; m = m->next)
      info.orientation = ExifOrientation({m->data, m->data_length});
    return info;
  }

  absl::Status Decode(const DecodeRequest& request, Image* image) override {
    if (setjmp(errors_.jump)) return Failed();  // NOLINT
    SetColors();
    SetScale(request);
    jpeg_start_decompress(&jpeg_);
    ReadPart(request, image);
    jpeg_abort_decompress(&jpeg_);
    return absl::OkStatus();
  }

 private:
  absl::Status Failed() {
    jpeg_abort_decompress(&jpeg_);
    return Invalid("broken JPEG: ", errors_.message);
  }

  void SetColors() {
    const bool cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    const bool grey = jpeg_.jpeg_color_space == JCS_GRAYSCALE;
    jpeg_.out_color_space = cmyk ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_.dct_method = JDCT_ISLOW;
  }

  void SetScale(const DecodeRequest& request) {
    jpeg_.scale_num = jpeg_.scale_denom = 1;
    if (request.min_width <= 0) return;
    const Box part = request.part.value_or(Whole());
    const double spare = std::min(double(part.width) / request.min_width, double(part.height) / request.min_height);
    while (jpeg_.scale_denom < 8 && jpeg_.scale_denom * 2 <= spare) jpeg_.scale_denom *= 2;
  }

  Box Whole() const { return {0, 0, static_cast<int>(jpeg_.image_width), static_cast<int>(jpeg_.image_height)}; }

  // Returns the part in output pixels, with the margin that smooth upsampling reads.
  Box ScaledPart(const DecodeRequest& request) const {
    const Box part = request.part.value_or(Whole());
    const int scale = static_cast<int>(jpeg_.scale_denom);
    const auto up = [&](int end) { return (end + scale - 1) / scale; };
    const int left = std::max(0, part.x / scale - kMargin), top = std::max(0, part.y / scale - kMargin);
    const int right = std::min<int>(jpeg_.output_width, up(part.x + part.width) + kMargin);
    const int bottom = std::min<int>(jpeg_.output_height, up(part.y + part.height) + kMargin);
    return {left, top, right - left, bottom - top};
  }

  // Decodes only the rows and columns of the part.
  void ReadPart(const DecodeRequest& request, Image* image) {
    const Box part = ScaledPart(request);
    JDIMENSION x = 0, width = jpeg_.output_width;
    const auto whole_width = static_cast<int>(width), whole_height = static_cast<int>(jpeg_.output_height);
    if (part.width < whole_width) {
      x = part.x;
      width = part.width;
      jpeg_crop_scanline(&jpeg_, &x, &width);
    }
    image->Reset(static_cast<int>(width), part.height, std::min(jpeg_.output_components, 3));
    image->x = static_cast<int>(x);
    image->y = part.y;
    image->whole_width = whole_width;
    image->whole_height = whole_height;
    if (part.y > 0) jpeg_skip_scanlines(&jpeg_, part.y);
    for (int r = 0; r < image->height; ++r) ReadRow(image->row(r), image->stride());
  }

  void ReadRow(uint8_t* out, size_t size) {
    JSAMPROW row = out;
    if (jpeg_.output_components <= 3) {
      jpeg_read_scanlines(&jpeg_, &row, 1);
      return;
    }
    cmyk_row_.resize(size / 3 * 4);
    row = cmyk_row_.data();
    jpeg_read_scanlines(&jpeg_, &row, 1);
    InvertedInkToRgb(row, static_cast<int>(size / 3));
    std::memcpy(out, row, size);
  }

  static constexpr int kMargin = 2;

  jpeg_decompress_struct jpeg_ = {};
  ErrorManager errors_ = {};
  jpeg_progress_mgr progress_ = {};
  bool created_ = false;
  std::vector<uint8_t> cmyk_row_;  // one row
};

}  // namespace

std::unique_ptr<PictureReader> MakeJpegReader() { return std::make_unique<JpegReader>(); }

}  // namespace onnxtrain
