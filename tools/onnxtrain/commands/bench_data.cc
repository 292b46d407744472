#include "tools/onnxtrain/commands/bench_data.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/epoch_order.h"
#include "frontend/data/json_writer.h"
#include "frontend/data/loader.h"
#include "optim/auto/data_setup.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSeconds = 1;      // per measurement
constexpr double kNearBest = 0.95;  // fewer workers that are this fast are preferred
constexpr int64_t kDefaultBatch = 32;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct WorkerRate {
  int workers = 0;  // 0: the thread that takes the batches
  double rate = 0;  // samples/s
};

struct DataRates {
  int64_t samples = 0, batch = 0;
  double read = 0;     // samples/s of one thread: from the file to the values of its columns, augmented
  double collate = 0;  // conversion, normalization, and the copy into batches
  std::vector<WorkerRate> workers;

  const WorkerRate& best() const {
    const double most = std::ranges::max(workers, {}, &WorkerRate::rate).rate;
    return *std::ranges::find_if(workers, [&](const WorkerRate& w) { return w.rate >= kNearBest * most; });
  }
};

std::vector<int> FedColumns(const std::vector<FeedSpec>& feeds) {
  std::set<int> columns;
  for (const FeedSpec& feed : feeds) columns.insert(feed.columns.begin(), feed.columns.end());
  return {columns.begin(), columns.end()};
}

// Reads single samples on this thread, in the order of a shuffled epoch.
absl::StatusOr<double> TimeReads(const Dataset& data, const std::vector<FeedSpec>& feeds, uint64_t seed) {
  const std::vector<int> columns = FedColumns(feeds);
  std::vector<HostTensor> values;
  for (const int c : columns) values.emplace_back(data.columns()[c].sample);
  const ReadPass pass{.augment = true, .seed = seed};
  const std::vector<int64_t> order = EpochOrder(data.size(), seed, 0, true);
  int64_t read = 0;
  const double begin = Now();
  for (; Now() < begin + kSeconds; ++read) {
    for (size_t k = 0; k < columns.size(); ++k)
      RETURN_IF_ERROR(data.Read(order[read % data.size()], columns[k], pass, values[k].mutable_bytes()));
  }
  return static_cast<double>(read) / (Now() - begin);
}

absl::StatusOr<double> TimeLoader(const BoundData& data, LoaderOptions options) {
  ASSIGN_OR_RETURN(const auto loader, Loader::Create(data.dataset, data.feeds, options));
  RETURN_IF_ERROR(loader->Next().status());  // buffers are allocated, threads started
  int64_t samples = 0;
  const double begin = Now();
  while (Now() < begin + kSeconds) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    samples += std::ssize(batch->samples);
  }
  return static_cast<double>(samples) / (Now() - begin);
}

absl::StatusOr<DataRates> MeasureData(const TrainConfig& config, const BoundData& data) {
  DataRates rates{.samples = data.dataset->size()};
  rates.batch = std::min(config.batch_size > 0 ? config.batch_size : kDefaultBatch, rates.samples);
  const auto seed = static_cast<uint64_t>(config.seed);
  ASSIGN_OR_RETURN(rates.read, TimeReads(*data.dataset, data.feeds, seed));
  LoaderOptions options{.batch_size = rates.batch, .shuffle = true, .seed = seed, .augment = true, .epochs = -1};
  for (int workers = 0; workers <= std::max(1, CpuCount()); workers = workers == 0 ? 1 : 2 * workers) {
    options.num_workers = workers;
    ASSIGN_OR_RETURN(const double rate, TimeLoader(data, options));
    rates.workers.push_back({workers, rate});
  }
  // The batches of this thread contain the reads.
  const double rest = 1 / rates.workers[0].rate - 1 / rates.read;
  rates.collate = rest > 0 ? 1 / rest : 0;
  return rates;
}

std::string Rate(double rate) {
  return rate > 0 ? FormatWithCommas(std::llround(rate)) + " samples/s" : "too fast to tell from reading";
}

std::string Page(const TrainConfig& config, const DataRates& rates) {
  std::string text = PageRow(
      "data", StrCat(config.data, ": ", FormatWithCommas(rates.samples), " samples, in batches of ", rates.batch));
  text += PageRow("read", Rate(rates.read) + ": reads and decodes on one thread");
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
  for (const WorkerRate& w : rates.workers)
    json["workers"].push_back({{"num_workers", w.workers}, {"samples_per_second", w.rate}});
  return json;
}

}  // namespace

absl::StatusOr<int> BenchData(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const ModelAndData opened, OpenModelAndData(config, false, true));
  for (const std::string& note : opened.data.bound.notes) LogInfo(config, note);
  ASSIGN_OR_RETURN(const DataRates rates, MeasureData(config, opened.data.bound));
  RETURN_IF_ERROR(Print(config.json ? WriteJson(ToJson(config, rates), 2) + "\n" : Page(config, rates)));
  return kDone;
}

}  // namespace onnxtrain::cli
