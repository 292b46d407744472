// Recognizes constant tables and filters that exporters store as weights but that must not be trained. No initializer
// draws such numbers. Fixed attention masks become constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns true for the basis of a frequency transform (Fourier, DCT): windowed cosines and sines of equally spaced
// frequencies, in rows or columns; cosines and sines in two halves, interleaved, or only one of them.
bool IsFrequencyBasis(const HostTensor& tensor);

// Returns true for a bank of overlapping band filters in rows or columns (mel scale): non-negative, half of the numbers
// zero, each band contiguous and none before the previous one.
bool IsBandFilterBank(const HostTensor& tensor);

// Returns true if the kernels of a convolution are small multiples of one number, not only zeros and ones (Sobel,
// Laplace, Haar, binomial).
bool HasIntegerKernels(const HostTensor& tensor);

// Returns true if a depthwise convolution applies one kernel to each of several channels, as blur filters do.
bool RepeatsOneKernel(const HostTensor& tensor);

enum class FixedTable : uint8_t { kNone, kSinusoids, kMask, kGrid, kPowers, kSlopes, kFilters };

// Returns the first kind of fixed table that the weight matches. Releases the pages of a mapped file that it reads.
FixedTable FindFixedTable(const ImportedWeight& weight);

// Caches FindFixedTable for the weights of all imports of a model: testing the columns of a large matrix reads all of
// its bytes.
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

// Returns true for a table of sines and cosines: position encodings (Vaswani et al., 2017), angles of rotary
// embeddings, possibly only the sines, or a seasonal basis. Tests the rows, which have squared norm width/2, or the
// columns, which are waves.
bool IsSinusoidTable(const HostTensor& tensor);

// Returns true for grid coordinates of rank ≥ 2: two or three coordinates along one axis, each of which varies along
// one other axis only, with any spacing.
bool IsCoordinateTable(const HostTensor& tensor);

// Returns true for a matrix of the powers 0, 1, … of equally spaced numbers, in rows or columns (a trend basis).
bool IsPowerTable(const HostTensor& tensor);

// Returns true if every row has equally spaced numbers, with different steps: distances times the slope of each head
// (Press et al., 2022, "ALiBi").
bool IsSlopeTable(const HostTensor& tensor);

// Returns true for an additive attention mask of rank ≥ 2: zeros and one large negative number.
bool IsAttentionMask(const HostTensor& tensor);

// Folds attention masks that depend on frozen weights only into constants, if IsAttentionMask accepts them. Backends
// then know the hidden keys when they compile, and kernels skip them instead of reading a causal mask. The weights stay
// inputs of the graph.
absl::Status EmbedFixedMasks(ImportedModel* model);

}  // namespace onnxtrain
