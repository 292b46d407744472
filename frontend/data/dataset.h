// Where samples come from: a table of named columns, each of one element type and one fixed sample shape.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

struct Column {
  std::string name;
  Type sample;                       // shape of one sample, without the batch axis
  std::vector<std::string> classes;  // of a label column whose values were names; "" column of numbers: empty
  bool image = false;                // u8 pixels that --normalize applies to
};

// Immutable after opening; Read may be called from any number of threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples
  virtual const std::vector<Column>& columns() const = 0;
  // Writes sample `i` of column `c`, in the column's own element type, to out (columns()[c].sample.bytes() bytes).
  virtual absl::Status Read(int64_t i, int c, std::span<std::byte> out) const = 0;
  // "data.csv: row 17" – for messages about one sample.
  virtual std::string Describe(int64_t i) const = 0;
};

enum class Header { kAuto, kYes, kNo };

struct DatasetOptions {
  Header header = Header::kAuto;          // CSV
  std::vector<std::string> label;         // CSV: columns by name or 0-based index that are the label; default: the last
  std::vector<std::string> class_names;   // fixed class order, from training; empty: sorted as found
  bool eval_split = false;                // an MNIST folder: the t10k files instead of train
};

// By what the path is: .npz, .npy, .csv/.tsv, an idx images file or a folder with MNIST's files (.gz or plain).
// Every error names the file, and the row or column.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options);

// Rows [begin, end) of a data set, as a data set.
std::shared_ptr<const Dataset> SliceDataset(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end);

}  // namespace onnxtrain
