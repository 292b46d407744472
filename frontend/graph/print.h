// The text form of a graph. parse.h reads it back, bit for bit.
//
//   graph(feed %x: f32[2,4], param %fc.weight: f32[3,4], state %2 "the mean": f32[3]) {
//     %3 "hidden": f32[2,3] = MatMul(%x, %fc.weight) {trans_a=0, trans_b=1} @"fc/gemm"
//     %4: f32[] = Constant() {value=f32[](0.5)}
//     %y: f32[2,3] = Add(%3, %4)
//     return %y "logits", %7 "new mean" into %2
//   }
//
// A value is named by a token of its own: its name where that is an identifier and no other value has it, else its id,
// with the name in quotes behind where it is defined. `_` is an absent input. An input that was added after the first
// node stands among the nodes, so that ids are kept. `@` gives the node's source. `#` starts a comment that ends with
// the line.
//
// Numbers are shortest decimals that read back to the same bits; a NaN other than the usual one shows its bits:
// nan(7fc00001). Attribute kinds are told by their looks: 3, 3.0, "three", [1, 2], [1.0, 2.0], floats[], f32[2](1, 2).
// Tensors are lists of elements, or (splat 0.5) where all are alike, or (hex "0000803f…") of their bytes in memory
// order where they are long.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct PrintOptions {
  size_t list_elements = 32;  // tensors of at most so many elements are lists
  // Longer hex data is left out. Such text is for people: it cannot be read back.
  size_t elide_bytes = std::numeric_limits<size_t>::max();
};

std::string Print(const Graph& graph, const PrintOptions& options = {});
// "{axis=1, epsilon=1e-05}", or "" where there are none.
std::string Print(const Attrs& attrs, const PrintOptions& options = {});

}  // namespace onnxtrain
