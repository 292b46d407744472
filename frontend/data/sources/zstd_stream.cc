#include "frontend/data/sources/zstd_stream.h"

#include <zstd.h>

#include <memory>
#include <vector>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int kMaxWindowLog = 27;

class ZstdStream {
 public:
  explicit ZstdStream(ReadFn read) : read_(std::move(read)), packed_(ZSTD_DStreamInSize()) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos < to.size) {
      if (from_.pos == from_.size) RETURN_IF_ERROR(Fill());
      if (from_.size == 0) break;
      const size_t left = ZSTD_decompressStream(context_.get(), &to, &from_);
      if (ZSTD_isError(left)) return Invalid("the Zstandard data is corrupt: ", ZSTD_getErrorName(left));
      in_frame_ = left != 0;
    }
    return to.pos;
  }

 private:
  absl::Status Fill() {
    ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(packed_))));
    if (got == 0 && in_frame_) return Invalid("the Zstandard data is truncated");
    from_ = {packed_.data(), got, 0};
    return absl::OkStatus();
  }

  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  ReadFn read_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_DCtx, Free> context_{ZSTD_createDCtx()};
  ZSTD_inBuffer from_ = {nullptr, 0, 0};
  bool in_frame_ = false;
};

}  // namespace

struct ZstdCompressor::Context {
  explicit Context(std::function<absl::Status(std::span<const std::byte> bytes)> sink)
      : write(std::move(sink)), zstd(ZSTD_createCCtx()), packed(ZSTD_CStreamOutSize()) {
    constexpr int kLevel = 1;  // higher levels gain little on floats
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
  }
  ~Context() { ZSTD_freeCCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Compresses all of `bytes`; at the end of the frame, everything that is still held back.
  absl::Status Compress(std::span<const std::byte> bytes, ZSTD_EndDirective mode) {
    ZSTD_inBuffer from = {bytes.data(), bytes.size(), 0};
    for (bool done = false; !done;) {
      ZSTD_outBuffer to = {packed.data(), packed.size(), 0};
      const size_t left = ZSTD_compressStream2(zstd, &to, &from, mode);
      if (ZSTD_isError(left)) return absl::InternalError(StrCat("Zstandard: ", ZSTD_getErrorName(left)));
      RETURN_IF_ERROR(write(std::span(packed).first(to.pos)));
      done = mode == ZSTD_e_end ? left == 0 : from.pos == from.size;
    }
    return absl::OkStatus();
  }

  std::function<absl::Status(std::span<const std::byte> bytes)> write;
  ZSTD_CCtx* zstd;
  std::vector<std::byte> packed;
};

ZstdCompressor::ZstdCompressor(std::function<absl::Status(std::span<const std::byte> bytes)> write)
    : context_(std::make_shared<Context>(std::move(write))) {}

absl::Status ZstdCompressor::Append(std::span<const std::byte> bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  return context_->Compress(bytes, ZSTD_e_continue);
}

absl::Status ZstdCompressor::Finish() { return context_->Compress({}, ZSTD_e_end); }

ReadFn DecompressZstd(ReadFn read) {
  auto stream = std::make_shared<ZstdStream>(std::move(read));
  return [stream](std::span<std::byte> out) { return stream->Read(out); };
}

}  // namespace onnxtrain
