// Where the members of a zip archive lie, so that stored ones can be read at any offset (PKWARE's APPNOTE 6.3, with
// zip64).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

struct ZipMember {
  std::string name;
  bool stored = false;  // neither packed nor encrypted
  int64_t offset = 0;   // of its bytes, where it is stored
  int64_t size = 0;     // unpacked
};

// Lists the members in the order of the archive's directory. Members that reach beyond the file are an error.
absl::StatusOr<std::vector<ZipMember>> ListZipMembers(const RandomFile& file);

}  // namespace onnxtrain
