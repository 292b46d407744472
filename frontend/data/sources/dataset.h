// The source of samples: a table of named columns, each with one element type and one fixed sample shape.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/audio/audio_options.h"
#include "frontend/data/image/image_options.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

struct Column {
  std::string name;
  Type sample;                       // shape of one sample, without the batch axis
  std::vector<std::string> classes;  // of a label column with names for values; empty for numbers
  bool image = false;                // u8 pixels, which --normalize applies to
  bool picture = false;              // decoded from files of pictures as ImageOptions says
  bool augmented = false;            // the values depend on ReadPass, where that augments
  int64_t sample_rate = 0;           // in Hz, of sounds; else 0
  bool measured = true;              // false for categories and constants, which are not standardized
  bool text = false;                 // ReadText returns the text of a sample; Read fails, with `problem`
  // The samples are sequences of their own lengths (Dataset::Length): sample.shape is [the greatest one], and Read
  // fills any number of elements, padded or cut.
  bool variable = false;
  // ≥ 0: pictures keep their sizes. Height and width are the extents `height_axis` and the next one of a sample's
  // shape, as Dataset::Extents says; `sample` has those of the largest one.
  int height_axis = -1;
  int64_t size_multiple = 0;  // that their extents are padded to in batches; 0: they have one size
  // The least and the greatest of integers, but for the ignore index of labels, where they are known without reading
  // all samples.
  std::optional<std::pair<int64_t, int64_t>> bounds = {};
  // Why the column cannot be read ("t.csv: row 7, column 'age': missing value"); "" if it can. Other columns stay
  // usable; Read, Loader::Create and CheckLabels fail with this message.
  std::string problem = {};
};

// Height and width of a picture that keeps its size, and what a batch pads them to.
struct PictureExtents {
  int64_t height = 0, width = 0, padded_height = 0, padded_width = 0;

  bool operator==(const PictureExtents&) const = default;
  bool SamePadded(const PictureExtents& o) const {
    return padded_height == o.padded_height && padded_width == o.padded_width;
  }
};

// The pass over the data that a sample is read for. Equal passes read equal values: random augmentation is a function
// of (seed, epoch, sample) alone.
struct ReadPass {
  bool augment = false;  // as training does; false: samples as they are
  uint64_t seed = 0;
  int64_t epoch = 0;
  const std::atomic<bool>* stop = nullptr;  // set: nobody waits for the sample any more, and Read may fail
};

// Immutable after opening. Any number of threads may call Read at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples
  virtual const std::vector<Column>& columns() const = 0;
  // Writes sample `i` of column `c` in the column's element type to `out`, SampleType(*this, i, c).bytes() bytes.
  // Sources without augmentation ignore `pass`; views pass it on.
  virtual absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const = 0;
  // Reads the sample without augmentation.
  absl::Status Read(int64_t i, int c, std::span<std::byte> out) const { return Read(i, c, ReadPass{}, out); }
  // Writes samples [first, first + count) of column `c` to `out`, one behind the other, without augmentation.
  virtual absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const;
  // Returns the text of sample `i`, UTF-8. Requires columns()[c].text.
  virtual absl::StatusOr<std::string> ReadText(int64_t i, int c) const;
  // Length of sample `i` in the columns that are `variable`, which share it; of pictures that keep their sizes, a
  // number that orders the sizes; 0 where there are neither.
  virtual int64_t Length(int64_t i) const { return 0; }
  // Extents of sample `i` in the columns that have a `height_axis`, which share them.
  virtual PictureExtents Extents(int64_t i) const { return {}; }
  // Returns "data.csv: row 17", the prefix of messages about a sample.
  virtual std::string Describe(int64_t i) const = 0;
  // Returns a name of the sample that stays when others are added or the data moves; "" if only its values identify it.
  // Not passed on by views.
  virtual std::string StableName(int64_t i) const { return ""; }
  // Has every epoch other samples (ReadPass::epoch), each of which comes once? Their order is that in which they come.
  virtual bool streams() const { return false; }
  // What opening the file has decided or left out, one line each, for people. Not passed on by views.
  virtual std::vector<std::string> notes() const { return {}; }
  // Bytes of memory that hold samples; 0 if they are read from files or generated. A view returns those of its source.
  virtual int64_t memory_bytes() const { return 0; }
};

// The type of sample `i` in column `c`.
Type SampleType(const Dataset& data, int64_t i, int c);

// The axis of `sample`, which holds a sample of the column with extents of 1 added or left out, that is the column's
// height_axis; -1: there is none.
int FindHeightAxis(const Column& column, const Shape& sample);

enum class Header { kAuto, kYes, kNo };

// Columns by name.
struct ColumnSet {
  bool all = false;
  std::set<std::string> names = {};
  bool contains(const std::string& name) const { return all || names.contains(name); }
};

struct DatasetOptions {
  Header header = Header::kAuto;                 // CSV
  std::vector<std::string> label;                // CSV: label columns by name or 0-based index; default: the last
  std::vector<std::string> class_names;          // CSV: fixed class order, from training; empty: sorted
  std::vector<std::string> folder_classes = {};  // folders of classes: the same, also of classes that are numbers
  std::string encoding = {};                     // of files of text, as DecodeText (text/text_encoding.h) takes it
  ImageOptions images = {};                      // files of pictures
  AudioOptions audio = {};                       // files of sound
  // CSV: columns that are not labels, whose text becomes i64 indices into Column::classes; a column that is mostly
  // numbers only where it is named.
  ColumnSet categories = {};
  // CSV: columns that are not labels, whose missing values are NaN, or -1 for categories.
  ColumnSet missing = {};
  // CSV: columns, by name or 0-based index, that are not labels, whose text ReadText returns as it is. They become
  // neither numbers nor categories.
  ColumnSet text = {};
  // CSV: a field that cannot be used makes its sample unreadable, not its column: Read fails for it.
  bool skip_bad = false;
  // Samples of a window of a pipe that is read as it comes (stdin.h); 0: to its end.
  int64_t stream_window = 0;
  bool eval_split = false;  // evaluation samples of a path that has some, as MNIST's folder with its t10k files
  int64_t max_bytes = 0;    // memory limit for samples; 0: half of the available memory
};

// Opens data of a kind that source.h registers: a file, a folder, or "name:path" with the name of a kind. Every error
// names the file, and the row or column.
//   npz  one column per array, in the order of the file; all arrays have the same leading extent
//   npy  one column, named after the file
//   idx  columns "image" [28,28] and, if the labels are in the same folder, "label" []
//   csv  one scalar column per column: i64 if all values are integers, else f64; names of labels and categories become
//        i64 indices into its classes. Columns are named "0", "1", … without a header, "#0" if the header names them ""
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options);

// Makes a data set of tensors: tensors[c] is column c, [n, …] with the same n > 0 for all. u8 samples of rank ≥ 2 are
// images. Messages begin with `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> InMemoryDataset(const std::string& name,
                                                               std::vector<std::string> columns,
                                                               std::vector<HostTensor> tensors);

// Returns a view of the samples [begin, end). Requires 0 ≤ begin ≤ end ≤ source->size().
std::shared_ptr<const Dataset> SliceDataset(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end);

// Data sets that hold their samples in memory, as npz, idx and CSV files do.

struct NamedTensor {
  std::string name;
  HostTensor tensor;  // [n, sample…]
  std::vector<std::string> classes = {};
  std::string problem = {};
  std::map<int64_t, std::string> unreadable = {};  // why Read fails for single samples
  std::vector<std::string> texts = {};             // of a text column, by sample; `tensor` is [n] then
  std::string note = {};                           // for Dataset::notes
};

// Describes an array [n, sample…] as a column. Fails on a scalar and on n = 0.
absl::StatusOr<Column> MakeColumn(std::string name, const Type& type);

// Makes a data set of tensors with the same leading extent; otherwise fails, naming them. `describe` implements
// Dataset::Describe.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeMemoryDataset(std::vector<NamedTensor> columns,
                                                                 std::function<std::string(int64_t)> describe);

}  // namespace onnxtrain
