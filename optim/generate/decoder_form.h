// Finds the inputs and outputs of a decoder, a language model that predicts the next token.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Keys or values of one layer: an input, and the output that continues it. Both are [batch, …, length, …] once their
// batch axis is moved to the front.
struct CacheTensor {
  std::string past, present;
  HostTensor empty;     // a cache without tokens, in the layout of the file
  int batch_axis = 0;   // in the file
  int length_axis = 0;  // with the batch in front
};

struct DecoderForm {
  std::string ids;                       // int [batch, length]
  std::string mask;                      // int [batch, length] of the cache and the new tokens: 1 at tokens; "": none
  std::string padding;                   // the same with 1 at padding; "": none
  std::string pair_mask;                 // float or bool [batch, (heads,) length, length]; "": none
  std::string positions;                 // int [batch, length]; "": none
  std::string order;                     // int [length], the positions of all samples; "": none
  std::vector<CacheTensor> cache;        // empty: the model has none, or none that can be continued
  std::vector<CacheTensor> empty_cache;  // parts of a cache that cannot be continued
  std::vector<std::string> zeros;        // inputs that are 0: types of tokens, switches
  std::string branch;                    // the switch of merged decoders that is true with a cache; "": none
};

// Fails, naming it, on an input that is none of these.
absl::StatusOr<DecoderForm> FindDecoderForm(const OnnxModel& model);

}  // namespace onnxtrain
