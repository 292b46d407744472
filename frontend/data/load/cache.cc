#include "frontend/data/load/cache.h"

#include <algorithm>
#include <cstring>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

using Bytes = std::vector<std::byte>;

class Cache : public DatasetView {
 public:
  // Caches at most `bytes`.
  Cache(std::shared_ptr<const Dataset> source, const std::vector<int>& columns, std::shared_ptr<CacheBudget> budget,
        int64_t bytes)
      : DatasetView(std::move(source)), budget_(std::move(budget)), bytes_(bytes), kept_(source_->columns().size()) {
    for (const int c : columns) kept_[c] = std::make_unique<SampleCache<Bytes>>(size());
  }

  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }
  int64_t memory_bytes() const override { return source_->memory_bytes() + bytes_; }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    SampleCache<Bytes>* kept = kept_[c].get();
    if (kept == nullptr) return source_->Read(i, c, pass, out);
    if (const Bytes* value = kept->Find(i)) {
      std::memcpy(out.data(), value->data(), out.size());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(source_->Read(i, c, pass, out));
    if (budget_->Take(std::ssize(out))) kept->Keep(i, std::make_unique<const Bytes>(out.begin(), out.end()));
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<CacheBudget> budget_;
  int64_t bytes_;
  std::vector<std::unique_ptr<SampleCache<Bytes>>> kept_;  // one cache per column; null: not cached
};

}  // namespace

std::shared_ptr<const Dataset> CacheInRam(std::shared_ptr<const Dataset> source, const std::vector<int>& columns,
                                          std::shared_ptr<CacheBudget> budget) {
  std::vector<int> kept;
  int64_t bytes = 0;
  bool augmented = false;
  for (const int c : columns) {
    const Column& column = source->columns()[c];
    augmented |= column.augmented;
    if (!column.problem.empty() || column.variable || column.augmented || column.sample.elements() <= 1) continue;
    kept.push_back(c);
    bytes += source->size() * static_cast<int64_t>(column.sample.bytes());
  }
  if (source->memory_bytes() >= bytes && !augmented) return nullptr;
  const int64_t most = augmented ? budget->bytes() : std::min(bytes, budget->bytes());
  return std::make_shared<Cache>(std::move(source), kept, std::move(budget), most);
}

}  // namespace onnxtrain
