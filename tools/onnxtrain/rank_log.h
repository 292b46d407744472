// Logs of the processes that a launcher starts together (RANK and WORLD_SIZE in the environment, as torchrun sets
// them).
// There is no distributed training: each of them trains a model of its own.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain::cli {

struct Rank {
  int rank = 0, size = 1;

  bool alone() const { return size == 1; }
};

// From RANK and WORLD_SIZE; alone where they are not set. Fails where they are no rank.
absl::StatusOr<Rank> ReadRank();

// Returns the folder for the run of this rank: `out` of rank 0, else `out`/rank-R. "" stays "".
std::string RankFolder(const Rank& rank, const std::string& out);

// Has everything that is printed to stderr from now on go to the file `folder`/rank-R.log. Rank 0 prints it as well; of
// the others, lines that begin with "onnxtrain: " (errors and warnings), behind their rank.
absl::Status LogToFile(const Rank& rank, const std::string& folder);

}  // namespace onnxtrain::cli
