#include "optim/parallel/data_parallel.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/parallel/gradient_share.h"
#include "optim/record/checkpoint/file_writer.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kGradient[] = "all-reduce of gradients";

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

absl::Status DataParallel::SumGradient(Backend* backend, DType dtype, Buffer* gradient,
                                       const std::vector<std::vector<GradientSlice>>& groups) {
  CHECK(!options_.send_bf16 || dtype == DType::kFloat32) << "only float32 is rounded to bfloat16";
  backend_ = backend;
  gradient_ = gradient;
  dtype_ = dtype;
  buckets_ = CutBuckets(groups, options_.bucket_bytes);
  if (backend->device() != "cpu") {
    if (!options_.send_bf16) {
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

// Counts the bytes that a rank sends in a sum by a ring, or by a reduce-scatter and an all-gather.
void DataParallel::CountSum(size_t bytes) {
  const int64_t wire = static_cast<int64_t>(bytes) / (options_.send_bf16 ? 2 : 1);
  sent_ += 2 * wire * (size() - 1) / size();
}

// Runs on the thread of `reduce_`, if there is one.
absl::Status DataParallel::SumBucket(std::span<std::byte> bytes) {
  CountSum(bytes.size());
  if (!options_.send_bf16) return ranks_.AllReduce(kGradient, dtype_, bytes, Reduction::kSum);
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
  if (finish_saves_) finish_saves_();  // other ranks wait for this one in their saves
  ranks_.Close(ended);
}

absl::Status DataParallel::ExchangeFailure(const absl::Status& own) {
  if (begins_together_) return AgreeToBegin(own);
  std::vector<double> none(sums_);
  return Exchange(own, none);
}

namespace {

constexpr char kWhat[] = "exchange of an evaluation";

void Append(const std::vector<double>& values, std::vector<double>* packed) {
  packed->push_back(static_cast<double>(values.size()));
  packed->insert(packed->end(), values.begin(), values.end());
}

std::vector<double> Take(std::span<const double>* packed) {
  const auto size = static_cast<size_t>(packed->front());
  const std::span values = packed->subspan(1, size);
  *packed = packed->subspan(1 + size);
  return {values.begin(), values.end()};
}

std::string Pack(const Evaluation& e, int64_t samples) {
  std::vector<double> packed = {static_cast<double>(samples), e.correct, e.targets};
  Append(e.loss_sums, &packed);
  Append(e.weights, &packed);
  packed.push_back(static_cast<double>(e.metrics.stats().size()));
  for (const MetricStats& metric : e.metrics.stats()) {
    packed.push_back(static_cast<double>(metric.size()));
    for (const std::vector<double>& stat : metric) Append(stat, &packed);
  }
  return {reinterpret_cast<const char*>(packed.data()), packed.size() * sizeof(double)};
}

Evaluation Unpack(const std::string& text, int64_t* samples) {
  std::vector<double> numbers(text.size() / sizeof(double));
  std::memcpy(numbers.data(), text.data(), text.size());
  *samples = static_cast<int64_t>(numbers[0]);
  Evaluation e{.correct = numbers[1], .targets = numbers[2]};
  std::span<const double> rest = std::span<const double>(numbers).subspan(3);
  e.loss_sums = Take(&rest);
  e.weights = Take(&rest);
  std::vector<MetricStats> metrics(static_cast<size_t>(rest[0]));
  rest = rest.subspan(1);
  for (MetricStats& metric : metrics) {
    metric.resize(static_cast<size_t>(rest[0]));
    rest = rest.subspan(1);
    for (std::vector<double>& stat : metric) stat = Take(&rest);
  }
  e.metrics = MetricSums(std::move(metrics));
  return e;
}

}  // namespace

absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              const Evaluation& own, int64_t own_samples, Evaluation* total, int64_t* samples) {
  RETURN_IF_ERROR(ranks.Agree(kWhat, evaluated));
  ASSIGN_OR_RETURN(const auto texts, AllGatherText(ranks.ranks(), kWhat, Pack(own, own_samples)));
  for (const std::string& text : texts) {
    int64_t more;
    AddEvaluation(metrics, Unpack(text, &more), total);
    *samples += more;
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<uint64_t> ComputeChecksum(Session& session) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session.State());
  uint64_t crc = 0;
  for (const StateTensor& tensor : tensors) {
    if (!tensor.of_model || tensor.region.view.buffer == nullptr) continue;
    ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(tensor.region));
    crc = ExtendCrc64(crc, value.bytes());
  }
  return crc;
}

}  // namespace

absl::Status DataParallel::CompareWeights(Session& session) {
  constexpr char kWhat[] = "comparison of weights";
  const auto own = ComputeChecksum(session);
  RETURN_IF_ERROR(Agree(kWhat, own.status()));
  std::vector<uint64_t> all(size());
  RETURN_IF_ERROR(ranks_.AllGather(kWhat, std::as_bytes(std::span(&*own, 1)), std::as_writable_bytes(std::span(all))));
  std::string differ;
  for (int r = 1; r < size(); ++r) {
    if (all[r] != all[0]) StrAppend(&differ, differ.empty() ? "" : ", ", r);
  }
  if (differ.empty()) return absl::OkStatus();
  const absl::Status status = absl::DataLossError(
      StrCat("after update ", session.steps(), " the weights differ from those of rank 0 on rank ", differ));
  const absl::Status agreed = Agree(kWhat, status);  // which every rank knows already, but not that all do
  return absl::IsUnavailable(agreed) ? agreed : status;
}

namespace {

// Adds one batch of every rank at a time, so that sums have the same order as on a single rank.
absl::Status EvaluateInOrder(Session& session, DataParallel& ranks, absl::Status opened, EvaluatedBatches& batches,
                             Evaluation* total, int64_t* samples) {
  for (int64_t at = 0; at < batches.batches(); at += ranks.size()) {
    Evaluation own;
    int64_t own_samples = 0;
    if (opened.ok()) opened = batches.AddNext(&own, &own_samples).status();
    RETURN_IF_ERROR(GatherEvaluation(ranks, opened, session.metrics(), own, own_samples, total, samples));
  }
  return absl::OkStatus();
}

// All stages evaluate every batch together; the last stage has the results.
absl::Status EvaluateInStages(Session& session, DataParallel& ranks, const absl::Status& opened,
                              EvaluatedBatches& batches, Evaluation* total, int64_t* samples) {
  Evaluation own;
  int64_t own_samples = 0;
  for (bool more = true; more;) {
    absl::StatusOr<int64_t> count = 0;
    if (opened.ok()) count = batches.TakeNext();
    RETURN_IF_ERROR(ranks.Agree("evaluation", opened.ok() ? count.status() : opened));
    more = *count > 0;
    if (more) RETURN_IF_ERROR(batches.AddTaken(*count, &own, &own_samples));
  }
  if (ranks.rank() + 1 < ranks.size()) own_samples = 0;
  return GatherEvaluation(ranks, absl::OkStatus(), session.metrics(), own, own_samples, total, samples);
}

}  // namespace

absl::Status DataParallel::Evaluate(Session& session, EvaluatedBatches& batches, const LoaderOptions& load,
                                    Evaluation* total, int64_t* samples) {
  if (session.holds_partial_weights())
    return EvaluateInStages(session, *this, batches.Open(load), batches, total, samples);
  LoaderOptions own_batches = load;
  own_batches.first_batch = rank(), own_batches.batch_stride = size();
  absl::Status evaluated = batches.Open(own_batches);
  if (options_.in_order) return EvaluateInOrder(session, *this, evaluated, batches, total, samples);
  Evaluation own;
  int64_t own_samples = 0;
  if (evaluated.ok()) evaluated = batches.AddAll(&own, &own_samples);
  return GatherEvaluation(*this, evaluated, session.metrics(), own, own_samples, total, samples);
}

}  // namespace onnxtrain
