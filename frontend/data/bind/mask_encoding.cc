#include "frontend/data/bind/mask_encoding.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <optional>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

constexpr int kWhite = 255, kNearlyWhite = 240, kNearlyBlack = 15, kMiddle = 128;
// Numbers of non-empty samples after which the search stops: few suffice for class indices; for masks in black and
// white more are read. A later exception is an error of its sample.
constexpr int64_t kEnoughClasses = 64, kEnoughBlackAndWhite = 1000;

constexpr std::string_view kNames[] = {"classes", "black and white", "greys"};

// Counts pixels by value.
class Histogram {
 public:
  void Add(std::span<const uint8_t> pixels) {
    for (const uint8_t p : pixels) ++counts_[p];
  }
  MaskEncoding FindEncoding() const {
    const int64_t all = Count(0, kWhite), white = Count(kNearlyWhite, kWhite);
    if (white == 0) return MaskEncoding::kClasses;
    if (counts_[0] + counts_[kWhite] == all) return MaskEncoding::kBlackAndWhite;
    const int64_t sharp = white + Count(0, kNearlyBlack);
    const bool greys = Count(kNearlyWhite, kWhite - 1) > 0 && sharp >= all / 10 * 9;
    return greys ? MaskEncoding::kGreys : MaskEncoding::kClasses;
  }

 private:
  int64_t Count(int first, int last) const {
    return std::accumulate(counts_.begin() + first, counts_.begin() + last + 1, int64_t{0});
  }
  std::array<int64_t, kWhite + 1> counts_ = {};
};

// Returns the first value that is neither 0 nor 255.
template <typename T>
std::optional<double> FindOther(std::span<const T> values) {
  const auto other = [](const T stored) {
    const auto x = ReadScalar(stored);
    return x != decltype(x)(0) && static_cast<double>(x) != kWhite;
  };
  const auto found = std::ranges::find_if(values, other);
  return found == values.end() ? std::nullopt : std::optional(static_cast<double>(ReadScalar(*found)));
}

template <typename T>
std::span<T> ViewAs(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Detects the encoding of a column from the samples that are added.
class MaskEncodingFinder {
 public:
  explicit MaskEncodingFinder(const Column& column) : dtype_(column.sample.dtype), picture_(column.picture) {}

  void Add(std::span<std::byte> sample) {
    if (dtype_ == DType::kUInt8) {
      const auto pixels = ViewAs<uint8_t>(sample);
      histogram_.Add(pixels);
      if (std::ranges::any_of(pixels, [](uint8_t p) { return p != 0; })) ++nonempty_;
      return;
    }
    Visit(dtype_, [&]<typename T>(Tag<T>) {
      const std::span<const T> values = ViewAs<T>(sample);
      others_ = others_ || FindOther(values).has_value();
      const bool white = std::ranges::any_of(values, [](T v) { return static_cast<double>(ReadScalar(v)) == kWhite; });
      white_ = white_ || white;
      nonempty_ += white ? 1 : 0;
    });
  }
  MaskEncoding FindEncoding() const {
    if (dtype_ != DType::kUInt8) return white_ && !others_ ? MaskEncoding::kBlackAndWhite : MaskEncoding::kClasses;
    const MaskEncoding encoding = histogram_.FindEncoding();
    return encoding == MaskEncoding::kGreys && !picture_ ? MaskEncoding::kClasses : encoding;
  }
  // Returns true if further samples would not change the result.
  bool Decided() const {
    return others_ || nonempty_ >= kEnoughBlackAndWhite ||
           (nonempty_ >= kEnoughClasses && FindEncoding() == MaskEncoding::kClasses);
  }

 private:
  DType dtype_;
  bool picture_;
  Histogram histogram_;
  int64_t nonempty_ = 0;
  bool others_ = false, white_ = false;
};

class MaskClasses : public DatasetView {
 public:
  MaskClasses(std::shared_ptr<const Dataset> source, const std::map<int, MaskEncoding>& encodings)
      : DatasetView(std::move(source)), encodings_(encodings), columns_(source_->columns()) {
    for (const auto& [c, encoding] : encodings_) columns_[c].bounds = {0, 1};
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    RETURN_IF_ERROR(source_->Read(i, c, pass, out));
    const auto encoding = encodings_.find(c);
    if (encoding == encodings_.end()) return absl::OkStatus();
    return Visit(columns_[c].sample.dtype, [&]<typename T>(Tag<T>) -> absl::Status {
      const std::span<T> values = ViewAs<T>(out);
      if (encoding->second == MaskEncoding::kBlackAndWhite) {
        if (const auto other = FindOther<T>(values))
          return Invalid(Describe(i), ", column '", columns_[c].name, "': ", *other, " in a mask of 0 and 255");
      }
      if constexpr (std::is_arithmetic_v<T>) {
        for (T& value : values) value = value >= static_cast<T>(kMiddle) ? 1 : 0;
      }
      return absl::OkStatus();
    });
  }

 private:
  std::map<int, MaskEncoding> encodings_;
  std::vector<Column> columns_;
};

// Returns true for arithmetic types that can hold 255.
bool MayHoldWhite(DType dtype) {
  return Visit(dtype, []<typename T>(Tag<T>) { return std::is_arithmetic_v<T> && !std::is_same_v<T, int8_t>; });
}

}  // namespace

std::string ToString(MaskEncoding encoding) { return std::string(kNames[static_cast<size_t>(encoding)]); }

absl::StatusOr<MaskEncoding> ParseMaskEncoding(const std::string& text) {
  const auto found = std::ranges::find(kNames, text);
  if (found == std::end(kNames)) return Invalid("no mask is of '", Printable(text), "'");
  return static_cast<MaskEncoding>(found - std::begin(kNames));
}

absl::StatusOr<MaskEncoding> FindMaskEncoding(const Dataset& data, int column, bool skip_bad) {
  const Column& c = data.columns()[column];
  const bool mask = c.sample.rank() >= 2 && !c.text && !c.variable && c.problem.empty() && !data.streams();
  if (!mask || IsStorage(c.sample.dtype) || !MayHoldWhite(c.sample.dtype)) return MaskEncoding::kClasses;
  MaskEncodingFinder finder(c);
  std::vector<std::byte> sample;
  for (int64_t i = 0; i < data.size() && !finder.Decided(); ++i) {
    sample.resize(SampleType(data, i, column).bytes());
    const absl::Status read = data.Read(i, column, sample);
    if (read.ok()) finder.Add(sample);
    if (!read.ok() && !skip_bad) return read;
  }
  return finder.FindEncoding();
}

std::shared_ptr<const Dataset> WithMaskClasses(std::shared_ptr<const Dataset> source,
                                               const std::map<int, MaskEncoding>& columns) {
  if (columns.empty()) return source;
  return std::make_shared<MaskClasses>(std::move(source), columns);
}

}  // namespace onnxtrain
