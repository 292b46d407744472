// The text form of a graph. Parse(Print(g)) reproduces g bit for bit.
//
//   graph(feed %x: f32[2,4], param %fc.weight: f32[3,4], state %2 "the mean": f32[3]) {
//     %3 "hidden": f32[2,3] = MatMul(%x, %fc.weight) {trans_a=0, trans_b=1} @"fc/gemm"
//     %4: f32[] = Constant() {value=f32[](0.5)}
//     %y: f32[2,3] = Add(%3, %4)
//     return %y "logits", %7 "new mean" into %2
//   }
//
// A layout other than row-major follows the type: f32[2,3,8,8]:nhwc, bf16[8,3,3,3]:packed(1024), the number of bytes.
//
// Each value has a unique token: its name if that is a unique identifier, otherwise its id, followed by the quoted name
// in the definition. `_` is an absent input. An input that was added after the first node is printed among the nodes,
// which preserves ids. `@` precedes the source of a node. `#` starts a comment that extends to the end of the line.
//
// Numbers are the shortest decimals that parse to the same bits; a NaN with payload shows its bits: nan(7fc00001).
// The notation determines the kind of an attribute: 3, 3.0, "three", [1, 2], [1.0, 2.0], floats[], f32[2](1, 2).
// A tensor is a list of elements, (splat 0.5) if all elements are equal, or, if it is long, (hex "0000803f…") of its
// bytes in memory order.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct PrintOptions {
  size_t list_elements = 32;  // print tensors of up to this many elements as lists
  // Omits hex data of more bytes. The text then cannot be parsed.
  size_t elide_bytes = std::numeric_limits<size_t>::max();
};

std::string Print(const Graph& graph, const PrintOptions& options = {});
// Returns "{axis=1, epsilon=1e-05}", or "" without attributes.
std::string Print(const Attrs& attrs, const PrintOptions& options = {});

struct ParseOptions {
  // Limits the total bytes of `splat` tensors; the length of the text limits all other memory.
  size_t max_splat_bytes = size_t{1} << 30;
};

// Returns a graph that passes VerifyStructure, or an error that begins with "line N: ". Does not check operators,
// attributes and types against the operator rows; Verify (ops/row.h) does.
absl::StatusOr<Graph> Parse(std::string_view text, const ParseOptions& options = {});

}  // namespace onnxtrain
