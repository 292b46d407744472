// The pictures that make_pictures.py has written.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "frontend/data/image/decode.h"
#include "tests/paths.h"

namespace onnxtrain {

struct RecordedPicture {
  std::string name;
  std::vector<uint8_t> file;
  int width = 0, height = 0, channels = 0;
  std::vector<uint8_t> pixels;  // as looked at
  std::vector<uint8_t> part;    // 7 × 5 pixels of the part (2, 1, 9, 7) of the stored picture
};

inline std::vector<RecordedPicture> ReadRecordedPictures() {
  std::ifstream in(RepoPath("tests/frontend/data/image/pictures.bin"), std::ios::binary);
  std::vector<RecordedPicture> pictures;
  size_t size = 0;
  for (RecordedPicture p; in >> p.name >> size >> p.width >> p.height >> p.channels; pictures.push_back(p)) {
    in.get();
    p.file.resize(size);
    p.pixels.resize(static_cast<size_t>(p.width) * p.height * p.channels);
    p.part.resize(static_cast<size_t>(7) * 5 * p.channels);
    for (auto* bytes : {&p.file, &p.pixels, &p.part})
      in.read(reinterpret_cast<char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  }
  return pictures;
}

}  // namespace onnxtrain
