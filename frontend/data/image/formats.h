// The formats of pictures: each file NAME.cc has one.
#pragma once

#include <memory>

#include "frontend/data/image/decode.h"

namespace onnxtrain {

std::unique_ptr<PictureReader> MakeJpegReader();
std::unique_ptr<PictureReader> MakePngReader();
std::unique_ptr<PictureReader> MakeWebpReader();
std::unique_ptr<PictureReader> MakeGifReader();
std::unique_ptr<PictureReader> MakeBmpReader();
std::unique_ptr<PictureReader> MakeTiffReader();

// Fails where a header declares no pixels or too many.
absl::Status CheckPixels(int64_t width, int64_t height);

}  // namespace onnxtrain
