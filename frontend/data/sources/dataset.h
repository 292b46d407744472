// Data sets: tables of named columns, each with one element type and sample shape. Options for opening them, views that
// select or change samples and columns, and data sets in memory or of random values.
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
#include "frontend/data/audio/spectrogram.h"
#include "frontend/data/image/image_options.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// The format of samples that are made from sound files. 0 means as in the first file, and an error if another differs.
struct AudioOptions {
  int64_t sample_rate = 0;   // Hz; other rates are resampled
  int64_t channels = 0;      // 1: averages the channels
  int64_t frames = 0;        // longer sounds are truncated, shorter ones padded; with `spectrogram`, its frames
  double seconds = 0;        // length in seconds, used if frames is 0
  bool wanted = false;       // the model takes sounds
  bool any_length = false;   // sounds of one channel keep their lengths, as columns that are Column::variable
  bool standardize = false;  // each sound is scaled to zero mean and unit variance, before it is padded
  double padding = 0;        // value of the frames after the end of a sound
  SpectrogramOptions spectrogram = {};  // in place of sounds of one channel, if it has a style; needs `sample_rate`
};

struct Column {
  std::string name;
  Type sample;                       // shape of one sample, without the batch axis
  std::vector<std::string> classes;  // names of label values; empty for numbers
  bool image = false;                // u8 pixels, which --normalize applies to
  bool picture = false;              // decoded from picture files, see ImageOptions
  bool augmented = false;            // values depend on ReadPass if ReadPass::augment
  int64_t sample_rate = 0;           // sample rate of sounds in Hz; else 0
  bool measured = true;              // false for categories and constants, which are not standardized
  bool text = false;                 // ReadText returns the text of a sample; Read fails, with `problem`
  // Samples are sequences of different lengths (Dataset::Length) along axis `length_axis` of sample.shape, which has
  // the maximum; Read fills a buffer of any length, padding or truncating the sequence.
  bool variable = false;
  int length_axis = 0;
  // ≥ 0: pictures keep their sizes. Height and width are axes `height_axis` and `height_axis` + 1 of a sample's shape,
  // see Dataset::Extents; `sample` has those of the largest picture.
  int height_axis = -1;
  int64_t size_multiple = 0;  // batches pad height and width to multiples of this; 0: one size
  // Minimum and maximum of integers without the ignore index of labels; nullopt if they are not known without reading
  // all samples.
  std::optional<std::pair<int64_t, int64_t>> bounds = {};
  // Why the column cannot be read ("t.csv: row 7, column 'age': missing value"); "" if it can. Other columns stay
  // usable; Read, Loader::Create and CheckLabels fail with this message.
  std::string problem = {};
};

// Height and width of a picture that keeps its size, and the padded ones in batches.
struct PictureExtents {
  int64_t height = 0, width = 0, padded_height = 0, padded_width = 0;

  bool operator==(const PictureExtents&) const = default;
  bool SamePadded(const PictureExtents& o) const {
    return padded_height == o.padded_height && padded_width == o.padded_width;
  }
};

// A pass over the data. Equal passes read equal values: random augmentation is a function of (seed, epoch, sample).
struct ReadPass {
  bool augment = false;  // apply random augmentation, as in training
  uint64_t seed = 0;
  int64_t epoch = 0;
  const std::atomic<bool>* stop = nullptr;  // once true, the sample is not needed and Read may fail
};

// A table of samples. Immutable after opening; any number of threads may call Read at once.
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
  // Writes samples [first, first + count) of column `c` contiguously to `out`, without augmentation.
  virtual absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const;
  // Returns the text of sample `i`, UTF-8. Requires columns()[c].text.
  virtual absl::StatusOr<std::string> ReadText(int64_t i, int c) const;
  // Returns the length of sample `i` in `variable` columns, which all have the same; for pictures that keep their
  // sizes, a number that orders the sizes; otherwise 0.
  virtual int64_t Length(int64_t i) const { return 0; }
  // Returns the extents of sample `i` in columns with a `height_axis`, which all have the same.
  virtual PictureExtents Extents(int64_t i) const { return {}; }
  // Returns "data.csv: row 17", the prefix of messages about a sample.
  virtual std::string Describe(int64_t i) const = 0;
  // Returns a name of the sample that does not change when samples are added or the data is moved; "" if only its
  // values identify it. Views do not forward it.
  virtual std::string StableName(int64_t i) const { return ""; }
  // Returns true if every epoch (ReadPass::epoch) has other samples, each of which occurs once, in the order of the
  // stream.
  virtual bool streams() const { return false; }
  // Returns what opening the file decided or left out, one line each, for the user. Views do not forward it.
  virtual std::vector<std::string> notes() const { return {}; }
  // Returns the bytes of samples in memory; 0 if they are read from files or generated. Views return those of the
  // source.
  virtual int64_t memory_bytes() const { return 0; }
};

// Returns the type of sample `i` in column `c`.
Type SampleType(const Dataset& data, int64_t i, int c);

// Returns the axis of the shape `sample` that is the column's height_axis; -1 if there is none. `sample` may have axes
// of extent 1 added or removed.
int FindHeightAxis(const Column& column, const Shape& sample);

enum class Header { kAuto, kYes, kNo };

// A set of column names.
struct ColumnSet {
  bool all = false;
  std::set<std::string> names = {};
  bool contains(const std::string& name) const { return all || names.contains(name); }
};

struct DatasetOptions {
  Header header = Header::kAuto;                 // CSV
  std::vector<std::string> label;                // CSV: label columns by name or 0-based index; empty: the last
  std::vector<std::string> class_names;          // CSV: fixed class order, from training; empty: sorted
  std::vector<std::string> folder_classes = {};  // folders per class: fixed class order, from training
  std::string encoding = {};                     // encoding of text files, see DecodeText (text/text_encoding.h)
  ImageOptions images = {};                      // options for picture files
  AudioOptions audio = {};                       // options for sound files
  // CSV: feature columns whose text becomes i64 indices into Column::classes. A column of mostly numbers must be in
  // `names`.
  ColumnSet categories = {};
  // CSV: feature columns in which a missing value becomes NaN, or -1 for categories.
  ColumnSet missing = {};
  // CSV: feature columns, by name or 0-based index, that stay text, which ReadText returns.
  ColumnSet text = {};
  // Labels of tables stay text; folders of pictures and sounds have a text beside each file instead of classes.
  bool text_labels = false;
  // CSV: an unusable field makes Read fail for its sample instead of making its column unusable.
  bool skip_bad = false;
  // Samples per window of a pipe that is read on demand (OpenStdin); 0: the pipe is read to its end.
  int64_t stream_window = 0;
  bool eval_split = false;  // open the evaluation samples of a path that has both parts, such as MNIST's t10k files
  int64_t max_bytes = 0;    // memory limit for samples; 0: half of the available memory
};

// Opens a file, a folder, or "name:path" with the name of a registered source (source.h). Errors name the file, and the
// row or column.
//   npz  one column per array, in the order of the file; all arrays have the same leading extent
//   npy  one column, named after the file
//   idx  columns "image" [28,28] and, if the labels are in the same folder, "label" []
//   csv  one scalar column per column: i64 if all values are integers, else f64; names of labels and categories become
//        i64 indices into its classes. Columns are named "0", "1", … without a header, "#0" if the header names them ""
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options);

// Makes a data set in memory: tensors[c] is column c, [n, …] with the same n > 0 for all. u8 samples of rank ≥ 2 are
// images. Errors begin with `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> InMemoryDataset(const std::string& name,
                                                               std::vector<std::string> columns,
                                                               std::vector<HostTensor> tensors);

// Returns a view of the samples [begin, end). Requires 0 ≤ begin ≤ end ≤ source->size().
std::shared_ptr<const Dataset> SliceDataset(std::shared_ptr<const Dataset> source, int64_t begin, int64_t end);

// A column in memory.
struct NamedTensor {
  std::string name;
  HostTensor tensor;  // [n, sample…]
  std::vector<std::string> classes = {};
  std::string problem = {};
  std::map<int64_t, std::string> unreadable = {};  // sample → why Read fails for it
  std::vector<std::string> texts = {};             // texts of a text column, one per sample; `tensor` is then [n]
  std::string note = {};                           // added to Dataset::notes
};

// Returns the column of an array [n, sample…]. Fails on scalars and n = 0.
absl::StatusOr<Column> MakeColumn(std::string name, const Type& type);

// Makes a data set of columns with the same leading extent; fails, naming them, if they differ. `describe` implements
// Dataset::Describe.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeMemoryDataset(std::vector<NamedTensor> columns,
                                                                 std::function<std::string(int64_t)> describe);

// Base of views: forwards everything to another data set except names and notes.
class DatasetView : public Dataset {
 public:
  explicit DatasetView(std::shared_ptr<const Dataset> source) : source_(std::move(source)) {}
  int64_t size() const override { return source_->size(); }
  const std::vector<Column>& columns() const override { return source_->columns(); }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    return source_->Read(i, c, pass, out);
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override { return source_->ReadText(i, c); }
  int64_t Length(int64_t i) const override { return source_->Length(i); }
  PictureExtents Extents(int64_t i) const override { return source_->Extents(i); }
  std::string Describe(int64_t i) const override { return source_->Describe(i); }
  bool streams() const override { return source_->streams(); }
  int64_t memory_bytes() const override { return source_->memory_bytes(); }

 protected:
  std::shared_ptr<const Dataset> source_;
};

// Returns a view of the samples `rows` of `source`, in that order.
std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows);

struct ConstantColumn {
  std::string name;
  HostTensor sample;  // the value of every sample
};
// Returns a view of `source` with constant columns appended.
std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants);

// Returns a view of `source` with `notes` before its own.
std::shared_ptr<const Dataset> WithNotes(std::shared_ptr<const Dataset> source, std::vector<std::string> notes);

// Returns a view of `source` in which these columns are not images (Column::image).
std::shared_ptr<const Dataset> WithoutPixels(std::shared_ptr<const Dataset> source, const std::vector<int>& columns);

// Returns a view with the columns of `first`, then those of `second` except `leave_out` (-1: none). Both have the same
// number of samples, which are described and named as in `first`.
std::shared_ptr<const Dataset> JoinColumns(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second,
                                           int leave_out);

struct SyntheticColumn {
  std::string name;
  Type sample;
  int64_t low = 0, high = 2;  // integers are uniform in [low, high), a non-empty range within the type
};

// Returns a data set of random samples, each value a function of (seed, column, sample, element): standard normal
// floats, fair bools, uniform integers. Uses Philox4x32-10 with key (seed low ⊕ 0x73796E74, seed high ⊕ column) and
// counter (block low, block high, sample low, sample high); a block has four elements.
std::shared_ptr<const Dataset> SyntheticDataset(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed);

}  // namespace onnxtrain
