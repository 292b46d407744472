// Reads all columns of Parquet or Arrow data, for tools/parquet_check.py and tools/bench/vs_pyarrow.py.
//
//   arrow_values DATA OUT [TEXT…]    writes the values of column c to OUT/c.bin (texts to OUT/c.json) and prints a JSON
//                                    line about each column; columns TEXT are read as texts
//   arrow_values DATA speed [TEXT…]  prints how long opening the data and reading all columns takes, four times
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

constexpr int64_t kRows = 65536;  // read at a time

absl::Status ReadNumbers(const Dataset& data, int c, std::ofstream* out) {
  const auto width = static_cast<int64_t>(data.columns()[c].sample.bytes());
  static std::vector<std::byte> values;  // one buffer for all columns
  values.resize(std::min(kRows, data.size()) * width);
  for (int64_t first = 0; first < data.size(); first += kRows) {
    const int64_t count = std::min(kRows, data.size() - first);
    const std::span<std::byte> part(values.data(), count * width);
    RETURN_IF_ERROR(data.ReadRange(first, count, c, part));
    if (out != nullptr) out->write(reinterpret_cast<const char*>(part.data()), std::ssize(part));
  }
  return absl::OkStatus();
}

absl::Status ReadTexts(const Dataset& data, int c, OrderedJson* out) {
  for (int64_t i = 0; i < data.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string text, data.ReadText(i, c));
    if (out != nullptr) out->push_back(text);
  }
  return absl::OkStatus();
}

absl::Status WriteColumn(const Dataset& data, int c, const std::string& folder) {
  const Column& column = data.columns()[c];
  OrderedJson line = {{"name", column.name},
                      {"dtype", ToString(column.sample.dtype)},
                      {"shape", column.sample.shape},
                      {"text", column.text},
                      {"classes", column.classes}};
  absl::Status status = column.problem.empty() || column.text ? absl::OkStatus() : Invalid(column.problem);
  const std::string path = StrCat(folder, "/", c);
  if (status.ok() && column.text) {
    OrderedJson texts = OrderedJson::array();
    status = ReadTexts(data, c, &texts);
    std::ofstream(path + ".json") << WriteJson(texts);
  } else if (status.ok()) {
    std::ofstream file(path + ".bin", std::ios::binary);
    status = ReadNumbers(data, c, &file);
  }
  line["problem"] = ToStd(status.message());
  std::printf("%s\n", WriteJson(line).c_str());
  return absl::OkStatus();
}

absl::Status Run(const std::string& path, const std::string& folder, const DatasetOptions& options) {
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto data, OpenDataset(path, options));
  for (int c = 0; c < std::ssize(data->columns()); ++c) {
    const Column& column = data->columns()[c];
    if (folder != "speed") {
      RETURN_IF_ERROR(WriteColumn(*data, c, folder));
    } else if (column.text || column.problem.empty()) {
      RETURN_IF_ERROR(column.text ? ReadTexts(*data, c, nullptr) : ReadNumbers(*data, c, nullptr));
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  if (folder == "speed") std::printf("%.4f s, %.4f s of CPU\n", seconds.count(), cpu_seconds);
  return absl::OkStatus();
}

}  // namespace
}  // namespace onnxtrain

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  onnxtrain::DatasetOptions options{.images = {.width = 8, .height = 8}};
  options.text.names.insert(argv + 3, argv + argc);
  const std::string folder = argv[2];
  absl::Status status = onnxtrain::Run(argv[1], folder, options);
  // Measures again in a process that has loaded the libraries and used the memory before.
  for (int i = 0; i < 3 && status.ok() && folder == "speed"; ++i) status = onnxtrain::Run(argv[1], folder, options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
