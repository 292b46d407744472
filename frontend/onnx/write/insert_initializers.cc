#include "frontend/onnx/write/insert_initializers.h"

#include <iterator>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

using google::protobuf::internal::WireFormatLite;

// The path to raw_data: field numbers in a model, a graph, a tensor.
constexpr int kPath[] = {7, 5, 9};
constexpr size_t kTensor = 2;  // depth of the last message on the path

void AppendVarint(uint64_t value, std::string* to) {
  for (; value > 127; value >>= 7) to->push_back(static_cast<char>(value | 128));
  to->push_back(static_cast<char>(value));
}

class InitializerInserter {
 public:
  InitializerInserter(std::string_view message, const std::vector<LazyTensor>& raw_data)
      : message_(message), raw_data_(raw_data) {}

  // Copies the message at [begin, end), which is `depth` messages down the path.
  std::vector<MessagePiece> Copy(size_t begin, size_t end, size_t depth) {
    std::vector<MessagePiece> pieces(1);
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(message_.data() + begin),
                                              static_cast<int>(end - begin));
    for (size_t at = begin; at < end;) {
      const uint32_t tag = in.ReadTag();
      const bool on_path = tag == WireFormatLite::MakeTag(kPath[depth], WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
      uint32_t size = 0;
      on_path ? in.ReadVarint32(&size) : WireFormatLite::SkipField(&in, tag);
      const size_t body = begin + in.CurrentPosition();
      in.Skip(static_cast<int>(size));
      if (!on_path) {
        pieces.back().head.append(message_.substr(at, body - at));
      } else if (depth == kTensor) {
        AppendRawData(message_.substr(at, body + size - at), &pieces);
      } else {
        pieces.back().head.push_back(message_[at]);  // the tag: fields up to 15 take one byte
        AppendMessage(Copy(body, body + size, depth + 1), &pieces);
      }
      at = body + size;
    }
    initializer_ += depth == kTensor ? 1 : 0;
    return pieces;
  }

 private:
  void AppendRawData(std::string_view field, std::vector<MessagePiece>* to) const {
    const LazyTensor& data = raw_data_[initializer_];
    if (data.bytes() == 0) return void(to->back().head.append(field));
    to->back().head.push_back(field[0]);
    AppendVarint(data.bytes(), &to->back().head);
    to->back().data = data;
    to->emplace_back();
  }

  static void AppendMessage(std::vector<MessagePiece> message, std::vector<MessagePiece>* to) {
    AppendVarint(CountBytes(message), &to->back().head);
    to->back().head.append(message.front().head);
    to->back().data = message.front().data;
    to->insert(to->end(), std::make_move_iterator(message.begin() + 1), std::make_move_iterator(message.end()));
  }

  std::string_view message_;
  const std::vector<LazyTensor>& raw_data_;
  size_t initializer_ = 0;  // that is copied next
};

}  // namespace

uint64_t CountBytes(const std::vector<MessagePiece>& pieces) {
  uint64_t bytes = 0;
  for (const MessagePiece& piece : pieces) bytes += piece.head.size() + piece.data.bytes();
  return bytes;
}

std::vector<MessagePiece> InsertInitializers(std::string_view message, const std::vector<LazyTensor>& raw_data) {
  return InitializerInserter(message, raw_data).Copy(0, message.size(), 0);
}

}  // namespace onnxtrain
