// The built-in sources. A new format adds its functions here and its row to the table in rows.cc; rows are asked in
// order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {

std::vector<Source> BuiltInSources();

// CIFAR-10 and CIFAR-100 in their binary version: rows of one label byte (CIFAR-100: coarse and fine) and 3 × 32 × 32
// bytes of red, green and blue. https://www.cs.toronto.edu/~kriz/cifar.html
//
// Return true if a folder has data_batch_1.bin (CIFAR-10), or train.bin and fine_label_names.txt (CIFAR-100), and if it
// has the evaluation files.
bool IsCifarFolder(const std::string& path);
bool HasCifarEvalFiles(const std::string& path);

// Reads the training files, or the evaluation files with eval_split, into memory. Columns: "image" [3,32,32], "label"
// and, for CIFAR-100, "coarse_label", with class names if their file exists.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifarFolder(const std::string& path, const DatasetOptions& options);

// Opens a .csv (comma) or .tsv (tab) file. OpenDataset describes the columns, csv.h the syntax.
//
// Header::kAuto decides by ClassifyFirstRow whether the first row is a header. Columns with equal names become a, a.1,
// …. Rows without values and empty trailing fields are dropped. Empty fields, and in numeric columns those of
// IsMissingValue, are missing values. Numbers may be written 1,234.5, 12% or $5; columns of true and false, or yes and
// no, are numbers unless they are categories; notes report this. A column with a missing value, or a feature column
// with text that is not a category, gets a Column::problem that names row and column, unless DatasetOptions says
// otherwise. Fails on errors of the whole file: rows of unequal length, an open quote, invalid UTF-8, no rows, an
// unknown label column, a label that is not in class_names.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options);

// Like OpenCsv, from a stream. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadCsv(const std::string& name, const ReadFn& read, char separator,
                                                       const DatasetOptions& options);

// The idx format of MNIST: two zero bytes, element type, rank, big-endian extents, elements; plain or gzip.
// http://yann.lecun.com/exdb/mnist/
//
// Returns true if the file, which may be gzip, begins like idx.
bool IsIdx(const std::string& path);

// Reads the whole array. Messages do not name the file.
absl::StatusOr<HostTensor> ReadIdx(const std::string& path, int64_t max_bytes);

// Opens a file of images and, if present, the labels file in the same folder (the same name with "labels" and "idx1");
// or a single file of either kind.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const std::string& path, const DatasetOptions& options);

// Return true if a folder has files named like MNIST's, and if it has the evaluation files.
bool IsMnistFolder(const std::string& path);
bool HasMnistEvalFiles(const std::string& path);

// Opens a folder with train-images… and train-labels…, or t10k-… with eval_split.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnistFolder(const std::string& path, const DatasetOptions& options);

// Returns true if a folder holds .npy files only, except for hidden ones: x.npy and y.npy, or x_train.npy, y_train.npy,
// x_test.npy ….
bool IsNpyFolder(const std::string& path);
// Opens the arrays, each of all samples, as columns named after the files; if there are parts for training and
// evaluation (FindNpzPart), opens one. Fails, naming the file, if lengths differ.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpyFolder(const std::string& path, const DatasetOptions& options);
// Returns true if there is a part for evaluation.
bool HasEvalNpyFiles(const std::string& path);

// Returns true if a folder has .npz files and no other visible ones.
bool IsNpzFolder(const std::string& path);

// Opens a folder with one .npz file per sample, in bytewise order of names, a column per array. All files must have the
// arrays of the first one, with the same types. Files are read on demand.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpzFolder(const std::string& path, const DatasetOptions& options);

// Opens one or several tar archives (see TarIndex). Members .npy are arrays of one type, .cls integer labels, .txt
// texts, .jpg, .png, .webp, .gif, .bmp and .tif pictures as DatasetOptions::images says, and .json objects whose keys
// are columns as in JSON lines; other columns are named after the extension. Arrays and pictures are read on demand,
// the rest is held in memory.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTar(const std::string& pattern, const DatasetOptions& options);

// Reads a stream line by line.
class LineReader {
 public:
  explicit LineReader(ReadFn read) : read_(std::move(read)) {}

  // Reads the next line without its end (LF or CRLF); returns false at the end. Skips a UTF-8 byte order mark. Refuses
  // lines above 256 MiB.
  absl::StatusOr<bool> Next(std::string* line);
  // Returns the 1-based number of the last line.
  int64_t number() const { return number_; }

 private:
  absl::StatusOr<bool> Fill();

  ReadFn read_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

// Returns true for a folder of .txt files (also .gz, .zst) and, except hidden ones, no others.
bool IsTextFolder(const std::string& path);

// Opens text files as documents, a file or those of a folder in the order of their names, with one column "text". Holds
// them in memory and fails if they exceed the memory limit.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextFiles(const std::string& path, const DatasetOptions& options);

// Opens the non-blank lines of a file as documents, with one column "text".
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextLines(const std::string& path, const DatasetOptions& options);

// The name of standard input in messages.
inline constexpr char kStdinName[] = "standard input";

bool IsStdin(const std::string& path);

// Reads standard input to its end, once per process, into memory: JSON lines, a CSV table, or consecutive .npy arrays
// as numpy.save appends them to a file, which become columns "0", "1", …. Fails if samples exceed the memory limit.
// With DatasetOptions::stream_window, JSON lines are read on demand, a window at a time.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenStdin(const std::string& path, const DatasetOptions& options);

// Like OpenStdin, from bytes. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenBytes(const std::string& name, const std::string& bytes,
                                                         const DatasetOptions& options);

}  // namespace onnxtrain
