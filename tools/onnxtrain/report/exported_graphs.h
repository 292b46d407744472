// Describes graphs that were written for other runtimes.
#pragma once

#include <string>

#include "optim/plan/export_graphs.h"

namespace onnxtrain::cli {

std::string DescribeGraphs(const ExportedGraphs& exported);

}  // namespace onnxtrain::cli
