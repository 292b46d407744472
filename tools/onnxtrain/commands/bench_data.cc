#include "tools/onnxtrain/commands/command.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"
#include "optim/plan/data_setup.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSeconds = 1;      // per measurement
constexpr double kNearBest = 0.95;  // prefers fewer workers that reach this share of the best rate
constexpr int64_t kDefaultBatch = 32;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Returns the CPU time of this thread in seconds, which other processes do not affect.
double CpuNow() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Samples/s of one thread, by wall time and by CPU time.
struct ThreadRate {
  double wall = 0, cpu = 0;
};

// Measures samples/s since its construction.
class Stopwatch {
 public:
  bool running() const { return Now() < begin_ + kSeconds; }
  ThreadRate Rate(int64_t samples) const {
    const auto count = static_cast<double>(samples);
    return {.wall = count / (Now() - begin_), .cpu = count / (CpuNow() - cpu_begin_)};
  }

 private:
  double begin_ = Now(), cpu_begin_ = CpuNow();
};

struct WorkerRate {
  int workers = 0;  // 0: the consumer thread loads
  double rate = 0;  // samples/s
};

struct DataRates {
  int64_t samples = 0, batch = 0;
  // Samples/s of one thread.
  double read = 0;                      // decoding from the file, or for text from memory
  std::optional<double> tokenize = {};  // for text, done once before training
  std::optional<double> augment = {};   // set if there is augmentation
  double collate = 0;                   // conversion, normalization, and the copy into batches
  std::vector<WorkerRate> workers;

  const WorkerRate& best() const {
    const double most = std::ranges::max(workers, {}, &WorkerRate::rate).rate;
    return *std::ranges::find_if(workers, [&](const WorkerRate& w) { return w.rate >= kNearBest * most; });
  }
};

std::vector<int> ListFeedColumns(const std::vector<FeedSpec>& feeds) {
  std::set<int> columns;
  for (const FeedSpec& feed : feeds) columns.insert(feed.columns.begin(), feed.columns.end());
  return {columns.begin(), columns.end()};
}

// Calls read(sample) on this thread, in the order of a shuffled epoch.
template <typename Read>
absl::StatusOr<ThreadRate> TimeSamples(int64_t samples, uint64_t seed, Read read) {
  const std::vector<int64_t> order = EpochOrder(samples, seed, 0, true);
  int64_t done = 0;
  const Stopwatch watch;
  for (; watch.running(); ++done) RETURN_IF_ERROR(read(order[done % samples]));
  return watch.Rate(done);
}

absl::StatusOr<ThreadRate> TimeReads(const Dataset& data, const std::vector<int>& columns, const ReadPass& pass) {
  std::vector<HostTensor> values;
  for (const int c : columns) values.emplace_back(data.columns()[c].sample);
  return TimeSamples(data.size(), pass.seed, [&](int64_t i) -> absl::Status {
    for (size_t k = 0; k < columns.size(); ++k)
      RETURN_IF_ERROR(
          data.Read(i, columns[k], pass, values[k].mutable_bytes().first(SampleType(data, i, columns[k]).bytes())));
    return absl::OkStatus();
  });
}

absl::StatusOr<ThreadRate> TimeTokenizer(const Dataset& data, const TextSetup& text, uint64_t seed) {
  std::vector<int> columns;
  for (int c = 0; c < std::ssize(data.columns()); ++c) {
    if (data.columns()[c].text && std::ranges::count(text.columns, data.columns()[c].name) > 0) columns.push_back(c);
  }
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  return TimeSamples(data.size(), seed, [&](int64_t i) -> absl::Status {
    for (const int c : columns) {
      ASSIGN_OR_RETURN(const std::string words, data.ReadText(i, c));
      ids.clear();
      RETURN_IF_ERROR(text.tokenizer->Encode(words, &scratch, &ids));
    }
    return absl::OkStatus();
  });
}

// Returns the rate of the work in `all` without `part`; 0 if it is too fast to measure.
double RateOfRest(const ThreadRate& all, const ThreadRate& part) {
  const double rest = 1 / all.cpu - 1 / part.cpu;
  return rest > 0 ? 1 / rest : 0;
}

// Measures the rates of processing single samples.
absl::Status MeasureSamples(const BoundData& data, const TextSetup& text, uint64_t seed, DataRates* rates) {
  const Dataset& samples = *data.dataset;
  const std::vector<int> columns = ListFeedColumns(data.feeds);
  const auto any = [&](auto member) {
    return std::ranges::any_of(columns, [&](int c) { return samples.columns()[c].*member; });
  };
  ASSIGN_OR_RETURN(const ThreadRate plain, TimeReads(samples, columns, {.seed = seed}));
  rates->read = plain.wall;
  if (any(&Column::variable) && text.tokenizer != nullptr) {
    ASSIGN_OR_RETURN(const ThreadRate tokenize, TimeTokenizer(samples, text, seed));
    rates->tokenize = tokenize.wall;
  }
  if (!any(&Column::augmented)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ThreadRate augmented, TimeReads(samples, columns, {.augment = true, .seed = seed}));
  rates->augment = RateOfRest(augmented, plain);
  return absl::OkStatus();
}

// Keeps the values of the first samples in memory, to time the work after reading. Token columns already are in memory.
class KeptSamples : public DatasetView {
 public:
  static absl::StatusOr<std::shared_ptr<const Dataset>> Create(const BoundData& data, int64_t samples) {
    std::vector<int64_t> rows(std::min(samples, data.dataset->size()));
    std::iota(rows.begin(), rows.end(), 0);
    auto kept = std::make_shared<KeptSamples>(SubsetDataset(data.dataset, rows));
    for (const int c : ListFeedColumns(data.feeds)) {
      if (data.dataset->columns()[c].variable) continue;
      for (const int64_t i : rows) {
        std::vector<std::byte> bytes(SampleType(*data.dataset, i, c).bytes());
        RETURN_IF_ERROR(data.dataset->Read(i, c, ReadPass(), bytes));
        kept->values_[c].push_back(std::move(bytes));
      }
    }
    return kept;
  }

  using DatasetView::DatasetView;
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const auto column = values_.find(c);
    if (column == values_.end()) return DatasetView::Read(i, c, pass, out);
    std::ranges::copy(column->second[i], out.begin());
    return absl::OkStatus();
  }

 private:
  std::map<int, std::vector<std::vector<std::byte>>> values_;  // by column, by sample
};

absl::StatusOr<double> TimeLoader(std::shared_ptr<const Dataset> data, const std::vector<FeedSpec>& feeds,
                                  const LoaderOptions& options) {
  ASSIGN_OR_RETURN(const auto loader, Loader::Create(std::move(data), feeds, options));
  RETURN_IF_ERROR(loader->Next().status());  // buffers are allocated, threads started
  int64_t samples = 0;
  const Stopwatch watch;
  while (watch.running()) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    samples += std::ssize(batch->samples);
  }
  return watch.Rate(samples).wall;
}

absl::StatusOr<DataRates> MeasureData(const TrainConfig& config, const OpenedData& opened) {
  const BoundData& data = opened.bound;
  DataRates rates{.samples = data.dataset->size()};
  rates.batch = std::min(config.batch_size > 0 ? config.batch_size : kDefaultBatch, rates.samples);
  const auto seed = static_cast<uint64_t>(config.seed);
  RETURN_IF_ERROR(MeasureSamples(data, opened.text, seed, &rates));
  LoaderOptions options{.batch_size = rates.batch, .shuffle = true, .seed = seed, .augment = true, .epochs = -1};
  for (int workers = 0; workers <= std::max(1, CpuCount()); workers = workers == 0 ? 1 : 2 * workers) {
    options.num_workers = workers;
    ASSIGN_OR_RETURN(const double rate, TimeLoader(data.dataset, data.feeds, options));
    rates.workers.push_back({workers, rate});
  }
  options.num_workers = 0;
  ASSIGN_OR_RETURN(auto kept, KeptSamples::Create(data, rates.batch));
  ASSIGN_OR_RETURN(rates.collate, TimeLoader(std::move(kept), data.feeds, options));
  return rates;
}

std::string Rate(double rate) { return rate > 0 ? FormatRate(rate) + " samples/s" : "too fast to tell from reading"; }

std::string Page(const TrainConfig& config, const DataRates& rates) {
  std::string text = PageRow(
      "data", StrCat(config.data, ": ", FormatWithCommas(rates.samples), " samples, in batches of ", rates.batch));
  text += PageRow("read", Rate(rates.read) + ": reads and decodes on one thread");
  if (rates.tokenize.has_value())
    text += PageRow("tokenize", Rate(*rates.tokenize) + ": on one thread, once before training");
  if (rates.augment.has_value()) text += PageRow("augment", Rate(*rates.augment) + ": on one thread");
  text += PageRow("collate", Rate(rates.collate) + ": converts, normalizes and copies into batches");
  for (const WorkerRate& w : rates.workers) text += PageRow(absl::StrFormat("%d workers", w.workers), Rate(w.rate));
  return text + PageRow("best", StrCat("--num-workers ", rates.best().workers));
}

Json ToJson(const TrainConfig& config, const DataRates& rates) {
  Json json = {{"data", config.data},
               {"samples", rates.samples},
               {"batch", rates.batch},
               {"read_samples_per_second", rates.read},
               {"collate_samples_per_second", rates.collate},
               {"workers", Json::array()},
               {"best_num_workers", rates.best().workers}};
  if (rates.tokenize.has_value()) json["tokenize_samples_per_second"] = *rates.tokenize;
  if (rates.augment.has_value()) json["augment_samples_per_second"] = *rates.augment;
  for (const WorkerRate& w : rates.workers)
    json["workers"].push_back({{"num_workers", w.workers}, {"samples_per_second", w.rate}});
  return json;
}

}  // namespace

absl::StatusOr<int> BenchData(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const ModelAndData opened, OpenModelAndData(config, false, true));
  for (const std::string& note : opened.data.bound.notes) LogInfo(config, note);
  ASSIGN_OR_RETURN(const DataRates rates, MeasureData(config, opened.data));
  RETURN_IF_ERROR(Print(config.json ? WriteJson(ToJson(config, rates), 2) + "\n" : Page(config, rates)));
  return kDone;
}

}  // namespace onnxtrain::cli
