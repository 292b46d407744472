// Creates files for the tests of frontend/data.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"
#include "gtest/gtest.h"

namespace onnxtrain {

// A folder for the running test, removed at its end.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "onnxtrain_data_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return (std::filesystem::path(path_) / name).string(); }
  const std::string& path() const { return path_; }
  // Writes a file and returns its path.
  std::string Write(std::string_view name, std::string_view content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string Message(const absl::Status& status) { return std::string(ToStd(status.message())); }

// Returns the values of column c of samples [0, n), as doubles.
inline std::vector<double> ColumnValues(const Dataset& data, int c) {
  std::vector<double> out;
  const Type& type = data.columns()[c].sample;
  for (int64_t i = 0; i < data.size(); ++i) {
    HostTensor sample(type);
    const absl::Status status = data.Read(i, c, sample.mutable_bytes());
    EXPECT_TRUE(status.ok()) << status;
    for (double v : sample.ToDoubles()) out.push_back(v);
  }
  return out;
}

}  // namespace onnxtrain
