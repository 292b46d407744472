#include "frontend/data/bind/bad_samples.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

constexpr size_t kReasons = 3;

// sample → error; only the first few of each status code have a message
using Reasons = std::map<int64_t, absl::Status>;

// Checks samples of one data set; used by several threads.
class SampleChecker {
 public:
  SampleChecker(const Dataset& data, const std::vector<LabelCheck>& labels, const std::vector<SequenceCheck>& sequences)
      : data_(data), labels_(labels), sequences_(sequences) {}

  absl::Status AddFeeds(const std::vector<FeedSpec>& specs) {
    for (const FeedSpec& spec : specs) {
      ASSIGN_OR_RETURN(FeedWriter writer, FeedWriter::Create(data_, spec));
      writers_.push_back(std::move(writer));
    }
    return absl::OkStatus();
  }

  // Finds the bad samples of [begin, end).
  Reasons Find(int64_t begin, int64_t end) const {
    Reasons bad;
    std::map<absl::StatusCode, size_t> described;
    Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      absl::Status status = Check(i, &buffers);
      if (status.ok()) continue;
      if (++described[status.code()] > kReasons) status = absl::Status(status.code(), "");
      bad.emplace(i, std::move(status));
    }
    return bad;
  }

 private:
  struct Buffers {
    std::vector<std::byte> value, scratch;
  };

  absl::Status Check(int64_t i, Buffers* buffers) const {
    for (const FeedWriter& writer : writers_) {
      buffers->value.resize(writer.sample().bytes());
      RETURN_IF_ERROR(writer.Write(data_, i, buffers->value, &buffers->scratch));
    }
    for (const LabelCheck& label : labels_) RETURN_IF_ERROR(CheckLabel(data_, i, label));
    for (const SequenceCheck& sequence : sequences_) RETURN_IF_ERROR(CheckSequence(data_, i, sequence));
    return absl::OkStatus();
  }

  const Dataset& data_;
  const std::vector<LabelCheck>& labels_;
  const std::vector<SequenceCheck>& sequences_;
  std::vector<FeedWriter> writers_;
};

// Checks contiguous ranges of samples in parallel and joins the results in order.
Reasons FindBadSamples(const SampleChecker& checker, int64_t size, int threads) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(size, 1));
  std::vector<Reasons> found(parts);
  RunParts(parts, [&](int64_t p) { found[p] = checker.Find(size * p / parts, size * (p + 1) / parts); });
  for (int64_t p = 1; p < parts; ++p) found[0].merge(found[p]);
  return std::move(found[0]);
}

std::vector<std::string> FirstReasons(const Reasons& bad) {
  std::vector<std::string> reasons;
  for (const auto& [i, status] : bad) {
    if (reasons.size() < kReasons) reasons.emplace_back(ToStd(status.message()));
  }
  return reasons;
}

}  // namespace

absl::StatusOr<GoodSamples> DropBadSamples(std::shared_ptr<const Dataset> source, const std::vector<FeedSpec>& specs,
                                           const std::vector<LabelCheck>& labels,
                                           const std::vector<SequenceCheck>& sequences, int threads) {
  SampleChecker checker(*source, labels, sequences);
  RETURN_IF_ERROR(checker.AddFeeds(specs));
  const int64_t size = source->size();
  const Reasons bad = FindBadSamples(checker, size, threads);
  GoodSamples good{.dataset = std::move(source), .bad = static_cast<int64_t>(bad.size())};
  if (bad.empty()) return good;
  good.reasons = FirstReasons(bad);
  if (good.bad == size) return Invalid("no sample is left: all ", size, " are bad; the first: ", good.reasons[0]);
  for (int64_t i = 0; i < size; ++i) {
    if (!bad.contains(i)) good.rows.push_back(i);
  }
  good.dataset = SubsetDataset(std::move(good.dataset), good.rows);
  return good;
}

BadSamples CountBadSamples(const Dataset& data, const std::vector<SequenceCheck>& checks, int threads) {
  const Reasons bad = FindBadSamples(SampleChecker(data, {}, checks), data.size(), threads);
  BadSamples found{.count = static_cast<int64_t>(bad.size()), .reasons = FirstReasons(bad), .invalid = {}};
  const auto invalid = std::ranges::find_if(bad, [](const auto& b) { return absl::IsInvalidArgument(b.second); });
  if (invalid != bad.end()) found.invalid = invalid->second;
  return found;
}

std::string JoinReasons(const std::vector<std::string>& reasons, int64_t bad) {
  return StrCat(absl::StrJoin(reasons, "; "), bad > std::ssize(reasons) ? "; …" : "");
}

}  // namespace onnxtrain
