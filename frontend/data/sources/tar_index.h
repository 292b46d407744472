// Samples in tar archives, as WebDataset names them (https://github.com/webdataset/webdataset): the members of one
// sample have one name up to the first dot of their file name, and the rest is the name of a column: 0001.jpg,
// 0001.cls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Reads the headers of all archives once; members are then read at their offsets, in any order. Immutable; any thread
// may read.
class TarIndex {
 public:
  // `pattern` is a file or several: "{000..099}" stands for the numbers of that range, with their leading zeros.
  // Refuses compressed archives, sparse members, a member that occurs twice in its sample, and samples that lack a
  // column of the first one. Errors name the archive and the member.
  static absl::StatusOr<std::shared_ptr<const TarIndex>> Open(const std::string& pattern);

  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  // The extensions of the members, in lower case without the first dot: "jpg", "seg.png".
  const std::vector<std::string>& extensions() const { return extensions_; }
  // Replaces *bytes by the member of sample i with extensions()[e]. The message does not name it.
  absl::Status Read(int64_t i, int e, std::vector<uint8_t>* bytes) const;
  // Returns "0001", and "shard-000.tar: 0001".
  const std::string& Key(int64_t i) const { return samples_[i].key; }
  std::string Describe(int64_t i) const;

 private:
  struct Member {
    int64_t offset = 0, size = -1;
  };
  struct Sample {
    std::string key;
    size_t shard = 0;
    std::vector<Member> members;  // by extension
  };
  absl::Status AddShard(const std::string& path);
  absl::Status AddMember(const std::string& name, int64_t offset, int64_t size);
  absl::Status CheckComplete() const;

  std::vector<std::string> paths_;
  std::vector<std::shared_ptr<const RandomFile>> files_;
  std::vector<std::string> extensions_;
  std::vector<Sample> samples_;
};

// Returns the paths that a pattern stands for: "a-{08..10}.tar" is a-08.tar, a-09.tar, a-10.tar. Fails on a range that
// runs backwards or has more than 100,000 numbers.
absl::StatusOr<std::vector<std::string>> ExpandShards(const std::string& pattern);

}  // namespace onnxtrain
