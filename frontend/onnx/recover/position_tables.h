// Keeps what turns positions into rotations fixed: frequencies, and tables of cosines and sines.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns the stored tensors, by initializer, Constant output or output of an Identity over an initializer, that only
// serve to rotate by positions, whatever their values are:
//   - what both a sine and a cosine of positions are computed from, where no data of a user takes part;
//   - the caches of RotaryEmbedding and GroupQueryAttention;
//   - tables c and s with c² + s² constant that turn data, x·c ± y·s.
// The weights of Fourier features, which multiply data, and of layers with sines as activations are none.
std::vector<std::string> MatchPositionTables(const ParsedGraph& graph);

// Makes those constants that the metadata of the exporter does not know. The graph reads them as stored, and an export
// keeps their bytes.
void BuildPositionTables(ParsedGraph* graph);

}  // namespace onnxtrain
