#include "optim/record/run_record.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "optim/record/output_folder.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSummaryBytes = int64_t{64} << 20;

void AddRow(const Json& row, RunRecord* record) {
  const bool eval = row.value("event", "") == "eval";
  auto& all = eval ? record->eval : record->train;
  const double step = row.value("step", 0.0);
  for (const auto& [key, value] : row.items()) {
    if (!value.is_number() || key == "step") continue;
    const std::string name = eval && key.starts_with("eval_") ? key.substr(5) : key;
    all[name].emplace_back(step, value.get<double>());
  }
}

absl::Status ReadRateTest(const std::string& path, RunRecord* record) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxSummaryBytes));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("points") || !json["points"].is_array())
    return Invalid(path, ": not the result of a learning rate range test");
  RateTestRecord test{.lr = json.value("lr", Json()).is_number() ? json["lr"].get<double>() : 0,
                      .why = json.value("why", "")};
  for (const Json& point : json["points"]) {
    if (!point.is_array() || point.size() != 3 || !std::ranges::all_of(point, &Json::is_number)) continue;
    test.loss.emplace_back(point[0].get<double>(), point[1].get<double>());
    test.smooth.emplace_back(point[0].get<double>(), point[2].get<double>());
  }
  record->rate_test = std::move(test);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunRecord> ReadRun(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  RunRecord record{.folder = folder, .running = IsLocked(folder)};
  std::ifstream file(path);
  if (!file && record.running) return record;  // it prepares its data
  if (!file) return Invalid(folder, ": holds no run (there is no metrics.jsonl)");
  int64_t number = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    ++number;
    const Json row = ParseJson(line);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number())
      return Invalid(path, ": line ", number, ": not an event of a run");
    AddRow(row, &record);
  }
  RETURN_IF_ERROR(ReadRateTest(StrCat(folder, "/", kRateTestFile), &record));
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/summary.json", ignored)) return record;
  ASSIGN_OR_RETURN(record.summary, ReadTextFile(folder + "/summary.json", kMaxSummaryBytes));
  return record;
}

std::set<std::string> OtherMetrics(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const auto& [name, series] : run.eval) names.insert(name);
  }
  for (const char* known : {"loss", "accuracy", "epoch", "seconds", "samples"}) names.erase(known);
  return names;
}

std::string RunName(const RunRecord& run) {
  const std::string name = std::filesystem::path(run.folder).lexically_normal().filename().string();
  return name.empty() ? run.folder : name;
}

const Series* FindSeries(const std::map<std::string, Series>& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace onnxtrain
