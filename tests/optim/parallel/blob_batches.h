// Batches of a small data set whose last one is short, for ranks that share them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "optim/step/global_batch.h"
#include "optim/step/loss.h"
#include "tests/tools/blobs.h"

namespace onnxtrain {

inline constexpr int64_t kBatch = 16, kSamples = 50;  // the last batch has 2: fewer than there are ranks

inline HostTensor Rows(const HostTensor& from, DType dtype, int64_t begin, int64_t count) {
  Shape shape = from.shape();
  const int64_t row = from.size() / shape[0];
  shape[0] = count;
  HostTensor rows({dtype, shape});
  for (int64_t i = 0; i < rows.size(); ++i) rows.Set(i, from.At(begin * row + i));
  return rows;
}

// Every third label counts for nothing: the shares of a batch have different numbers of targets.
inline GlobalBatch MakeBatch(int64_t begin, DType dtype) {
  const NamedArrays data = Blobs(kSamples);
  const int64_t count = std::min(kBatch, kSamples - begin);
  HostTensor labels = Rows(data[1].second, DType::kInt64, begin, count);
  for (int64_t i = 0; i < count; i += 3) labels.SetInt(i, -100);
  return {{"x", Rows(data[0].second, dtype, begin, count)}, {kLabelFeed, labels}};
}

}  // namespace onnxtrain
