#include "frontend/data/bad_samples.h"

#include <algorithm>
#include <map>

#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/data/convert.h"
#include "frontend/data/data_view.h"

namespace onnxtrain {
namespace {

constexpr size_t kReasons = 3;

// Checks samples of one data set; used by several threads.
class SampleChecker {
 public:
  static absl::StatusOr<SampleChecker> Create(const Dataset& data, const std::vector<FeedSpec>& specs,
                                              const std::vector<LabelCheck>& labels) {
    SampleChecker checker(data, labels);
    for (const FeedSpec& spec : specs) {
      ASSIGN_OR_RETURN(FeedWriter writer, FeedWriter::Create(data, spec));
      checker.writers_.push_back(std::move(writer));
    }
    return checker;
  }

  // Finds the bad samples of [begin, end).
  std::map<int64_t, std::string> Find(int64_t begin, int64_t end) const {
    std::map<int64_t, std::string> bad;
    Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      if (const absl::Status status = Check(i, &buffers); !status.ok())
        bad.emplace(i, bad.size() < kReasons ? std::string(ToStd(status.message())) : "");
    }
    return bad;
  }

 private:
  struct Buffers {
    std::vector<std::byte> value, scratch;
  };

  SampleChecker(const Dataset& data, const std::vector<LabelCheck>& labels) : data_(data), labels_(labels) {}

  absl::Status Check(int64_t i, Buffers* buffers) const {
    for (const FeedWriter& writer : writers_) {
      buffers->value.resize(writer.sample().bytes());
      RETURN_IF_ERROR(writer.Write(data_, i, buffers->value, &buffers->scratch));
    }
    for (const LabelCheck& label : labels_) RETURN_IF_ERROR(CheckLabel(data_, i, label));
    return absl::OkStatus();
  }

  const Dataset& data_;
  const std::vector<LabelCheck>& labels_;
  std::vector<FeedWriter> writers_;
};

// Contiguous parts, one a thread, whose results are joined in order.
std::map<int64_t, std::string> FindBadSamples(const SampleChecker& checker, int64_t size, int threads) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, size);
  std::vector<std::map<int64_t, std::string>> found(parts);
  RunParts(parts, [&](int64_t p) { found[p] = checker.Find(size * p / parts, size * (p + 1) / parts); });
  for (int64_t p = 1; p < parts; ++p) found[0].merge(found[p]);
  return std::move(found[0]);
}

}  // namespace

absl::StatusOr<GoodSamples> DropBadSamples(std::shared_ptr<const Dataset> source, const std::vector<FeedSpec>& specs,
                                           const std::vector<LabelCheck>& labels, int threads) {
  ASSIGN_OR_RETURN(const SampleChecker checker, SampleChecker::Create(*source, specs, labels));
  const int64_t size = source->size();
  const std::map<int64_t, std::string> bad = FindBadSamples(checker, size, threads);
  GoodSamples good{.dataset = std::move(source), .bad = static_cast<int64_t>(bad.size())};
  if (bad.empty()) return good;
  for (const auto& [i, reason] : bad) {
    if (good.reasons.size() < kReasons) good.reasons.push_back(reason);
  }
  if (good.bad == size) return Invalid("no sample is left: all ", size, " are bad; the first: ", good.reasons[0]);
  for (int64_t i = 0; i < size; ++i) {
    if (!bad.contains(i)) good.rows.push_back(i);
  }
  good.dataset = SubsetDataset(std::move(good.dataset), good.rows);
  return good;
}

}  // namespace onnxtrain
