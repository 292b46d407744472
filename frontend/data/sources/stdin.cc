#include "frontend/data/sources/rows.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// The bytes of standard input that PeekStdin has read ahead.
std::string& Peeked() {
  static auto* const peeked = new std::string;
  return *peeked;
}

absl::Status WaitForInput(const std::atomic<bool>* stop) {
  constexpr int kMilliseconds = 100;
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (true) {
    RETURN_IF_ERROR(CheckCancelled());
    if (stop != nullptr && stop->load()) return absl::CancelledError("nobody waits for the samples");
    const int ready = poll(&input, 1, kMilliseconds);
    if (ready < 0 && errno != EINTR) return Invalid(std::strerror(errno));
    if (ready > 0) return absl::OkStatus();
  }
}

// Reads between one and out.size() bytes, 0 at the end. Blocks; fails with kCancelled once preparations are cancelled
// (frontend/base/cancellation.h) or *stop is set (null: never). Not thread-safe.
absl::StatusOr<size_t> ReadStdin(std::span<std::byte> out, const std::atomic<bool>* stop = nullptr) {
  std::string& peeked = Peeked();
  if (!peeked.empty()) {
    const size_t size = std::min(out.size(), peeked.size());
    std::memcpy(out.data(), peeked.data(), size);
    peeked.erase(0, size);
    return size;
  }
  while (true) {
    RETURN_IF_ERROR(WaitForInput(stop));
    const ssize_t got = read(STDIN_FILENO, out.data(), out.size());
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR && errno != EAGAIN) return Invalid(std::strerror(errno));
  }
}

// Returns the first byte that is not white space without consuming input; '\0' if there is none.
absl::StatusOr<char> PeekStdin() {
  std::string& peeked = Peeked();
  while (true) {
    const size_t first = peeked.find_first_not_of(" \t\r\n");
    if (first != std::string::npos) return peeked[first];
    std::byte more[4096];
    // Appends to the bytes that were read ahead.
    std::string before = std::move(peeked);
    peeked.clear();
    auto got = ReadStdin(more);
    peeked = std::move(before);
    RETURN_IF_ERROR(got.status());
    if (*got == 0) return '\0';
    peeked.append(reinterpret_cast<const char*>(more), *got);
  }
}

using Window = std::shared_ptr<const Dataset>;

// Reads the lines of standard input in windows. Thread-safe: one thread reads, others get windows that were read.
class LineWindows {
 public:
  explicit LineWindows(int64_t samples) : samples_(samples) {}

  struct Lines {
    int64_t number = 0;  // index of the window
    std::string text;
    int64_t samples = 0, first_row = 1;
  };

  // Returns a window; fails if it was dropped. A window with fewer lines than requested is the last one.
  absl::StatusOr<std::shared_ptr<const Lines>> Get(int64_t number, const std::atomic<bool>* stop) {
    if (auto found = Find(number)) return found;
    std::lock_guard reading(reading_);
    stop_ = stop;
    while (last_ < number) RETURN_IF_ERROR(ReadWindow());
    if (auto found = Find(number)) return found;
    return Invalid("window ", number, " of the samples has been read and forgotten");
  }
  int64_t samples() const { return samples_; }
  // Returns true if the input ended within the first window; valid once that was read.
  bool fits_one() const { return fits_one_; }

 private:
  std::shared_ptr<const Lines> Find(int64_t number) {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(kept_, number, [](const auto& lines) { return lines->number; });
    return found == kept_.end() ? nullptr : *found;
  }

  // Reads a window and one line ahead, to know whether it is the last one. A read that is stopped resumes later.
  absl::Status ReadWindow() {
    while (part_.samples <= samples_ && !ended_) {
      ASSIGN_OR_RETURN(const bool more, reader_.Next(&line_));
      if (!more) ended_ = true;
      if (!more || line_.find_first_not_of(" \t") == std::string::npos) continue;
      if (part_.samples == samples_) return FinishWindow(line_ + "\n");
      part_.text += line_ + "\n";
      ++part_.samples;
    }
    return FinishWindow("");
  }

  absl::Status FinishWindow(const std::string& next) {
    Lines lines = std::exchange(part_, Lines{.text = next, .samples = next.empty() ? 0 : 1});
    part_.first_row = lines.first_row + lines.samples;
    lines.number = ++last_;
    if (last_ == 0) fits_one_ = next.empty();
    std::lock_guard lock(mutex_);
    constexpr size_t kKept = 3;  // including the first one
    if (kept_.size() == kKept) kept_.erase(kept_.begin() + 1);
    kept_.push_back(std::make_shared<const Lines>(std::move(lines)));
    return absl::OkStatus();
  }

  const int64_t samples_;
  std::mutex reading_, mutex_;
  const std::atomic<bool>* stop_ = nullptr;
  LineReader reader_{[this](std::span<std::byte> out) { return ReadStdin(out, stop_); }};
  std::string line_;
  Lines part_;  // window that is being read
  int64_t last_ = -1;
  bool ended_ = false, fits_one_ = false;
  std::vector<std::shared_ptr<const Lines>> kept_;
};

// Returns the windows of standard input, of which there is one per process.
absl::StatusOr<LineWindows*> GetLineWindows(int64_t samples) {
  static auto* const mutex = new std::mutex;
  static LineWindows* windows = nullptr;
  std::lock_guard lock(*mutex);
  if (windows == nullptr) windows = new LineWindows(samples);
  if (windows->samples() != samples) return Invalid("is read in windows of ", windows->samples(), " samples already");
  return windows;
}

class JsonStream : public Dataset {
 public:
  // Numbers are floats, except labels, since integers of the first window may be followed by fractions.
  JsonStream(std::string name, LineWindows* lines, const DatasetOptions& options, Window first)
      : name_(std::move(name)),
        lines_(*lines),
        options_(options),
        columns_(first->columns()),
        first_(std::move(first)) {
    for (Column& column : columns_) {
      column.augmented = true;
      column.bounds.reset();  // holds for the first window only
      if (!column.classes.empty()) options_.class_names = column.classes;
      const bool label = std::ranges::find(options_.label, column.name) != options_.label.end();
      if (!label && IsInteger(column.sample.dtype)) column.sample.dtype = DType::kFloat64;
    }
  }

  int64_t size() const override { return first_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  bool streams() const override { return true; }
  std::string Describe(int64_t i) const override { return StrCat(name_, ": line ", i + 1, " of a window"); }
  int64_t memory_bytes() const override { return 3 * first_->memory_bytes(); }
  std::vector<std::string> notes() const override {
    return {StrCat("a stream: an epoch is a window of ", size(),
                   " samples, whose columns and classes are those of the first one")};
  }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    ASSIGN_OR_RETURN(const Window window, GetWindow(pass));
    const std::vector<Column>& columns = window->columns();
    const auto column = std::ranges::find(columns, columns_[c].name, &Column::name);
    if (column == columns.end()) return Invalid(name_, ": column '", columns_[c].name, "' is missing in a window");
    if (!column->problem.empty()) return Invalid(column->problem);
    const auto own = static_cast<int>(column - columns.begin());
    if (column->sample == columns_[c].sample) return window->Read(i, own, out);
    return ReadConverted(*window, i, own, columns_[c], out);
  }

 private:
  struct Parsed {
    int64_t number;
    Window samples;
  };

  absl::Status ReadConverted(const Dataset& window, int64_t i, int own, const Column& wanted,
                             std::span<std::byte> out) const {
    const Type& type = window.columns()[own].sample;
    if (type.shape != wanted.sample.shape)
      return Invalid(name_, ": column '", wanted.name, "' is ", ToString(wanted.sample), " at first and ",
                     ToString(type), " later");
    std::vector<std::byte> raw(type.bytes());
    RETURN_IF_ERROR(window.Read(i, own, raw));
    return Annotate(ConvertValues(type.dtype, raw, wanted.sample.dtype, out.data(), 1),
                    StrCat(window.Describe(i), ", column '", wanted.name, "': "));
  }

  absl::StatusOr<Window> GetWindow(const ReadPass& pass) const {
    if (Window found = Find(pass.epoch)) return found;
    std::lock_guard parsing(parsing_);
    if (Window found = Find(pass.epoch)) return found;
    ASSIGN_OR_RETURN(const auto lines, lines_.Get(pass.epoch, pass.stop));
    if (lines->samples < size())
      return absl::OutOfRangeError(StrCat(name_, ": ended after ", lines->first_row - 1 + lines->samples, " samples"));
    ASSIGN_OR_RETURN(Window window, Parse(*lines, name_, options_));
    constexpr size_t kKept = 2;
    std::lock_guard lock(mutex_);
    if (windows_.size() == kKept) windows_.erase(windows_.begin());
    windows_.push_back({pass.epoch, window});
    return window;
  }

  Window Find(int64_t number) const {
    if (number == 0) return first_;
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(windows_, number, &Parsed::number);
    return found != windows_.end() ? found->samples : nullptr;
  }

 public:
  static absl::StatusOr<Window> Parse(const LineWindows::Lines& lines, const std::string& name,
                                      const DatasetOptions& options) {
    const std::string place = lines.first_row == 1 ? name : StrCat(name, " from sample ", lines.first_row, " on");
    const ReadFn read = [rest = std::as_bytes(std::span(lines.text))](std::span<std::byte> out) mutable {
      const size_t size = std::min(out.size(), rest.size());
      std::copy_n(rest.begin(), size, out.begin());
      rest = rest.subspan(size);
      return absl::StatusOr<size_t>(size);
    };
    return ReadJsonLines(place, read, options);
  }

 private:
  std::string name_;
  LineWindows& lines_;
  DatasetOptions options_;
  std::vector<Column> columns_;
  const Window first_;
  mutable std::mutex parsing_, mutex_;
  mutable std::vector<Parsed> windows_;  // the last two windows
};

// Returns the last key of the first line, the default label.
std::string LastKey(const std::string& lines) {
  const auto json = ParseJsonObject(lines.substr(0, lines.find('\n')));
  return json.ok() && !json->empty() ? std::prev(json->end()).key() : "";
}

// Opens standard input as a stream of windows of `options.stream_window` samples. The data set has the size of a
// window: pass e of Dataset::Read sees window e, which is read on demand. Only the first window and the last two are
// kept. So an epoch is a window, which the loader shuffles. Columns, shapes and classes are those of the first window.
// If the input ends within it, returns an ordinary data set in memory.
//
// Read fails with kOutOfRange if the input ended before the window is full, and with kCancelled if ReadPass::stop is
// set while it waits. May be called several times; each data set starts at the first window.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenJsonStream(const std::string& name, const DatasetOptions& options) {
  auto windows = GetLineWindows(options.stream_window);
  if (!windows.ok()) return Annotate(windows.status(), StrCat(name, ": "));
  const auto lines = (*windows)->Get(0, nullptr);
  if (!lines.ok()) return Annotate(lines.status(), StrCat(name, ": "));
  ASSIGN_OR_RETURN(Window first, JsonStream::Parse(**lines, name, options));
  if ((*windows)->fits_one()) return first;
  DatasetOptions later = options;
  if (later.label.empty()) later.label = {LastKey((*lines)->text)};
  return std::make_shared<JsonStream>(name, *windows, later, std::move(first));
}

constexpr std::string_view kNpy = "\x93NUMPY";

// Reads until `out` is full or the input ends.
absl::StatusOr<size_t> ReadDescriptor(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    ASSIGN_OR_RETURN(const size_t got, ReadStdin(out.subspan(done)));
    if (got == 0) break;
    done += got;
  }
  return done;
}

// Reads all of standard input and keeps it, since a data set is opened several times (to find its label, to split it).
absl::StatusOr<const std::string*> ReadOnce(int64_t limit) {
  static auto* mutex = new std::mutex;
  static auto* bytes = new absl::StatusOr<std::string>(absl::UnknownError(""));
  std::lock_guard lock(*mutex);
  if (absl::IsUnknown(bytes->status())) *bytes = ReadAll(ReadDescriptor, limit);
  RETURN_IF_ERROR(bytes->status());
  return &**bytes;
}

ReadFn MakeReader(const std::string& bytes) {
  return [rest = std::as_bytes(std::span(bytes))](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    const size_t size = std::min(out.size(), rest.size());
    std::copy_n(rest.begin(), size, out.begin());
    rest = rest.subspan(size);
    return size;
  };
}

absl::StatusOr<std::shared_ptr<const Dataset>> ReadArrays(const std::string& name, const std::string& bytes) {
  std::vector<NamedTensor> columns;
  const ReadFn read = MakeReader(bytes);
  for (int64_t rest = static_cast<int64_t>(bytes.size()); rest > 0;) {
    auto array = ReadNextNpy(read, &rest);
    if (!array.ok()) return Annotate(array.status(), StrCat("array ", columns.size(), ": "));
    columns.push_back({StrCat(columns.size()), *std::move(array)});
  }
  return MakeMemoryDataset(std::move(columns), [name](int64_t i) { return StrCat(name, ": sample ", i); });
}

}  // namespace

bool IsStdin(const std::string& path) { return path == "-"; }

absl::StatusOr<std::shared_ptr<const Dataset>> OpenBytes(const std::string& name, const std::string& bytes,
                                                         const DatasetOptions& options) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return Invalid(name, ": there are no samples");
  if (bytes[first] == '{') return ReadJsonLines(name, DecodeText(MakeReader(bytes), options.encoding), options);
  if (!bytes.starts_with(kNpy)) return ReadCsv(name, MakeReader(bytes), ',', options);
  auto dataset = ReadArrays(name, bytes);
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenStdin(const std::string&, const DatasetOptions& options) {
  if (options.stream_window > 0) {
    const auto first = PeekStdin();
    if (!first.ok()) return Annotate(first.status(), StrCat(kStdinName, ": "));
    if (*first == '{') return OpenJsonStream(kStdinName, options);
  }
  const auto bytes = ReadOnce(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit());
  if (!bytes.ok())
    return Annotate(bytes.status(), StrCat(kStdinName, ", which is read to its end before training (JSON lines with ",
                                           "`max_steps` and without `epochs` are read as they come): "));
  return OpenBytes(kStdinName, **bytes, options);
}

}  // namespace onnxtrain
