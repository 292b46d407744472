#include "frontend/onnx/read/extract_initializers.h"

#include <cstdint>
#include <limits>

#include "frontend/onnx/read/resident_pages.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

using google::protobuf::internal::WireFormatLite;

// The path to raw_data: field numbers in a model, a graph, a tensor.
constexpr int kPath[] = {7, 5, 9};
constexpr size_t kTensor = 2;  // depth of the last message on the path

// Writes a length as a varint of five bytes, whatever its value, so that it can be written before the content is known.
constexpr size_t kLengthBytes = 5;
void WriteLength(uint64_t length, char* to) {
  for (size_t i = 0; i < kLengthBytes; ++i)
    to[i] = static_cast<char>((length >> 7 * i & 127) | (i + 1 < kLengthBytes ? 128 : 0));
}

class InitializerExtractor {
 public:
  InitializerExtractor(std::span<const std::byte> bytes, size_t min_bytes, ExtractedModel* to)
      : bytes_(bytes), pages_(bytes), min_bytes_(min_bytes), to_(*to) {}

  // Copies the message at [begin, end), which is `depth` messages down the path.
  void Copy(size_t begin, size_t end, size_t depth) {
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes_.data() + begin),
                                              static_cast<int>(end - begin));
    in.SetTotalBytesLimit(std::numeric_limits<int>::max());
    for (size_t at = begin; at < end;) {
      const uint32_t tag = in.ReadTag();
      const bool on_path = tag == WireFormatLite::MakeTag(kPath[depth], WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
      uint32_t size = 0;
      if (!(on_path ? in.ReadVarint32(&size) : WireFormatLite::SkipField(&in, tag))) return Append(at, end);
      const size_t body = begin + in.CurrentPosition();
      if (!on_path) {
        Append(at, body);
      } else if (depth == kTensor) {
        ExtractRawData(at, body, size);
      } else {
        Append(at, at + 1);  // the tag: fields up to 15 take one byte
        CopyMessage(body, size, depth + 1);
      }
      if (!in.Skip(static_cast<int>(size))) return;
      at = body + size;
    }
  }

 private:
  void Append(size_t begin, size_t end) {
    to_.rest.append(reinterpret_cast<const char*>(bytes_.data() + begin), end - begin);
  }

  void CopyMessage(size_t body, size_t size, size_t depth) {
    if (depth == kTensor) to_.raw_data.emplace_back();
    const size_t length_at = to_.rest.size();
    to_.rest.append(kLengthBytes, '\0');
    Copy(body, body + size, depth);
    WriteLength(to_.rest.size() - length_at - kLengthBytes, &to_.rest[length_at]);
  }

  // If a tensor has several, the last one counts.
  void ExtractRawData(size_t at, size_t body, size_t size) {
    to_.raw_data.back() = size < min_bytes_ ? ByteRange() : ByteRange{body, size};
    if (size < min_bytes_) Append(at, body + size);
    pages_.PassedTo(body + size);
  }

  std::span<const std::byte> bytes_;
  ReadOnce pages_;
  size_t min_bytes_;
  ExtractedModel& to_;
};

}  // namespace

ExtractedModel ExtractInitializers(std::span<const std::byte> bytes, size_t min_bytes) {
  ExtractedModel model;
  InitializerExtractor(bytes, min_bytes, &model).Copy(0, bytes.size(), 0);
  return model;
}

}  // namespace onnxtrain
