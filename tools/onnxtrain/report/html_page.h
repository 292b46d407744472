// Builds self-contained HTML pages without scripts or external resources, for light and dark mode, and plots curves as
// SVG and as characters for a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "optim/record/run_folder.h"

namespace onnxtrain::cli {

// Replaces & < > " and control characters; invalid UTF-8 becomes U+FFFD.
std::string EscapeHtml(std::string_view text);

// Returns a whole page. `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// Returns a <section> with a heading; "" if `body` is empty.
std::string Section(const std::string& heading, const std::string& body);

// Returns a table, and escapes its texts. With `numbers`, columns from the second on are right-aligned.
std::string HtmlTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                      bool numbers);

struct PlotLine {
  std::string name;
  Series points;
  bool markers = false;  // marks each point; for lines with few points
  bool dots = false;     // draws points without a line
  bool smooth = false;   // draws the points faintly, with a moving average
};

struct PlotSpec {
  std::string title;
  std::vector<PlotLine> lines;
  bool log_x = false, log_y = false;  // log_y is ignored if a value is not positive
  bool from_zero = false;             // the axis begins at 0
};

// Returns an <svg>, or "" if no line has two points. Thins long lines to the resolution of the plot, keeping extremes.
std::string LinePlot(const PlotSpec& spec);

// Returns round numbers that divide [least, most] into about `count` parts.
std::vector<double> Ticks(double least, double most, int count);

// Formats four significant digits and all digits before the point: "0.1234", "35,287".
std::string PlotNumber(double x);

// Returns `height` lines of about `width` columns: axis labels at the left, then the curve in Braille dots (two by four
// per character). Logarithmic if all values are positive and span more than two decades. Empty for an empty series.
std::vector<std::string> TerminalPlot(const Series& series, size_t width, size_t height);

}  // namespace onnxtrain::cli
