// Decodes and resizes pictures for tests/parity/images.py.
//
//   decode_pictures MODE FILE…
//
// MODE: colors (as looked at), indices (of palettes), box:X,Y,W,H:WIDTHxHEIGHT (that part, resized, decoded alone) or
// half:WIDTHxHEIGHT (the whole picture, where a JPEG may be decoded at a part of its size). Writes a line "OK width
// height channels" and the pixels for each file, or "ERROR" and why.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/picture_pipeline.h"

namespace onnxtrain {
namespace {

absl::Status Run(const std::string& mode, const std::string& path, Image* image) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  static PictureDecoder decoder;
  static Image spare;
  ASSIGN_OR_RETURN(const PictureInfo info,
                   decoder.Open({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  if (mode == "colors" || mode == "indices") {
    RETURN_IF_ERROR(decoder.Decode({.indices = mode == "indices"}, image));
    TurnImage(UprightTurn(info.orientation), image, &spare);
    return absl::OkStatus();
  }
  Box box{0, 0, info.width, info.height};
  int width = 0, height = 0;
  const bool part =
      std::sscanf(mode.c_str(), "box:%d,%d,%d,%d:%dx%d", &box.x, &box.y, &box.width, &box.height, &width, &height) == 6;
  if (!part && std::sscanf(mode.c_str(), "half:%dx%d", &width, &height) != 2) return Invalid("unknown mode ", mode);
  RETURN_IF_ERROR(
      decoder.Decode({.part = box, .min_width = part ? 0 : width, .min_height = part ? 0 : height}, &spare));
  Resampler().Resize(spare, info, box, Filter::kBilinear, width, height, image);
  return absl::OkStatus();
}

}  // namespace
}  // namespace onnxtrain

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    onnxtrain::Image image;
    const absl::Status status = onnxtrain::Run(argv[1], argv[i], &image);
    if (!status.ok()) {
      std::cout << "ERROR " << status.message() << "\n";
      continue;
    }
    std::cout << "OK " << image.width << " " << image.height << " " << image.channels << "\n";
    std::cout.write(reinterpret_cast<const char*>(image.pixels.data()),
                    static_cast<std::streamsize>(image.pixels.size()));
  }
}
