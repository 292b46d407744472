// External data out: beneath the target's folder, under the names that it had.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/atomic_file.h"
#include "frontend/onnx/file.h"

namespace onnxtrain {

// Collects the tensors that a model keeps outside and writes their files. A tensor keeps its location and offset, unless
//   - it has new bytes and shares the old ones with another tensor: then it moves to the end of its file;
//   - a file of the same name is there already (the source's own, if the target stands beside the source): then all
//     tensors go into one file TARGET.data.
// Tensors are written one by one from where they lie (the mapped source, or the trained weight): nothing is gathered.
class ExternalWriter {
 public:
  ExternalWriter(const std::string& source, const std::string& target);
  ~ExternalWriter();
  ExternalWriter(const ExternalWriter&) = delete;
  ExternalWriter& operator=(const ExternalWriter&) = delete;

  // `range` is where the tensor stands beneath the source's folder; its location has been checked. Returns its number.
  size_t Add(ExternalRange range, HostTensor bytes, bool replaced);
  size_t size() const { return pieces_.size(); }

  // Decides where everything goes; after it range(i) is final.
  absl::Status Place();
  const ExternalRange& range(size_t i) const { return pieces_[i].range; }

  // Writes temporary files, then gives all their names at once.
  absl::Status Write();
  absl::Status Commit();

 private:
  struct Piece {
    ExternalRange range;
    HostTensor bytes;
    bool replaced;
    std::string file;  // the location without "./"
  };

  int64_t SizeOf(const Piece& piece) const { return static_cast<int64_t>(piece.bytes.bytes().size()); }
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
