// Plots of characters, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "optim/record/run_folder.h"

namespace onnxtrain::cli {

struct PlotLine {
  std::string name;
  Series points;
  bool markers = false;  // evaluations: few points
  bool dots = false;     // points without a line between them
  bool smooth = false;   // draws the points faintly, and a moving average
};

struct PlotSpec {
  std::string title;
  std::vector<PlotLine> lines;
  bool log_x = false, log_y = false;  // log_y is ignored where a value is not positive
  bool from_zero = false;             // the axis begins at 0
};

// Returns an <svg>, or "" where no line has two points. Long lines are thinned to what the width can show, without
// losing extremes.
std::string LinePlot(const PlotSpec& spec);

// Round numbers that divide [least, most] into about `count` parts.
std::vector<double> Ticks(double least, double most, int count);

// Four significant digits, and all before the point: "0.1234", "35,287".
std::string PlotNumber(double x);

// Returns `height` lines of about `width` columns: the values at the left, the curve in dots of Braille (two by four to
// a character). Logarithmic where all values are positive and span more than two decades. Empty of an empty series.
std::vector<std::string> TerminalPlot(const Series& series, size_t width, size_t height);

}  // namespace onnxtrain::cli
