// Samples in tar archives, named as in WebDataset (https://github.com/webdataset/webdataset): members of a sample share
// the name up to the first dot of the file name; the rest is the name of a column: 0001.jpg, 0001.cls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// An index of the members of archives, made by reading all headers once. Members are read at their offsets, in any
// order. Immutable and thread-safe.
class TarIndex {
 public:
  // Opens the archives that `pattern` stands for (ExpandShards). Refuses compressed archives, sparse members, a member
  // that occurs twice in a sample, and samples that lack a column of the first one. Errors name the archive and the
  // member.
  static absl::StatusOr<std::shared_ptr<const TarIndex>> Open(const std::string& pattern);

  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  // Returns the extensions of members in lower case, without the first dot: "jpg", "seg.png".
  const std::vector<std::string>& extensions() const { return extensions_; }
  // Replaces *bytes by the member of sample i with extensions()[e]. Errors do not name it.
  absl::Status Read(int64_t i, int e, std::vector<uint8_t>* bytes) const;
  // Return the name of sample i, "0001", and the one for messages, "shard-000.tar: 0001".
  const std::string& Key(int64_t i) const { return samples_[i].key; }
  std::string Describe(int64_t i) const;

 private:
  struct Member {
    int64_t offset = 0, size = -1;
  };
  struct Sample {
    std::string key;
    size_t shard = 0;
    std::vector<Member> members;  // one member per extension
  };
  absl::Status AddShard(const std::string& path);
  absl::Status AddMember(const std::string& name, int64_t offset, int64_t size);
  absl::Status CheckComplete() const;

  std::vector<std::string> paths_;
  std::vector<std::shared_ptr<const RandomFile>> files_;
  std::vector<std::string> extensions_;
  std::vector<Sample> samples_;
};

// Returns the paths of a pattern: "a-{08..10}.tar" yields a-08.tar, a-09.tar and a-10.tar. Fails on a descending range
// and on one of more than 100,000 numbers.
absl::StatusOr<std::vector<std::string>> ExpandShards(const std::string& pattern);

}  // namespace onnxtrain
