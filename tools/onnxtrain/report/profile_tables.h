// The operators and nodes that take the most time, as tables.
#pragma once

#include <string>

#include "optim/record/telemetry/trace.h"

namespace onnxtrain::cli {

std::string ProfileTables(const Trace& trace);

}  // namespace onnxtrain::cli
