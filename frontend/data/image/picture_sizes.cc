#include "frontend/data/image/picture_sizes.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/picture_dataset.h"

namespace onnxtrain {
namespace {

constexpr size_t kStartBytes = size_t{1} << 16;  // most headers end before

using Size = std::pair<int64_t, int64_t>;

absl::StatusOr<PictureInfo> ReadInfo(const PictureFiles& files, int64_t i, PictureDecoder* decoder,
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

std::set<Size> PaddedSizes(const std::vector<PictureExtents>& extents, int64_t multiple) {
  std::set<Size> sizes;
  for (const PictureExtents& e : extents) sizes.emplace(RoundUp(e.height, multiple), RoundUp(e.width, multiple));
  return sizes;
}

std::string SizeText(const Size& size) { return StrCat(size.first, " × ", size.second); }

// 0 × 0: it cannot be read.
PictureExtents ReadExtents(const PictureFiles& files, int64_t i, PictureDecoder* decoder, std::vector<uint8_t>* bytes) {
  const auto info = ReadInfo(files, i, decoder, bytes);
  return info.ok() ? Upright(*info) : PictureExtents();
}

// Gives broken pictures the size of the smallest one.
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

}  // namespace

absl::StatusOr<SizedPictures> FindSizes(const PictureSizes& sizes, const PictureFiles& files) {
  PictureDecoder decoder;
  std::vector<uint8_t> bytes;
  SizedPictures found{.multiple = sizes.multiple};
  for (int64_t i = 0; i < files.size(); ++i) found.extents.push_back(ReadExtents(files, i, &decoder, &bytes));
  FillUnknown(&found.extents);
  if (sizes.multiple == 0) {
    ASSIGN_OR_RETURN(found.multiple, sizes.find_multiple());
    while (PaddedSizes(found.extents, found.multiple).size() > kMostPictureSizes) found.multiple *= 2;
  }
  for (PictureExtents& e : found.extents) {
    e.padded_height = RoundUp(e.height, found.multiple);
    e.padded_width = RoundUp(e.width, found.multiple);
  }
  return found;
}

PictureExtents LargestExtents(const SizedPictures& pictures) {
  return *std::ranges::max_element(pictures.extents, {},
                                   [](const auto& e) { return e.padded_height * e.padded_width; });
}

std::string DescribeExtents(const SizedPictures& pictures) {
  const std::set<Size> sizes = PaddedSizes(pictures.extents, 1);
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
  const size_t padded = PaddedSizes(pictures.extents, pictures.multiple).size();
  return StrCat(text, ", padded to multiples of ", pictures.multiple, " (", padded, padded == 1 ? " size" : " sizes",
                absl::StrFormat(", %.1f%% padding)", 100 * (1 - pixels / all)));
}

}  // namespace onnxtrain
