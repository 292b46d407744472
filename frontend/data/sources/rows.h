// The sources of this folder. A new format adds its row to the table in rows.cc; rows are asked in that order.
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

// The binary version of CIFAR-10 and CIFAR-100: rows of one label byte (CIFAR-100: coarse and fine) and 3 × 32 × 32
// bytes of red, green and blue. https://www.cs.toronto.edu/~kriz/cifar.html

// Whether a folder has data_batch_1.bin (CIFAR-10), or train.bin beside fine_label_names.txt (CIFAR-100), and among its
// files those for evaluation.
bool IsCifarFolder(const std::string& path);
bool HasCifarEvalFiles(const std::string& path);

// Opens the training files, or those for evaluation with eval_split, in memory: columns "image" [3,32,32], "label" and,
// for CIFAR-100, "coarse_label", with the names of the classes where their file is there.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifarFolder(const std::string& path, const DatasetOptions& options);

// CSV and TSV files as data sets.

// Opens a .csv (comma) or .tsv (tab) file. OpenDataset describes the columns, csv_reader.h the syntax.
//
// Header::kAuto takes the first row for a header as ClassifyFirstRow says. Columns of one name become a, a.1, …; rows
// without values and empty fields behind the last column are left out. Empty fields, and in numeric columns those that
// IsMissingValue names, are missing values. Numbers may be written 1,234.5, 12% or $5; columns of true and false, or
// yes and no, are numbers unless they are categories; notes tell which. A column with a missing value, or with text
// that is neither its label nor a category, gets a Column::problem that names the row and the column, unless
// DatasetOptions says otherwise. Errors of the whole file fail: rows of unequal length, an open quote, text that is
// not UTF-8, no rows, an unknown label column, a label that is not in class_names.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options);

// The same from a stream. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadCsv(const std::string& name, const ReadFn& read, char separator,
                                                       const DatasetOptions& options);

// The idx format of the MNIST files: two zero bytes, element type, rank, big-endian extents, elements. Plain or gzip.
// http://yann.lecun.com/exdb/mnist/

// Whether the first bytes of the file, which may be gzip, are those of idx.
bool IsIdx(const std::string& path);

// Reads the whole array. Messages do not name the file.
absl::StatusOr<HostTensor> ReadIdx(const std::string& path, int64_t max_bytes);

// Opens a file of images with the labels file in the same folder (the same name with "labels" and "idx1"), if there is
// one; or a single file of either kind.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const std::string& path, const DatasetOptions& options);

// Whether a folder has files named like MNIST's, and among them those for evaluation.
bool IsMnistFolder(const std::string& path);
bool HasMnistEvalFiles(const std::string& path);

// Opens a folder with train-images… and train-labels…, or t10k-… with eval_split.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnistFolder(const std::string& path, const DatasetOptions& options);

// Folders of .npy files, an array of all samples in each: x.npy and y.npy, or x_train.npy, y_train.npy, x_test.npy ….

// Whether the folder holds .npy files only, hidden ones apart.
bool IsNpyFolder(const std::string& path);
// Opens the arrays as the columns of one data set, named after the files; of the parts of training and evaluation
// (npz_parts.h) one. Fails, naming the file, on arrays of other lengths than the first.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpyFolder(const std::string& path, const DatasetOptions& options);
// Are there such parts?
bool HasEvalNpyFiles(const std::string& path);

// Folders with one .npz file per sample.

// Whether all visible files of a folder are .npz files, and there is one.
bool IsNpzFolder(const std::string& path);

// Opens a folder: a sample per file, in the order of their names by bytes, a column per array. All files have the
// arrays of the first one, with the same types. Files are read when they are needed.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpzFolder(const std::string& path, const DatasetOptions& options);

// Tar archives as data sets.

// Opens one tar archive or several (see TarIndex). Members .npy are arrays of one type, .cls labels as whole numbers,
// .txt texts, .jpg, .png, .webp, .gif, .bmp and .tif pictures as DatasetOptions::images has them, and .json objects
// whose keys are columns as in a file of JSON lines; the columns are named after the extensions, or the keys. Arrays
// are read when they are needed; the others are held in memory.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTar(const std::string& pattern, const DatasetOptions& options);

// Plain text as documents: one text column "text".

class LineReader {
 public:
  explicit LineReader(ReadFn read) : read_(std::move(read)) {}

  // Reads the next line without its end (LF or CRLF); false at the end. Skips a UTF-8 byte order mark. Refuses lines of
  // more than 256 MiB.
  absl::StatusOr<bool> Next(std::string* line);
  // The 1-based number of the last line.
  int64_t number() const { return number_; }

 private:
  absl::StatusOr<bool> Fill();

  ReadFn read_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

// Whether the path is a folder of .txt files (also .gz, .zst) and nothing else but hidden files.
bool IsTextFolder(const std::string& path);

// Each file is a document: one file, or those of a folder in the order of their names. They are held in memory, and
// refused where they do not fit the memory limit.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextFiles(const std::string& path, const DatasetOptions& options);

// Each line of a file that is not blank is a document.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTextLines(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
