// Outlines of stacked areas, as SVG's polygons take them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace onnxtrain::cli {

struct StackedAreas {
  size_t columns = 0, layers = 0;
  std::function<double(size_t column, size_t layer)> height;  // layer 0 is the lowest
  std::function<double(size_t border)> x;                     // column c is between the borders c and c + 1
  std::function<double(double height)> y;
};

// Returns the `points` of a polygon for each layer.
std::vector<std::string> StackOutlines(const StackedAreas& areas);

}  // namespace onnxtrain::cli
