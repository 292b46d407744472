// Training as a rank other than 0 of a distributed run.
#pragma once

#include "optim/config/config.h"
#include "tools/onnxtrain/commands/rank_group.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {

// Repeats what rank 0 has decided and trains with it. Writes nothing but a log in the folder of the run, into which
// errors go too: rank 0 prints them. Returns the exit code.
int TrainAsFollower(const TrainConfig& given, RankGroup& group, const SignalFlags& signals);

}  // namespace onnxtrain::cli
