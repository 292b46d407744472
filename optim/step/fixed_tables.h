// Recognizes constant tables that exporters write as if they were weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Recognizes filters that programs compute once and exporters write as if they were weights: no initializer draws such
// numbers, and training would not keep them.

// Is it the basis of a transform into frequencies: windowed cosines and sines of equally spaced frequencies, by rows or
// by columns, cosines and sines in two halves, in turn, or alone (Fourier, DCT)?
bool IsFrequencyBasis(const HostTensor& tensor);

// Is it a bank of overlapping band filters, by rows or by columns: no negative numbers, half of them zeros, each band
// in one piece and none before the last one (mel scale)?
bool IsBandFilterBank(const HostTensor& tensor);

// Of a convolution. Are they small multiples of one number, not zeros and ones alone (Sobel, Laplace, Haar, binomial)?
bool HasIntegerKernels(const HostTensor& tensor);

// Of a convolution. Does each of several channels have the same kernel for itself, as in filters that blur?
bool RepeatsOneKernel(const HostTensor& tensor);

enum class FixedTable : uint8_t { kNone, kSinusoids, kMask, kGrid, kPowers, kSlopes, kFilters };

// The first of the kinds below that the weight is, or filters. Releases the pages of a mapped file
// that it reads.
FixedTable FindFixedTable(const ImportedWeight& weight);

// Remembers what the weights of a model are, of all imports: looking along the columns of a large matrix reads all of
// it.
class FixedTables {
 public:
  FixedTable Find(const ImportedWeight& weight);

 private:
  struct Known {
    const std::byte* bytes;
    Type type;
    std::string consumer;
    FixedTable table;
  };
  std::map<std::string, Known> known_;  // by name
};

// Is it a table of sines and cosines: of positions (Vaswani et al., 2017), or of the angles of rotary embeddings, which
// may hold the sines alone, or the basis of seasons? Tests the rows, which have squared norm width/2, or the columns,
// which are waves.
bool IsSinusoidTable(const HostTensor& tensor);

// Is it the coordinates of a grid, of rank ≥ 2: two or three along an axis, of which each takes its numbers in turn
// along another axis? The coordinates may be spaced in any way.
bool IsCoordinateTable(const HostTensor& tensor);

// Is it a matrix of the powers 0, 1, … of equally spaced numbers, the basis of a trend, by rows or by columns?
bool IsPowerTable(const HostTensor& tensor);

// Is every row equally spaced numbers, and not all of them with one step: distances times the slope of each head (Press
// et al., 2022, "ALiBi")?
bool IsSlopeTable(const HostTensor& tensor);

// Is it an additive attention mask: zeros and one large negative number, of rank ≥ 2?
bool IsAttentionMask(const HostTensor& tensor);

}  // namespace onnxtrain
