#include "optim/parallel/gradient_share.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "frontend/base/log.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {

absl::Status RoundedSum::Sum(std::string_view what, std::span<float> values) {
  const size_t size = ranks_.size(), part = (values.size() + size - 1) / size;
  RETURN_IF_ERROR(ExchangeParts(what, values, part));
  sum_.resize(part);
  SumParts(sum_);
  summed_.resize(part);
  FloatToBFloat16(sum_, summed_);
  RETURN_IF_ERROR(ranks_.AllGather(what, std::as_bytes(std::span(summed_)), std::as_writable_bytes(std::span(own_))));
  BFloat16ToFloat(std::span(own_).first(values.size()), values);
  return absl::OkStatus();
}

absl::Status RoundedSum::SumPart(std::string_view what, std::span<const float> values, std::span<float> sum) {
  RETURN_IF_ERROR(ExchangeParts(what, values, sum.size()));
  SumParts(sum);
  return absl::OkStatus();
}

absl::Status RoundedSum::ExchangeParts(std::string_view what, std::span<const float> values, size_t part) {
  own_.resize(part * ranks_.size());  // padded: the elements beyond the values are ignored
  parts_.resize(own_.size());
  FloatToBFloat16(values, std::span(own_).first(values.size()));
  return ranks_.AllToAll(what, std::as_bytes(std::span(own_)), std::as_writable_bytes(std::span(parts_)));
}

// Sums the parts that the ranks have sent.
void RoundedSum::SumParts(std::span<float> sum) {
  std::ranges::fill(sum, 0.0F);
  term_.resize(sum.size());
  for (size_t at = 0; at < parts_.size(); at += sum.size()) {
    BFloat16ToFloat(std::span(parts_).subspan(at, sum.size()), term_);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term_[i];
  }
}

namespace {

constexpr char kWhat[] = "reduce-scatter of gradients";

template <typename T>
double SquareSum(std::span<const std::byte> bytes) {
  const std::span values(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

// Adds the seconds of its life.
class Waiting {
 public:
  explicit Waiting(double* seconds) : seconds_(*seconds) {}
  ~Waiting() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

GradientShare::GradientShare(Collectives* ranks, const GradientPieces* pieces, const TrainingState& state,
                             bool send_bf16)
    : ranks_(*ranks), pieces_(*pieces), send_bf16_(send_bf16), rounded_(ranks) {
  const size_t largest = pieces_.LargestBytes(ranks_.size());
  for (std::vector<std::byte>& staged : staged_) staged.resize(largest);
  parts_.resize(largest);
  for (const Region& region : state.divided_gradients())
    sums_.emplace_back(region.type.bytes() > 0 ? HostMemory(region) : nullptr, region.type.bytes());
  CHECK(sums_.size() == pieces_.pieces.size()) << "gradients are divided otherwise";
  reduce_ = std::make_unique<OrderedReduce>([this](std::span<std::byte>) { return ScatterNext(); }, StagedSlices());
}

int64_t GradientShare::StagingBytes(const GradientPieces& pieces, int ranks) {
  return static_cast<int64_t>(3 * pieces.LargestBytes(ranks));
}

std::vector<std::span<std::byte>> GradientShare::StagedSlices() {
  std::vector<std::span<std::byte>> slices;
  for (size_t p = 0; p < pieces_.pieces.size(); ++p)
    slices.emplace_back(staged_[p % 2].data(), pieces_.SliceBytes(p, ranks_.size()) * ranks_.size());
  return slices;
}

void GradientShare::Begin() {
  first_round_ = true;
  sent_ = 0;
  seconds_ = waited_ = 0;
}

void GradientShare::BeginRound(std::span<const Region* const> gradients) {
  gradients_ = gradients;
  next_staged_ = next_scattered_ = 0;
  reduce_->Begin();
}

void GradientShare::OnComplete(size_t bucket) {
  while (next_staged_ < pieces_.pieces.size() && pieces_.pieces[next_staged_].bucket <= bucket)
    Stage(next_staged_, false);
}

// Pieces need not wait for each other, because all send the same zeros.
void GradientShare::SendZeros() {
  for (std::vector<std::byte>& staged : staged_) std::ranges::fill(staged, std::byte{0});
  for (; next_staged_ < pieces_.pieces.size(); ++next_staged_) reduce_->Ready(next_staged_);
}

absl::Status GradientShare::EndRound(bool ran, const absl::Status& lost) {
  while (next_staged_ < pieces_.pieces.size()) Stage(next_staged_, !ran);
  const Waiting waiting(&waited_);
  const absl::Status summed = reduce_->Finish(lost);
  seconds_ += reduce_->seconds();
  first_round_ = false;
  return summed;
}

// Padding is zero, whatever the program keeps there.
void GradientShare::Stage(size_t piece, bool zeros) {
  {
    const Waiting waiting(&waited_);
    if (piece >= 2) reduce_->Await(piece - 1);
  }
  const std::span staged =
      std::span(staged_[piece % 2]).first(pieces_.SliceBytes(piece, ranks_.size()) * ranks_.size());
  std::ranges::fill(staged, std::byte{0});
  for (const GradientPart& part : pieces_.pieces[piece].parts) {
    if (!zeros) std::memcpy(&staged[part.to], HostMemory(*gradients_[part.output]) + part.from, part.bytes);
  }
  next_staged_ = piece + 1;
  reduce_->Ready(piece);
}

// On the thread of `reduce_`.
absl::Status GradientShare::ScatterNext() {
  const size_t piece = next_scattered_++, slice = pieces_.SliceBytes(piece, ranks_.size()),
               bytes = slice * ranks_.size();
  const std::span own = std::span(staged_[piece % 2]).first(bytes), parts = std::span(parts_).first(bytes);
  sent_ += static_cast<int64_t>(slice / (send_bf16_ ? 2 : 1)) * (ranks_.size() - 1);
  if (send_bf16_) {
    const std::span values(reinterpret_cast<float*>(own.data()), bytes / sizeof(float));
    const std::span sum(reinterpret_cast<float*>(parts.data()), slice / sizeof(float));
    RETURN_IF_ERROR(rounded_.SumPart(kWhat, values, sum));
    AddParts<float>(parts.first(slice), slice, sums_[piece]);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ranks_.AllToAll(kWhat, own, parts));
  pieces_.dtype == DType::kFloat64 ? AddParts<double>(parts, slice, sums_[piece])
                                   : AddParts<float>(parts, slice, sums_[piece]);
  return absl::OkStatus();
}

// Adds the contiguous slices to the sums of earlier rounds.
template <typename T>
void GradientShare::AddParts(std::span<const std::byte> parts, size_t slice, std::span<std::byte> sums) const {
  T* const to = reinterpret_cast<T*>(sums.data());
  const size_t elements = sums.size() / sizeof(T);
  if (first_round_) std::fill_n(to, elements, T{0});
  for (size_t at = 0; at < parts.size(); at += slice) {
    const T* const from = reinterpret_cast<const T*>(parts.data() + at);
    for (size_t i = 0; i < elements; ++i) to[i] += from[i];
  }
}

absl::StatusOr<double> GradientShare::SumSquares() {
  double sum = 0;
  for (const std::span<std::byte> bytes : sums_)
    sum += pieces_.dtype == DType::kFloat64 ? SquareSum<double>(bytes) : SquareSum<float>(bytes);
  RETURN_IF_ERROR(AllReduce(ranks_, "sum of squares", {&sum, 1}));
  return sum;
}

}  // namespace onnxtrain
