// Sizes of pictures that keep them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

class PictureFiles;

// Most sizes that pictures are padded to: programs are compiled for each of them.
inline constexpr size_t kMostPictureSizes = 64;

struct SizedPictures {
  std::vector<PictureExtents> extents;  // by sample
  int64_t multiple = 1;                 // of all padded extents
};

// Reads the sizes of all pictures, as they are looked at, from the headers of their files, and chooses the multiple
// that they are padded to. A file that cannot be read gets the least size: reading its sample fails with the reason.
absl::StatusOr<SizedPictures> FindSizes(const PictureSizes& sizes, const PictureFiles& files);

// The padded extents with the most pixels.
PictureExtents LargestExtents(const SizedPictures& pictures);

// "37 sizes from 96 × 64 to 512 × 384, padded to multiples of 32 (12 sizes, 8.1% padding)"
std::string DescribeExtents(const SizedPictures& pictures);

}  // namespace onnxtrain
