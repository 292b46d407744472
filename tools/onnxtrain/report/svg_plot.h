// Line plots as SVG, for a page that defines the colors (html_page.h).
#pragma once

#include <string>
#include <vector>

#include "optim/record/run_record.h"

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

}  // namespace onnxtrain::cli
