#include "optim/step/batch_feeds.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "frontend/base/status.h"
#include "optim/parallel/pipeline/stage.h"

namespace onnxtrain {

absl::Status PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total) {
  // An output without a batch axis may have as many rows as some micro-batches have samples.
  const bool as_many = part.type().rank() > 0 && part.shape()[0] == count;
  const bool batched = as_many && (begin == 0 || (all->type().rank() > 0 && all->shape()[0] == total));
  if (!batched) {
    *all = part;
    return absl::OkStatus();
  }
  if (begin > 0 && !std::ranges::equal(std::span(all->shape()).subspan(1), std::span(part.shape()).subspan(1)))
    return Invalid("the samples of one batch have outputs of several sizes (`batch_size` 1, or one `image_size`)");
  if (begin == 0) {
    Shape shape = part.shape();
    shape[0] = total;
    *all = HostTensor({part.dtype(), shape});
  }
  const size_t row = part.bytes().size() / count;
  if (part.size() > 0) std::memcpy(all->mutable_bytes().data() + begin * row, part.bytes().data(), count * row);
  return absl::OkStatus();
}

HostTensor FirstRows(const HostTensor& tensor, int64_t rows) {
  Shape shape = tensor.shape();
  shape[0] = rows;
  HostTensor first({tensor.dtype(), shape});
  if (first.size() > 0) std::memcpy(first.mutable_bytes().data(), tensor.bytes().data(), first.bytes().size());
  return first;
}

HostTensor RepeatLastRow(const HostTensor& tensor, int64_t rows) {
  Shape shape = tensor.shape();
  const int64_t given = std::exchange(shape[0], rows);
  HostTensor padded({tensor.dtype(), shape});
  const size_t row = tensor.bytes().size() / given;
  for (int64_t i = 0; row > 0 && i < rows; ++i)
    std::memcpy(padded.mutable_bytes().data() + i * row, tensor.bytes().data() + std::min(i, given - 1) * row, row);
  return padded;
}

namespace {

// The term that a feed of kInverseDenominatorFeed belongs to.
size_t TermIndex(const std::string& feed) {
  size_t term = 0;
  while (TermName(kInverseDenominatorFeed, term) != feed) ++term;
  return term;
}

}  // namespace

BatchFeeds::BatchFeeds(const CompiledProgram& program, const std::string& random_key, bool pairs)
    : program_(*program.program) {
  const Graph& graph = program_.graph();
  std::vector<std::string> names;
  for (const auto& [name, region] : program.feeds) {
    if (name == random_key) {
      key_ = &region;
      key_on_host_ = HostTensor(region.type);
    } else if (name.starts_with(kTransferPrefix)) {
      continue;  // another rank sends it
    } else if (name.starts_with(kInverseDenominatorFeed)) {
      inverse_denominators_.emplace_back(TermIndex(name), DeviceScalar(region));
    } else {
      names.push_back(name);
      const bool paired = pairs && !name.starts_with("$") && region.type.rank() > 0;
      tensors_.push_back({static_cast<size_t>(graph.FindInput(name) - graph.inputs().data()), &region, paired});
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].pairs) names.push_back(kRejectedFeed + names[i]);
  }
  positions_ = FeedPositions(std::move(names));
}

absl::Status BatchFeeds::FillTensor(const Feed& feed, const std::string& name, const HostTensor& tensor, int64_t begin,
                                    int64_t count) {
  const Region& region = *feed.region;
  const bool batched = tensor.type().rank() > 0 && region.type.rank() > 0 && region.type.shape[0] == count;
  const size_t row = batched && tensor.shape()[0] > 0 ? tensor.bytes().size() / tensor.shape()[0] : 0;
  const auto bytes = batched ? tensor.bytes().subspan(begin * row, count * row) : tensor.bytes();
  if (tensor.dtype() != region.type.dtype || bytes.size() != region.type.bytes()) {
    return Invalid("'", name, "' is fed ", ToString(tensor.type()), " but the model wants ", ToString(region.type));
  }
  if (bytes.empty() || program_.ReadInPlace(feed.input, bytes.data())) return absl::OkStatus();
  return region.view.buffer->Write(region.view.offset, bytes);
}

absl::Status BatchFeeds::FillPair(const Feed& feed, const std::string& name, const HostTensor& chosen,
                                  const HostTensor& rejected, int64_t begin, int64_t count) {
  const Region& region = *feed.region;
  size_t offset = region.view.offset;
  for (const HostTensor* half : {&chosen, &rejected}) {
    const size_t row = half->bytes().size() / std::max<int64_t>(half->shape()[0], 1);
    if (half->dtype() != region.type.dtype || 2 * count * row != region.type.bytes())
      return Invalid("'", name, "' is fed pairs of ", ToString(half->type()), " but the model wants ",
                     ToString(region.type));
    RETURN_IF_ERROR(region.view.buffer->Write(offset, half->bytes().subspan(begin * row, count * row)));
    offset += count * row;
  }
  return absl::OkStatus();
}

absl::Status BatchFeeds::Fill(const GlobalBatch& global_batch, int64_t begin, int64_t count, const RandomKey& key) {
  RETURN_IF_ERROR(positions_.Resolve(global_batch));
  for (size_t i = 0, pair = tensors_.size(); i < tensors_.size(); ++i) {
    const HostTensor& tensor = positions_.Get(global_batch, i);
    RETURN_IF_ERROR(tensors_[i].pairs ? FillPair(tensors_[i], positions_.name(i), tensor,
                                                 positions_.Get(global_batch, pair++), begin, count)
                                      : FillTensor(tensors_[i], positions_.name(i), tensor, begin, count));
  }
  if (key_ == nullptr) return absl::OkStatus();
  const int64_t words[] = {static_cast<int64_t>(key.seed & 0xffffffff), key.step, key.micro, key.piece};
  for (int64_t i = 0; i < key_on_host_.size(); ++i) key_on_host_.SetInt(i, words[i]);
  return WriteRegion(*key_, key_on_host_);
}

absl::Status BatchFeeds::FillInverseDenominators(const LossChoice& loss, const std::vector<double>& weights) {
  for (auto& [term, device_scalar] : inverse_denominators_)
    RETURN_IF_ERROR(device_scalar.Write(InverseDenominator(loss.terms[term], weights[term])));
  return absl::OkStatus();
}

}  // namespace onnxtrain
