#include "optim/parallel/data_parallel.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/parallel/gradient_share.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kGradient[] = "all-reduce of gradients";

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

absl::Status DataParallel::SumGradient(Backend* backend, DType dtype, Buffer* gradient,
                                       const std::vector<std::vector<GradientSlice>>& groups) {
  CHECK(!options_.rounds || dtype == DType::kFloat32) << "only float32 is rounded to bfloat16";
  backend_ = backend;
  gradient_ = gradient;
  dtype_ = dtype;
  buckets_ = CutBuckets(groups, options_.bucket_bytes);
  if (backend->device() != "cpu") {
    if (!options_.rounds) {
      ASSIGN_OR_RETURN(device_ranks_, backend->MeetOnDevice(ranks_));
    }
    return absl::OkStatus();
  }
  std::vector<std::span<std::byte>> slices;
  for (const GradientBucket& bucket : buckets_)
    slices.emplace_back(static_cast<std::byte*>(gradient->data()) + bucket.offset, bucket.bytes);
  const auto sum = [this](std::span<std::byte> bucket) { return SumBucket(bucket); };
  reduce_ = std::make_unique<OrderedReduce>(sum, std::move(slices));
  return absl::OkStatus();
}

void DataParallel::Watch(Program* program) {
  if (reduce_ != nullptr) program->NotifyWhenComplete(FindOutputs(buckets_, program->graph()), this);
}

void DataParallel::BeginUpdate() {
  began_ = true;
  runs_last_ = false;
  if (reduce_ != nullptr) reduce_->Begin();
}

void DataParallel::OnComplete(size_t bucket) {
  if (runs_last_) reduce_->Ready(bucket);
}

absl::Status DataParallel::Exchange(const absl::Status& own, std::span<double> sums) {
  CHECK(sums.size() == sums_) << "Exchange of " << sums.size() << " sums, not " << sums_;
  if (!began_) BeginUpdate();
  began_ = runs_last_ = false;
  const auto start = Clock::now();
  RETURN_IF_ERROR(SumBuckets());
  const double summed = Since(start);
  RETURN_IF_ERROR(ExchangeSums(own, sums));
  const double exposed = Since(start);
  Count(reduce_ != nullptr ? reduce_->seconds() + exposed - summed : exposed, exposed);
  return absl::OkStatus();
}

absl::Status DataParallel::GiveUp(const absl::Status& lost) {
  if (reduce_ != nullptr) reduce_->Finish(lost).IgnoreError();
  return lost;
}

void DataParallel::Count(double seconds, double exposed) {
  const int64_t sent = std::exchange(sent_, 0);
  const double waited = std::exchange(waited_, 0);
  if (updates_++ == 0) return;
  ++time_.updates;
  time_.seconds += seconds + waited;
  time_.exposed += exposed + waited;
  time_.sent_bytes += sent;
  for (const GradientBucket& bucket : buckets_) time_.bytes += static_cast<int64_t>(bucket.bytes);
}

absl::Status DataParallel::SumBuckets() {
  if (gradient_ == nullptr) return absl::OkStatus();
  if (reduce_ != nullptr) return reduce_->Finish();
  return device_ranks_ != nullptr ? SumOnDevice() : SumThroughHost();
}

absl::Status DataParallel::SumOnDevice() {
  for (const GradientBucket& bucket : buckets_) {
    CountSum(bucket.bytes);
    std::byte* const at = static_cast<std::byte*>(gradient_->data()) + bucket.offset;
    RETURN_IF_ERROR(device_ranks_->AllReduce(kGradient, dtype_, {at, bucket.bytes}, Reduction::kSum));
  }
  return absl::OkStatus();
}

absl::Status DataParallel::SumThroughHost() {
  RETURN_IF_ERROR(backend_->Synchronize());
  for (const GradientBucket& bucket : buckets_) {
    on_host_.resize(bucket.bytes);
    RETURN_IF_ERROR(gradient_->Read(bucket.offset, on_host_));
    RETURN_IF_ERROR(SumBucket(on_host_));
    RETURN_IF_ERROR(gradient_->Write(bucket.offset, on_host_));
  }
  return absl::OkStatus();
}

// As of a ring, or of a reduce-scatter and an all-gather.
void DataParallel::CountSum(size_t bytes) {
  const int64_t wire = static_cast<int64_t>(bytes) / (options_.rounds ? 2 : 1);
  sent_ += 2 * wire * (size() - 1) / size();
}

// On the thread of `reduce_`, where there is one.
absl::Status DataParallel::SumBucket(std::span<std::byte> bytes) {
  CountSum(bytes.size());
  if (!options_.rounds) return ranks_.AllReduce(kGradient, dtype_, bytes, Reduction::kSum);
  return rounded_.Sum(kGradient, {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
}

absl::Status DataParallel::SumTree(GradientTree* tree) {
  const auto start = Clock::now();
  RETURN_IF_ERROR(tree->FinishTogether(ranks_, kGradient));
  sent_ += tree->sent_bytes();
  if (updates_ < 2) return absl::OkStatus();  // see Count
  const double seconds = Since(start);
  time_.seconds += seconds;
  time_.exposed += seconds;
  time_.bytes += tree->pending_bytes();
  return absl::OkStatus();
}

void DataParallel::AddScattered(const GradientShare& share, const GradientPieces& pieces) {
  sent_ += share.sent_bytes();
  if (updates_ == 0) return;  // see Count
  time_.seconds += share.seconds();
  time_.exposed += share.waited();
  for (const GradientBucket& bucket : pieces.buckets) time_.bytes += static_cast<int64_t>(bucket.bytes);
}

absl::Status DataParallel::ExchangeSums(const absl::Status& own, std::span<double> sums) {
  constexpr char kWhat[] = "exchange of losses";
  own_ = {static_cast<double>(own.code()), static_cast<double>(asked_)};
  own_.insert(own_.end(), sums.begin(), sums.end());
  all_.resize(own_.size() * size());
  RETURN_IF_ERROR(ranks_.AllGather(kWhat, std::as_bytes(std::span(own_)), std::as_writable_bytes(std::span(all_))));
  std::ranges::fill(sums, 0);
  failed_together_ = false;
  agreed_ = 0;
  bool failed = false;
  for (size_t at = 0; at < all_.size(); at += own_.size()) {
    failed |= all_[at] != 0;
    agreed_ |= static_cast<unsigned>(all_[at + 1]);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += all_[at + 2 + i];
  }
  return failed ? Agree(kWhat, own) : absl::OkStatus();
}

absl::Status DataParallel::Agree(std::string_view what, const absl::Status& own) {
  const absl::Status agreed = AgreeOnStatus(ranks_, what, own);
  failed_together_ = !agreed.ok() && !absl::IsUnavailable(agreed);
  return agreed;
}

absl::Status DataParallel::ExchangeSlices(std::string_view what, size_t bytes, size_t slice, const ReadSlice& read,
                                          const WriteSlice& write) {
  constexpr size_t kPiece = size_t{1} << 20;
  for (size_t at = 0, piece = 0; at < slice; at += piece) {
    piece = std::min(kPiece, slice - at);
    const auto offset = [&](int rank) { return rank * slice + at; };
    const auto count = [&](int rank) { return std::min(piece, bytes - std::min(bytes, offset(rank))); };
    own_piece_.resize(piece);
    all_pieces_.resize(piece * size());
    if (count(rank()) > 0) RETURN_IF_ERROR(read(offset(rank()), std::span(own_piece_).first(count(rank()))));
    RETURN_IF_ERROR(ranks_.AllGather(what, own_piece_, all_pieces_));
    sent_ += static_cast<int64_t>(piece) * (size() - 1);
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || count(r) == 0) continue;
      RETURN_IF_ERROR(write(offset(r), std::span(all_pieces_).subspan(r * piece, count(r))));
    }
  }
  return absl::OkStatus();
}

absl::Status DataParallel::AgreeToBegin(const absl::Status& own) { return Agree("begin of an update", own); }

void DataParallel::EndLoop(const absl::Status& ended) {
  unshared_error_ = !ended.ok() && !failed_together_;
  if (!unshared_error_) return;
  if (finish_saves_) finish_saves_();  // other ranks wait in them for this one
  ranks_.Close(ended);
}

absl::Status DataParallel::ExchangeFailure(const absl::Status& own) {
  if (begins_together_) return AgreeToBegin(own);
  std::vector<double> none(sums_);
  return Exchange(own, none);
}

}  // namespace onnxtrain
