// One checkpoint that several ranks write, each the parts of the state that it has.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "optim/record/checkpoint/checkpoint_folder.h"

namespace onnxtrain {

// Called by all ranks, with a folder that all of them see. Every rank writes its parts at the same time; rank 0
// completes the checkpoint once all have. `ready`: may this rank begin? All ranks return alike: the error of one that
// could not begin or write, of which nothing is left then but the older checkpoints.
absl::Status WriteTogether(Collectives& ranks, const absl::Status& ready, const CheckpointContent& content,
                           CheckpointFolder* folder);

// Called by all ranks with the folder that rank 0 writes to, by the name that each has for it: do all see the same one,
// and may they write to it? Rank 0 writes a random text, which the others look for.
absl::StatusOr<bool> IsSharedFolder(Collectives& ranks, const std::string& path);

}  // namespace onnxtrain
