#include "frontend/data/image/picture_dataset.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/load/cache.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

// Limit on the number of padded sizes, since a program is compiled for each.
constexpr size_t kMaxPictureSizes = 64;

struct SizedPictures {
  std::vector<PictureExtents> extents;  // extents of each sample
  int64_t multiple = 1;                 // divides all padded extents
};

constexpr size_t kStartBytes = size_t{1} << 16;  // contains the header of most files

using Size = std::pair<int64_t, int64_t>;

absl::StatusOr<PictureInfo> ReadInfo(const MediaFiles& files, int64_t i, PictureDecoder* decoder,
                                     std::vector<uint8_t>* bytes) {
  RETURN_IF_ERROR(files.ReadStart(i, kStartBytes, bytes));
  auto info = decoder->Open(*bytes);
  if ((info.ok() && info->complete) || bytes->size() < kStartBytes) return info;
  RETURN_IF_ERROR(files.Read(i, bytes));
  return decoder->Open(*bytes);
}

PictureExtents Upright(const PictureInfo& info) {
  const bool transpose = UprightTurn(info.orientation).transpose;
  return {.height = transpose ? info.width : info.height, .width = transpose ? info.height : info.width};
}

int64_t Area(const PictureExtents& e) { return e.height * e.width; }

int64_t RoundUp(int64_t extent, int64_t multiple) { return (extent + multiple - 1) / multiple * multiple; }

// The multiples that heights and widths are padded to.
struct Multiples {
  int64_t height = 1, width = 1;
};
Multiples PaddedMultiples(const PictureSizes& sizes, int64_t multiple) {
  return {sizes.height > 0 ? 1 : multiple, multiple};
}

std::set<Size> PaddedSizes(const std::vector<PictureExtents>& extents, const Multiples& m) {
  std::set<Size> sizes;
  for (const PictureExtents& e : extents) sizes.emplace(RoundUp(e.height, m.height), RoundUp(e.width, m.width));
  return sizes;
}

std::string SizeText(const Size& size) { return StrCat(size.first, " × ", size.second); }

// Returns the size of the sample of a picture; 0 × 0 if the file cannot be read.
PictureExtents ReadExtents(const PictureSizes& sizes, const MediaFiles& files, int64_t i, PictureDecoder* decoder,
                           std::vector<uint8_t>* bytes) {
  const auto info = ReadInfo(files, i, decoder, bytes);
  if (!info.ok()) return {};
  const PictureExtents own = Upright(*info);
  const auto [width, height] = SampleSize(static_cast<int>(own.width), static_cast<int>(own.height), sizes);
  return {.height = height, .width = width};
}

// Sets the size of unreadable pictures to that of the smallest one.
void FillUnknown(std::vector<PictureExtents>* extents) {
  const auto area = [](const PictureExtents& e) {
    return e.height > 0 ? Area(e) : std::numeric_limits<int64_t>::max();
  };
  PictureExtents least = *std::ranges::min_element(*extents, {}, area);
  if (least.height == 0) least = {.height = 1, .width = 1};
  for (PictureExtents& e : *extents) {
    if (e.height == 0) e = least;
  }
}

// Reads the upright sizes of all pictures from their headers and chooses the multiple that they are padded to. A file
// that cannot be read gets the smallest size; reading its sample fails with the reason.
absl::StatusOr<SizedPictures> FindSizes(const PictureSizes& sizes, const MediaFiles& files) {
  PictureDecoder decoder;
  std::vector<uint8_t> bytes;
  SizedPictures found{.multiple = sizes.multiple};
  for (int64_t i = 0; i < files.size(); ++i) found.extents.push_back(ReadExtents(sizes, files, i, &decoder, &bytes));
  FillUnknown(&found.extents);
  if (sizes.multiple == 0) {
    ASSIGN_OR_RETURN(found.multiple, sizes.find_multiple());
    if (sizes.height > 0)
      found.multiple = RoundUp((sizes.height + 1) / 2, found.multiple);  // few widths, little padding
    while (PaddedSizes(found.extents, PaddedMultiples(sizes, found.multiple)).size() > kMaxPictureSizes)
      found.multiple *= 2;
  }
  const Multiples multiples = PaddedMultiples(sizes, found.multiple);
  for (PictureExtents& e : found.extents) {
    e.padded_height = RoundUp(e.height, multiples.height);
    e.padded_width = RoundUp(e.width, multiples.width);
  }
  return found;
}

// Returns the padded extents with the most pixels.
PictureExtents LargestExtents(const SizedPictures& pictures) {
  return *std::ranges::max_element(pictures.extents, {},
                                   [](const auto& e) { return e.padded_height * e.padded_width; });
}

// Returns "37 sizes from 96 × 64 to 512 × 384, padded to multiples of 32 (12 sizes, 8.1% padding)".
std::string DescribeExtents(const SizedPictures& pictures) {
  const std::set<Size> sizes = PaddedSizes(pictures.extents, {});
  const auto area = [](const Size& size) { return size.first * size.second; };
  std::string text = SizeText(*std::ranges::min_element(sizes, {}, area));
  if (sizes.size() > 1)
    text = StrCat(sizes.size(), " sizes from ", text, " to ", SizeText(*std::ranges::max_element(sizes, {}, area)));
  double pixels = 0, all = 0;
  for (const PictureExtents& e : pictures.extents) {
    pixels += static_cast<double>(Area(e));
    all += static_cast<double>(e.padded_height * e.padded_width);
  }
  if (pixels == all) return text;
  std::set<Size> padded_sizes;
  for (const PictureExtents& e : pictures.extents) padded_sizes.emplace(e.padded_height, e.padded_width);
  const size_t padded = padded_sizes.size();
  return StrCat(text, ", padded to multiples of ", pictures.multiple, " (", padded, padded == 1 ? " size" : " sizes",
                absl::StrFormat(", %.1f%% padding)", 100 * (1 - pixels / all)));
}

Column DescribeColumn(const PictureColumn& p, const PictureExtents& extents) {
  const bool mask = p.kind == PictureKind::kMask, sized = p.options.sizes.has_value();
  const int64_t height = extents.padded_height, width = extents.padded_width;
  const Type sample = mask ? Type{DType::kUInt8, {height, width}} : p.options.sample(height, width);
  return {.name = p.name,
          .sample = sample,
          .classes = {},
          .image = !mask,
          .picture = true,
          .augmented = p.options.augment.changes_pictures(),
          .measured = !mask,
          .height_axis = !sized                            ? -1
                         : mask || p.options.channels_last ? 0
                                                           : 1};
}

// Returns true if decoded pictures are cached here. Samples that are equal in every pass are cached by CacheInRam.
bool KeepsDecoded(const ImageOptions& o) {
  return o.cache != nullptr && o.augment.changes_pictures() && !o.decode_scaling;
}

class PictureDataset : public Dataset {
 public:
  // `sizes`: set if pictures keep their sizes.
  PictureDataset(std::vector<PictureColumn> pictures, std::optional<SizedPictures> sizes,
                 std::shared_ptr<const Dataset> table, int leave_out, bool describe_by_table,
                 std::vector<std::string> notes)
      : pictures_(std::move(pictures)),
        sizes_(std::move(sizes)),
        table_(std::move(table)),
        describe_by_table_(describe_by_table),
        notes_(std::move(notes)) {
    const ImageOptions& options = pictures_[0].options;
    PictureExtents extents{.padded_height = options.height, .padded_width = options.width};
    if (sizes_.has_value()) extents = LargestExtents(*sizes_);
    for (const PictureColumn& p : pictures_) {
      columns_.push_back(DescribeColumn(p, extents));
      columns_.back().size_multiple = sizes_.has_value() ? sizes_->multiple : 0;
      decoded_.push_back(KeepsDecoded(p.options) ? std::make_unique<Decoded>(p.files->size()) : nullptr);
      CHECK_EQ(p.files->size(), pictures_[0].files->size());
    }
    if (table_ == nullptr) return;
    CHECK_EQ(table_->size(), size());
    for (int c = 0; c < static_cast<int>(table_->columns().size()); ++c) {
      if (c == leave_out) continue;
      columns_.push_back(table_->columns()[c]);
      places_.push_back(c);
    }
  }

  int64_t size() const override { return pictures_[0].files->size(); }
  PictureExtents Extents(int64_t i) const override { return sizes_ ? sizes_->extents[i] : PictureExtents(); }
  int64_t Length(int64_t i) const override {
    const PictureExtents e = Extents(i);
    return (e.padded_height * e.padded_width) << 16 | e.padded_height;
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return pictures_[0].files->Name(i); }
  std::vector<std::string> notes() const override { return notes_; }
  int64_t memory_bytes() const override { return table_ != nullptr ? table_->memory_bytes() : 0; }
  std::string Describe(int64_t i) const override {
    return describe_by_table_ ? table_->Describe(i) : pictures_[0].files->Describe(i);
  }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const auto own = static_cast<int>(pictures_.size());
    if (c >= own) return table_->Read(i, places_[c - own], pass, out);
    const PictureColumn& p = pictures_[c];
    absl::Status status =
        decoded_[c] != nullptr ? ReadDecoded(p, decoded_[c].get(), pass, i, out) : ReadFile(p, pass, i, out);
    if (status.ok()) return status;
    return Annotate(status,
                    StrCat(describe_by_table_ ? StrCat(table_->Describe(i), ": ") : "", p.files->Describe(i), ": "));
  }

  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    const auto own = static_cast<int>(pictures_.size());
    return c < own ? Dataset::ReadText(i, c) : table_->ReadText(i, places_[c - own]);
  }

 private:
  using Decoded = SampleCache<DecodedPicture>;

  static absl::Status ReadFile(const PictureColumn& p, const ReadPass& pass, int64_t i, std::span<std::byte> out) {
    thread_local std::vector<uint8_t> bytes;
    RETURN_IF_ERROR(p.files->Read(i, &bytes));
    return PicturePipeline::ForThisThread().Run(bytes, p.options, p.kind, pass, i, out);
  }
  // Decodes the whole picture at the first read and caches it while the budget lasts.
  static absl::Status ReadDecoded(const PictureColumn& p, Decoded* kept, const ReadPass& pass, int64_t i,
                                  std::span<std::byte> out) {
    PicturePipeline& pipeline = PicturePipeline::ForThisThread();
    if (const DecodedPicture* picture = kept->Find(i)) return pipeline.Run(*picture, p.options, p.kind, pass, i, out);
    thread_local std::vector<uint8_t> bytes;
    thread_local DecodedPicture decoded;
    RETURN_IF_ERROR(p.files->Read(i, &bytes));
    RETURN_IF_ERROR(pipeline.Decode(bytes, p.options, p.kind, &decoded));
    if (p.options.cache->Take(std::ssize(decoded.image.pixels)))
      kept->Keep(i, std::make_unique<const DecodedPicture>(decoded));
    return pipeline.Run(decoded, p.options, p.kind, pass, i, out);
  }

  std::vector<PictureColumn> pictures_;
  std::optional<SizedPictures> sizes_;
  std::vector<std::unique_ptr<Decoded>> decoded_;  // one cache per picture column; null: no cache
  std::shared_ptr<const Dataset> table_;
  bool describe_by_table_;
  std::vector<std::string> notes_;
  std::vector<Column> columns_;
  std::vector<int> places_;  // indices of the other columns in the table
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> MakePictureDataset(const std::string& name,
                                                                  std::vector<PictureColumn> pictures,
                                                                  std::shared_ptr<const Dataset> table, int leave_out,
                                                                  bool describe_by_table,
                                                                  std::vector<std::string> notes) {
  const ImageOptions& options = pictures[0].options;
  std::optional<SizedPictures> sizes;
  if (options.sizes.has_value()) {
    auto found = FindSizes(*options.sizes, *pictures[0].files);
    if (!found.ok()) return Annotate(found.status(), name + ": ");
    sizes = *std::move(found);
    for (PictureColumn& p : pictures) p.options.sizes->find_multiple = nullptr;  // captures may not outlive this call
    const std::string kept = options.sizes->height > 0 ? "aspect ratios" : "sizes";
    notes.push_back(
        StrCat("pictures keep their ", kept, ": ", DescribeExtents(*sizes), " (`image_size` N makes them one size)"));
  } else if (options.width == 0) {
    return Invalid(name, ": ", options.problem.empty() ? "the size of a sample is not known" : options.problem);
  }
  return std::make_shared<PictureDataset>(std::move(pictures), std::move(sizes), std::move(table), leave_out,
                                          describe_by_table, std::move(notes));
}

}  // namespace onnxtrain
