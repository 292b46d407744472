#include "frontend/onnx/write/external_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

using google::protobuf::internal::WireFormatLite;

// Field numbers of the path to raw_data: graph in a model, initializer in a graph, raw_data in a tensor.
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

  // Copies the message at [begin, end), the one at `depth` on the path.
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
        pieces.back().head.push_back(message_[at]);  // the tag; one byte for field numbers up to 15
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
  size_t initializer_ = 0;  // index of the next initializer
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

namespace {

constexpr int64_t kAlignment = 4096;  // the alignment that ONNX recommends for mapping
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::string ParentFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool SameFile(int a, int b) {
  struct stat x, y;
  return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int64_t AlignOffset(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::Status WriteAt(int64_t offset, const LazyTensor& tensor, AtomicFile& file) {
  absl::Status status;
  tensor.ForEachBlock([&](int64_t, const HostTensor& block) {
    status = file.WriteAt(offset, block.bytes());
    offset += std::ssize(block.bytes());
    return status.ok();
  });
  return status;
}

ExternalWriter::ExternalWriter(const std::string& source, const std::string& target)
    : target_name_(std::filesystem::path(target).filename().string()),
      shown_folder_(ParentFolder(target)),
      source_fd_(::open(ParentFolder(source).c_str(), kFolderFlags)),
      target_fd_(::open(shown_folder_.c_str(), kFolderFlags)) {}

ExternalWriter::~ExternalWriter() {
  for (int fd : {source_fd_, target_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

size_t ExternalWriter::Add(ExternalRange range, LazyTensor bytes, bool replaced) {
  auto parts = ExternalFiles::SplitLocation(range.location);
  pieces_.push_back({std::move(range), std::move(bytes), replaced, parts.ok() ? absl::StrJoin(*parts, "/") : ""});
  return pieces_.size() - 1;
}

int64_t ExternalWriter::bytes() const {
  int64_t bytes = 0;
  for (const Piece& p : pieces_) bytes += PieceBytes(p);
  return bytes;
}

bool ExternalWriter::Exists(const std::string& file) const {
  struct stat info;
  return ::fstatat(target_fd_, file.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

bool ExternalWriter::NamesAreFree() const {
  if (source_fd_ < 0 || SameFile(source_fd_, target_fd_)) return false;
  return std::ranges::none_of(pieces_, [&](const Piece& p) { return p.file == target_name_ || Exists(p.file); });
}

// Moves replaced tensors that overlap others to the end of the file, so that new bytes do not overwrite old ones.
void ExternalWriter::MoveSharedPieces() {
  std::map<std::string, std::vector<Piece*>> by_file;
  for (Piece& p : pieces_) by_file[p.file].push_back(&p);
  for (auto& [file, pieces] : by_file) {
    std::ranges::stable_sort(pieces, {}, [](const Piece* p) { return p->range.offset; });
    int64_t end = 0;
    std::vector<bool> shares(pieces.size(), false);
    size_t reaches = 0;  // the piece with the largest end so far
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0 && pieces[i]->range.offset < end) shares[i] = shares[reaches] = true;
      if (const int64_t mine = pieces[i]->range.offset + PieceBytes(*pieces[i]); mine >= end) end = mine, reaches = i;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!shares[i] || !pieces[i]->replaced) continue;
      pieces[i]->range.offset = AlignOffset(end);
      end = pieces[i]->range.offset + PieceBytes(*pieces[i]);
    }
  }
}

void ExternalWriter::GatherIntoOne() {
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> placed;  // new offsets by old range, so that shared
                                                                        // ranges stay shared
  const std::string name = target_name_ + ".data";
  int64_t end = 0;
  for (Piece& p : pieces_) {
    const auto key = std::tuple(p.file, p.range.offset, PieceBytes(p));
    auto known = p.replaced ? placed.end() : placed.find(key);
    const int64_t offset = known != placed.end() ? known->second : AlignOffset(end);
    if (!p.replaced) placed.emplace(key, offset);
    if (known == placed.end()) end = offset + PieceBytes(p);
    p.range = {.location = name, .offset = offset};
    p.file = name;
  }
}

absl::Status ExternalWriter::Place() {
  if (pieces_.empty()) return absl::OkStatus();
  if (target_fd_ < 0) return absl::UnavailableError(StrCat(shown_folder_, ": cannot be opened"));
  if (NamesAreFree()) {
    MoveSharedPieces();
  } else {
    GatherIntoOne();
  }
  for (Piece& p : pieces_) p.range.length = PieceBytes(p);
  return absl::OkStatus();
}

// Opens the folder of a file beneath the target's folder and creates missing folders; follows no links.
absl::StatusOr<int> ExternalWriter::OpenParent(const std::vector<std::string>& parts) const {
  int at = ::fcntl(target_fd_, F_DUPFD_CLOEXEC, 0);
  for (size_t i = 0; at >= 0 && i + 1 < parts.size(); ++i) {
    int next = -1;
    if (::mkdirat(at, parts[i].c_str(), 0755) == 0 || errno == EEXIST)
      next = ::openat(at, parts[i].c_str(), kFolderFlags | O_NOFOLLOW);
    const int error = errno;
    ::close(std::exchange(at, next));
    errno = error;
  }
  if (at < 0)
    return absl::UnavailableError(
        StrCat(shown_folder_, "/", absl::StrJoin(parts, "/"), ": cannot be created: ", std::strerror(errno)));
  return at;
}

absl::Status ExternalWriter::Write() {
  std::map<std::string, std::vector<const Piece*>> by_file;
  for (const Piece& p : pieces_) by_file[p.file].push_back(&p);
  for (const auto& [file, pieces] : by_file) {
    ASSIGN_OR_RETURN(const std::vector<std::string> parts, ExternalFiles::SplitLocation(file));
    ASSIGN_OR_RETURN(const int folder, OpenParent(parts));
    auto out = AtomicFile::Create(folder, parts.back(), StrCat(shown_folder_, "/", file));
    ::close(folder);
    RETURN_IF_ERROR(out.status());
    for (const Piece* p : pieces) RETURN_IF_ERROR(WriteAt(p->range.offset, p->bytes, *out));
    files_.push_back(*std::move(out));
  }
  return absl::OkStatus();
}

absl::Status ExternalWriter::Commit() {
  for (AtomicFile& file : files_) RETURN_IF_ERROR(file.Commit());
  return absl::OkStatus();
}

}  // namespace onnxtrain
