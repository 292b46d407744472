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

// Rows of tensors whose first axis is the batch.

// Copies the outputs of samples [begin, begin + count) into *all, which the call with begin = 0 allocates for `total`
// samples. Keeps the last of outputs without a batch axis. Fails where the samples have outputs of several sizes.
absl::Status PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total);

// The first `rows` rows.
HostTensor FirstRows(const HostTensor& tensor, int64_t rows);

// The tensor's rows, then its last one until there are `rows`.
HostTensor RepeatLastRow(const HostTensor& tensor, int64_t rows);

// What random operators draw by.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0, micro = 0;
  uint32_t piece = 0;  // of the micro-batch: PhiloxKey::piece
};

// The feeds of one program. Names are resolved once, so filling allocates nothing and looks nothing up.
class BatchFeeds {
 public:
  // `program` must outlive it. `random_key`: the feed that gets the RandomKey; "" for none.
  BatchFeeds(const CompiledProgram& program, const std::string& random_key);

  // Feeds samples [begin, begin + count) of the batch. A host device reads them where they are if the first one lies at
  // a multiple of 64 bytes: the batch must stay unchanged until the run has finished. Otherwise they are copied. Fails,
  // naming the feed, on a tensor that is missing or of another type.
  absl::Status Fill(const GlobalBatch& global_batch, int64_t begin, int64_t count, const RandomKey& key);
  // Feeds the seed of each term's gradient, for a global batch of these denominators.
  absl::Status FillInverseDenominators(const LossChoice& loss, const std::vector<double>& weights);

 private:
  struct Feed {
    size_t input;  // of the program's graph
    const Region* region;
  };
  absl::Status FillTensor(const Feed& feed, const std::string& name, const HostTensor& tensor, int64_t begin,
                          int64_t count);

  Program& program_;
  FeedPositions positions_;  // of tensors_
  std::vector<Feed> tensors_;
  const Region* key_ = nullptr;
  HostTensor key_on_host_;
  std::vector<std::pair<size_t, DeviceScalar>> inverse_denominators_;  // by term
};

}  // namespace onnxtrain
