#include "frontend/onnx/lift.h"

#include <cstdint>
#include <limits>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

using google::protobuf::internal::WireFormatLite;

// The way down to raw_data: fields of a model, a graph, a tensor.
constexpr int kWay[] = {7, 5, 9};
constexpr size_t kTensor = 2;  // the last message on the way

// A length as a varint of five bytes, whatever its value: it is written before what it counts is there.
constexpr size_t kLengthBytes = 5;
void WriteLength(uint64_t length, char* to) {
  for (size_t i = 0; i < kLengthBytes; ++i) to[i] = static_cast<char>((length >> 7 * i & 127) | (i + 1 < kLengthBytes ? 128 : 0));
}

class Lifter {
 public:
  Lifter(std::span<const std::byte> bytes, size_t from, LiftedModel* to) : bytes_(bytes), from_(from), to_(*to) {}

  // The message at [begin, end), as deep on the way as `depth` says.
  void Copy(size_t begin, size_t end, size_t depth) {
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes_.data() + begin), static_cast<int>(end - begin));
    in.SetTotalBytesLimit(std::numeric_limits<int>::max());
    for (size_t at = begin; at < end;) {
      const uint32_t tag = in.ReadTag();
      const bool on_way = tag == WireFormatLite::MakeTag(kWay[depth], WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
      uint32_t size = 0;
      if (!(on_way ? in.ReadVarint32(&size) : WireFormatLite::SkipField(&in, tag))) return Append(at, end);
      const size_t body = begin + in.CurrentPosition();
      if (!on_way) {
        Append(at, body);
      } else if (depth == kTensor) {
        RawData(at, body, size);
      } else {
        Append(at, at + 1);  // the tag: fields up to 15 take one byte
        Enter(body, size, depth + 1);
      }
      if (!in.Skip(static_cast<int>(size))) return;
      at = body + size;
    }
  }

 private:
  void Append(size_t begin, size_t end) { to_.rest.append(reinterpret_cast<const char*>(bytes_.data() + begin), end - begin); }

  void Enter(size_t body, size_t size, size_t depth) {
    if (depth == kTensor) to_.raw_data.emplace_back();
    const size_t length_at = to_.rest.size();
    to_.rest.append(kLengthBytes, '\0');
    Copy(body, body + size, depth);
    WriteLength(to_.rest.size() - length_at - kLengthBytes, &to_.rest[length_at]);
  }

  // Of several, the last counts.
  void RawData(size_t at, size_t body, size_t size) {
    to_.raw_data.back() = size < from_ ? ByteRange() : ByteRange{body, size};
    if (size < from_) Append(at, body + size);
  }

  std::span<const std::byte> bytes_;
  size_t from_;
  LiftedModel& to_;
};

}  // namespace

LiftedModel LiftInitializers(std::span<const std::byte> bytes, size_t from) {
  LiftedModel model;
  Lifter(bytes, from, &model).Copy(0, bytes.size(), 0);
  return model;
}

}  // namespace onnxtrain
