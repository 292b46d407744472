#include "optim/window_feeds.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// The term that a feed of kInvWeightFeed belongs to.
size_t TermOf(const std::string& feed) {
  size_t term = 0;
  while (OfTerm(kInvWeightFeed, term) != feed) ++term;
  return term;
}

absl::Status Write(const Region& feed, std::string_view name, const HostTensor& tensor, int64_t begin, int64_t count) {
  const bool batched = tensor.type().rank() > 0 && feed.type.rank() > 0 && feed.type.shape[0] == count;
  const size_t row = batched && tensor.shape()[0] > 0 ? tensor.bytes().size() / tensor.shape()[0] : 0;
  const auto bytes = batched ? tensor.bytes().subspan(begin * row, count * row) : tensor.bytes();
  if (tensor.dtype() != feed.type.dtype || bytes.size() != feed.type.bytes()) {
    return Invalid("'", name, "' is fed ", ToString(tensor.type()), " but the model wants ", ToString(feed.type));
  }
  return bytes.empty() ? absl::OkStatus() : feed.view.buffer->Write(feed.view.offset, bytes);
}

}  // namespace

WindowFeeds::WindowFeeds(const CompiledProgram& program, const std::string& random_key) {
  for (const auto& [name, region] : program.feeds) {
    if (name == kLabelFeed) {
      label_ = &region;
    } else if (name == random_key) {
      key_ = &region;
      key_on_host_ = HostTensor(region.type);
    } else if (name.starts_with(kInvWeightFeed)) {
      inverse_weights_.emplace_back(TermOf(name), Slot(region));
    } else {
      inputs_.push_back({&name, &region});
    }
  }
}

absl::Status WindowFeeds::Fill(const Window& window, int64_t begin, int64_t count, const RandomKey& key) {
  auto given = window.feeds.begin();  // both are in the order of names
  for (const Feed& feed : inputs_) {
    while (given != window.feeds.end() && given->first < *feed.name) ++given;
    if (given == window.feeds.end() || given->first != *feed.name) return Invalid("model input '", *feed.name, "' is not fed");
    RETURN_IF_ERROR(Write(*feed.region, *feed.name, given->second, begin, count));
  }
  if (label_ != nullptr) RETURN_IF_ERROR(Write(*label_, "label", window.labels, begin, count));
  if (key_ == nullptr) return absl::OkStatus();
  const int64_t words[] = {static_cast<int64_t>(key.seed & 0xffffffff), key.step, key.micro, 0};
  for (int64_t i = 0; i < key_on_host_.size(); ++i) key_on_host_.SetInt(i, words[i]);
  return WriteRegion(*key_, key_on_host_);
}

absl::Status WindowFeeds::FillWeights(const LossChoice& loss, const std::vector<double>& weights) {
  for (auto& [term, slot] : inverse_weights_) RETURN_IF_ERROR(slot.Write(InverseWeight(loss.terms[term], weights[term])));
  return absl::OkStatus();
}

}  // namespace onnxtrain
