// Plots of characters, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "optim/record/run_record.h"

namespace onnxtrain::cli {

// Four significant digits, and all before the point: "0.1234", "35,287".
std::string PlotNumber(double x);

// Returns `height` lines of about `width` columns: the values at the left, the curve in dots of Braille (two by four to
// a character). Logarithmic where all values are positive and span more than two decades. Empty of an empty series.
std::vector<std::string> TerminalPlot(const Series& series, size_t width, size_t height);

}  // namespace onnxtrain::cli
