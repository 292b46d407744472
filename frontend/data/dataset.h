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
  // Why the column cannot be read ("t.csv: row 7, column 'age': missing value"), "" if it can. The file may still be
  // used without it; Read, Loader::Create and CheckLabels fail with this message.
  std::string problem = {};
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
  // Of memory that samples lie in, 0 where they are read from files or made. A view of another data set tells that one's.
  virtual int64_t held_bytes() const { return 0; }
};

enum class Header { kAuto, kYes, kNo };

struct DatasetOptions {
  Header header = Header::kAuto;         // CSV
  std::vector<std::string> label;        // CSV: columns by name or 0-based index that are the label; default: the last
  std::vector<std::string> class_names;  // CSV: fixed class order, from training; empty: sorted as found
  bool eval_split = false;               // an MNIST folder: the t10k files instead of train
  int64_t max_bytes = 0;                 // most memory to hold samples in; 0: half of what is left
};

// By what the path is: .npz, .npy, .csv/.tsv (also with .gz), an idx file or a folder with MNIST's files (.gz or
// plain). Every error names the file, and the row or column.
//   npz  columns are the arrays, in the file's order; all of one leading extent
//   npy  one column, named after the file
//   idx  columns "image" [28,28] and, where the labels lie beside the images, "label" []
//   csv  one scalar column per column: i64 where all values are integers, else f64; a label column of names: i64
//   indices
//        into its classes. Without a header the columns are named "0", "1", …; one that the header leaves unnamed "#0"
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options);

// Samples that are in memory already: tensors[c] is column c, [n, …] of any one n > 0. Sample shapes, element types and
// the image flag (u8 of rank ≥ 2) are taken from the tensors. `name` begins the messages.
absl::StatusOr<std::shared_ptr<const Dataset>> InMemoryDataset(std::string name, std::vector<std::string> columns,
                                                               std::vector<HostTensor> tensors);

// Rows [begin, end) of a data set, as a data set. 0 ≤ begin ≤ end ≤ source->size().
std::shared_ptr<const Dataset> SliceDataset(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end);

}  // namespace onnxtrain
