// Reads the first frame of a GIF with giflib.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"

namespace onnxtrain {
namespace {

struct Closer {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

// Passes over the rows of an interlaced frame.
constexpr struct { int first, step; } kPasses[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}}, kOnePass[] = {{0, 1}};

class GifReader : public PictureReader {
 public:
  absl::StatusOr<PictureInfo> Open(ByteSpan bytes) override {
    left_ = bytes;
    gif_.reset(DGifOpen(this, &Read, nullptr));
    if (gif_ == nullptr) return Broken();
    return PictureInfo{.width = gif_->SWidth, .height = gif_->SHeight};
  }

  absl::Status Decode(const DecodeRequest& request, Image* image) override {
    RETURN_IF_ERROR(FindFrame());
    const GifImageDesc& frame = gif_->Image;
    const ColorMapObject* map = frame.ColorMap != nullptr ? frame.ColorMap : gif_->SColorMap;
    if (map == nullptr) return Invalid("broken GIF: it has no colors");
    if (frame.Left < 0 || frame.Top < 0 || frame.Width < 1 || frame.Height < 1 ||
        frame.Left + frame.Width > gif_->SWidth || frame.Top + frame.Height > gif_->SHeight)
      return Invalid("broken GIF: its first frame exceeds the screen");
    image->Reset(gif_->SWidth, gif_->SHeight, request.indices ? 1 : 3);
    std::ranges::fill(image->pixels, uint8_t{0});
    indices_.resize(frame.Width);
    const std::span passes = frame.Interlace ? std::span<const Pass>(kPasses) : std::span<const Pass>(kOnePass);
    for (const Pass& pass : passes) {
      for (int r = pass.first; r < frame.Height; r += pass.step) {
        if (DGifGetLine(gif_.get(), indices_.data(), frame.Width) == GIF_ERROR) return Broken();
        WriteRow(*map, image->row(frame.Top + r) + size_t{static_cast<unsigned>(frame.Left)} * image->channels,
                 request.indices);
      }
    }
    return absl::OkStatus();
  }

 private:
  using Pass = std::remove_cvref_t<decltype(kPasses[0])>;

  static int Read(GifFileType* gif, GifByteType* out, int size) {
    auto* self = static_cast<GifReader*>(gif->UserData);
    const size_t n = std::min<size_t>(size, self->left_.size());
    std::memcpy(out, self->left_.data(), n);
    self->left_ = self->left_.subspan(n);
    return static_cast<int>(n);
  }

  static absl::Status Broken() { return Invalid("broken or truncated GIF"); }

  // Skips extensions up to the first frame and reads its header.
  absl::Status FindFrame() {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    while (DGifGetRecordType(gif_.get(), &record) != GIF_ERROR) {
      if (record == IMAGE_DESC_RECORD_TYPE)
        return DGifGetImageDesc(gif_.get()) == GIF_ERROR ? Broken() : absl::OkStatus();
      if (record == TERMINATE_RECORD_TYPE) return Invalid("broken GIF: it has no frame");
      int code = 0;
      GifByteType* block = nullptr;
      if (DGifGetExtension(gif_.get(), &code, &block) == GIF_ERROR) return Broken();
      while (block != nullptr) {
        if (DGifGetExtensionNext(gif_.get(), &block) == GIF_ERROR) return Broken();
      }
    }
    return Broken();
  }

  void WriteRow(const ColorMapObject& map, uint8_t* out, bool as_indices) const {
    if (as_indices) {
      std::ranges::copy(indices_, out);
      return;
    }
    for (size_t i = 0; i < indices_.size(); ++i) {
      if (indices_[i] >= map.ColorCount) continue;  // stays black
      const GifColorType& color = map.Colors[indices_[i]];
      out[3 * i] = color.Red;
      out[3 * i + 1] = color.Green;
      out[3 * i + 2] = color.Blue;
    }
  }

  ByteSpan left_;
  std::unique_ptr<GifFileType, Closer> gif_;
  std::vector<GifPixelType> indices_;  // one row
};

}  // namespace

std::unique_ptr<PictureReader> MakeGifReader() { return std::make_unique<GifReader>(); }

}  // namespace onnxtrain
