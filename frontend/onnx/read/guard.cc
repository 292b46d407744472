#include "frontend/onnx/read/proto_util.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

// Lists the message types of onnx.proto that contain messages.
enum Message : uint8_t {
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparseTensor,
  kValueInfo,
  kType,
  kTypeOfTensor,
  kTypeOfMap,
  kTypeOfOther,
  kShape,
  kTraining,
  kFunction,
  kAnnotation,
  kSequence,
  kMap,
  kOptional,
  kFlat,  // contains no messages
};

struct Child {
  Message parent;
  uint32_t field;
  Message child;
};

constexpr Child kChildren[] = {
    {kModel, 7, kGraph},
    {kModel, 8, kFlat},
    {kModel, 14, kFlat},
    {kModel, 20, kTraining},
    {kModel, 25, kFunction},
    {kGraph, 1, kNode},
    {kGraph, 5, kTensor},
    {kGraph, 11, kValueInfo},
    {kGraph, 12, kValueInfo},
    {kGraph, 13, kValueInfo},
    {kGraph, 14, kAnnotation},
    {kGraph, 15, kSparseTensor},
    {kNode, 5, kAttribute},
    {kAttribute, 5, kTensor},
    {kAttribute, 6, kGraph},
    {kAttribute, 10, kTensor},
    {kAttribute, 11, kGraph},
    {kAttribute, 14, kType},
    {kAttribute, 15, kType},
    {kAttribute, 22, kSparseTensor},
    {kAttribute, 23, kSparseTensor},
    {kTensor, 3, kFlat},
    {kTensor, 13, kFlat},
    {kSparseTensor, 1, kTensor},
    {kSparseTensor, 2, kTensor},
    {kValueInfo, 2, kType},
    {kType, 1, kTypeOfTensor},
    {kType, 4, kTypeOfOther},
    {kType, 5, kTypeOfMap},
    {kType, 7, kFlat},
    {kType, 8, kTypeOfTensor},
    {kType, 9, kTypeOfOther},
    {kTypeOfTensor, 2, kShape},
    {kTypeOfOther, 1, kType},
    {kTypeOfMap, 2, kType},
    {kShape, 1, kFlat},
    {kTraining, 1, kGraph},
    {kTraining, 2, kGraph},
    {kTraining, 3, kFlat},
    {kTraining, 4, kFlat},
    {kFunction, 7, kNode},
    {kFunction, 9, kFlat},
    {kAnnotation, 2, kFlat},
    {kSequence, 3, kTensor},
    {kSequence, 4, kSparseTensor},
    {kSequence, 5, kSequence},
    {kSequence, 6, kMap},
    {kSequence, 7, kOptional},
    {kMap, 5, kSequence},
    {kOptional, 3, kTensor},
    {kOptional, 4, kSparseTensor},
    {kOptional, 5, kSequence},
    {kOptional, 6, kMap},
    {kOptional, 7, kOptional},
};

// Packed fields, and the bytes in memory for one byte on the wire.
struct Packed {
  Message message;
  uint32_t field;
  size_t growth;
};
constexpr Packed kPacked[] = {{kTensor, 1, 8}, {kTensor, 5, 4}, {kTensor, 7, 8}, {kTensor, 11, 8}, {kAttribute, 8, 8}};

constexpr size_t kMessageBytes = 400;  // a message object and the parsed struct made from it
constexpr size_t kStringBytes = 48;
constexpr size_t kNumberBytes = 8;

struct Frame {
  Message message;
  size_t end;
};

class Scanner {
 public:
  explicit Scanner(std::span<const std::byte> bytes)
      : bytes_(bytes), pages_(bytes), budget_(3 * bytes.size() + (size_t{200} << 20)) {}

  absl::Status Scan(Message root) {
    stack_ = {{root, bytes_.size()}};
    while (!stack_.empty()) {
      if (at_ == stack_.back().end) {
        graphs_ -= stack_.back().message == kGraph;
        stack_.pop_back();
      } else {
        RETURN_IF_ERROR(ScanField());
        if (used_ > budget_) return Invalid("declares more messages than a file of its size may hold in memory");
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MalformedError() const { return Invalid("is not an ONNX model: malformed protobuf at byte ", at_); }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == stack_.back().end) return false;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      *value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }

  bool SkipBytes(uint64_t n) {
    if (n > stack_.back().end - at_) return false;
    at_ += n;
    return true;
  }

  absl::Status ScanField() {
    uint64_t tag, value;
    if (!ReadVarint(&tag) || tag >> 3 == 0 || tag >> 32 != 0) return MalformedError();
    used_ += kNumberBytes;
    switch (tag & 7) {
      case 0:
        return ReadVarint(&value) ? absl::OkStatus() : MalformedError();
      case 1:
        return SkipBytes(8) ? absl::OkStatus() : MalformedError();
      case 2:
        return ScanBlock(static_cast<uint32_t>(tag >> 3));
      case 5:
        return SkipBytes(4) ? absl::OkStatus() : MalformedError();
    }
    return MalformedError();  // groups, which ONNX does not use
  }

  absl::Status ScanBlock(uint32_t field) {
    uint64_t size;
    if (!ReadVarint(&size) || size > stack_.back().end - at_) return MalformedError();
    const Message parent = stack_.back().message;
    for (const Child& c : kChildren) {
      if (c.parent == parent && c.field == field) return EnterMessage(c.child, size);
    }
    size_t growth = 1;
    for (const Packed& p : kPacked) {
      if (p.message == parent && p.field == field) growth = p.growth;
    }
    used_ += kStringBytes + size * growth;
    at_ += size;
    pages_.PassedTo(at_);
    return absl::OkStatus();
  }

  absl::Status EnterMessage(Message message, size_t size) {
    used_ += kMessageBytes;
    graphs_ += message == kGraph;
    // The model's own graph is not a subgraph.
    if (graphs_ > kMaxSubgraphs + 1) return Invalid("nests subgraphs more than ", kMaxSubgraphs, " deep");
    if (stack_.size() >= kMaxMessages) return Invalid("nests messages more than ", kMaxMessages, " deep");
    stack_.push_back({message, at_ + size});
    return absl::OkStatus();
  }

  std::span<const std::byte> bytes_;
  ReadOnce pages_;
  std::vector<Frame> stack_;
  size_t at_ = 0, used_ = 0, budget_;
  int graphs_ = 0;
};

}  // namespace

absl::Status GuardModelBytes(std::span<const std::byte> bytes) { return Scanner(bytes).Scan(kModel); }

absl::Status GuardTensorBytes(std::span<const std::byte> bytes) { return Scanner(bytes).Scan(kTensor); }

absl::Status GuardSequenceBytes(std::span<const std::byte> bytes) { return Scanner(bytes).Scan(kSequence); }

absl::Status GuardOptionalBytes(std::span<const std::byte> bytes) { return Scanner(bytes).Scan(kOptional); }

namespace {

using google::protobuf::internal::WireFormatLite;

// Field numbers of the path to raw_data: graph in a model, initializer in a graph, raw_data in a tensor.
constexpr int kPath[] = {7, 5, 9};
constexpr size_t kTensorDepth = 2;  // depth of the last message on the path

// Writes a length as a varint of always five bytes, so that its space can be reserved before the content is known.
constexpr size_t kLengthBytes = 5;
void WriteLength(uint64_t length, char* to) {
  for (size_t i = 0; i < kLengthBytes; ++i)
    to[i] = static_cast<char>((length >> 7 * i & 127) | (i + 1 < kLengthBytes ? 128 : 0));
}

class InitializerExtractor {
 public:
  InitializerExtractor(std::span<const std::byte> bytes, size_t min_bytes, ExtractedModel* to)
      : bytes_(bytes), pages_(bytes), min_bytes_(min_bytes), to_(*to) {}

  // Copies the message at [begin, end), the one at `depth` on the path.
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
      } else if (depth == kTensorDepth) {
        ExtractRawData(at, body, size);
      } else {
        Append(at, at + 1);  // the tag; one byte for field numbers up to 15
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
    if (depth == kTensorDepth) to_.raw_data.emplace_back();
    const size_t length_at = to_.rest.size();
    to_.rest.append(kLengthBytes, '\0');
    Copy(body, body + size, depth);
    WriteLength(to_.rest.size() - length_at - kLengthBytes, &to_.rest[length_at]);
  }

  // Records the range of raw_data; the last one counts if a tensor has several.
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
