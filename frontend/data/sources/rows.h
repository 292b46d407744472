// The sources of this folder. A new format adds its row to the table in rows.cc; rows are asked in that order.
#pragma once

#include <vector>

#include "frontend/data/sources/source.h"

namespace onnxtrain {

std::vector<Source> BuiltInSources();

}  // namespace onnxtrain
