// Feeds a program from a global batch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/device_scalars.h"
#include "optim/step/global_batch.h"
#include "optim/step/program/programs.h"

namespace onnxtrain {

// Copies the outputs of samples [begin, begin + count) into *all, which the call with begin = 0 allocates for `total`
// samples. Outputs without a batch axis replace the previous ones. Fails if the outputs of samples differ in size.
absl::Status PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total);

// Returns the first `rows` rows.
HostTensor FirstRows(const HostTensor& tensor, int64_t rows);

// Returns the tensor's rows, padded to `rows` rows with copies of the last one.
HostTensor RepeatLastRow(const HostTensor& tensor, int64_t rows);

// Selects the random numbers that the operators of a program draw.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0, micro = 0;
  uint32_t piece = 0;  // of the micro-batch: PhiloxKey::piece
};

// Fills the feeds of one program. Names are resolved once, so filling neither allocates nor looks up names.
class BatchFeeds {
 public:
  // `program` must outlive this object. `random_key` is the feed that receives the RandomKey; "" for none.
  // `pairs`: the rows of the model's inputs are those of their own feeds, then those of kRejectedFeed.
  BatchFeeds(const CompiledProgram& program, const std::string& random_key, bool pairs = false);

  // Feeds samples [begin, begin + count) of the batch. A host device reads the first of them in place if it is aligned
  // to 64 bytes; the batch must then stay unchanged until the run has finished. Otherwise they are copied. Fails,
  // naming the feed, on a tensor that is missing or has another type.
  absl::Status Fill(const GlobalBatch& global_batch, int64_t begin, int64_t count, const RandomKey& key);
  // Feeds the seed of each term's gradient, for a global batch of these denominators.
  absl::Status FillInverseDenominators(const LossChoice& loss, const std::vector<double>& weights);

 private:
  struct Feed {
    size_t input;  // of the program's graph
    const Region* region;
    bool pairs = false;  // the tensor of kRejectedFeed follows in positions_, at the end
  };
  absl::Status FillTensor(const Feed& feed, const std::string& name, const HostTensor& tensor, int64_t begin,
                          int64_t count);
  // Writes the chosen rows, then the rejected ones.
  absl::Status FillPair(const Feed& feed, const std::string& name, const HostTensor& chosen, const HostTensor& rejected,
                        int64_t begin, int64_t count);

  Program& program_;
  FeedPositions positions_;  // of tensors_
  std::vector<Feed> tensors_;
  const Region* key_ = nullptr;
  HostTensor key_on_host_;
  std::vector<std::pair<size_t, DeviceScalar>> inverse_denominators_;  // by term
};

}  // namespace onnxtrain
