// Writes large initializers into the message of a model or as external data, without copying them in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/files.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// A part of a serialized message: the bytes of `head`, followed by `data`.
struct MessagePiece {
  std::string head;
  LazyTensor data;
};

uint64_t CountBytes(const std::vector<MessagePiece>& pieces);

// Returns the serialized model `message` with raw_data[i] inserted into initializer i of its graph. If raw_data[i] is
// not empty, the raw_data of the initializer must be present and empty.
std::vector<MessagePiece> InsertInitializers(std::string_view message, const std::vector<LazyTensor>& raw_data);

// Writes the tensor's bytes at `offset` in blocks.
absl::Status WriteAt(int64_t offset, const LazyTensor& tensor, AtomicFile& file);

// Collects the tensors with external data and writes their files beneath the target's folder. A tensor keeps its
// location and offset, unless
// - it has new bytes and shared the old bytes with another tensor: it moves to the end of its file;
// - a file of that name exists (the source's, if source and target are in one folder): all tensors move into one file
//   TARGET.data.
// Writes tensors in blocks from the mapped source or the trained weights.
class ExternalWriter {
 public:
  ExternalWriter(const std::string& source, const std::string& target);
  ~ExternalWriter();
  ExternalWriter(const ExternalWriter&) = delete;
  ExternalWriter& operator=(const ExternalWriter&) = delete;

  // Adds a tensor at `range` beneath the source's folder; its location must have been checked. Returns its index.
  size_t Add(ExternalRange range, LazyTensor bytes, bool replaced);
  size_t size() const { return pieces_.size(); }
  int64_t bytes() const;  // sum over all tensors

  // Chooses the locations of all tensors; afterwards range(i) is final.
  absl::Status Place();
  const ExternalRange& range(size_t i) const { return pieces_[i].range; }

  // Write() writes temporary files; Commit() renames all of them.
  absl::Status Write();
  absl::Status Commit();

 private:
  struct Piece {
    ExternalRange range;
    LazyTensor bytes;
    bool replaced;
    std::string file;  // location without "./"
  };

  int64_t PieceBytes(const Piece& piece) const { return static_cast<int64_t>(piece.bytes.bytes()); }
  bool NamesAreFree() const;
  bool Exists(const std::string& file) const;
  void MoveSharedPieces();
  void GatherIntoOne();
  absl::StatusOr<int> OpenParent(const std::vector<std::string>& parts) const;

  std::string target_name_, shown_folder_;
  int source_fd_ = -1, target_fd_ = -1;
  std::vector<Piece> pieces_;
  std::vector<AtomicFile> files_;
};

}  // namespace onnxtrain
