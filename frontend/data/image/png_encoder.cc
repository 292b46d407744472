#include "frontend/data/image/png_encoder.h"

#include <png.h>

namespace onnxtrain {

std::string EncodePng(std::string_view pixels, int64_t height, int64_t width, int64_t channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(size, '\0');
  if (png_image_write_to_memory(&image, png.data(), &size, 0, pixels.data(), 0, nullptr) == 0) return "";
  png.resize(size);
  return png;
}

}  // namespace onnxtrain
