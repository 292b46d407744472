// Measures how fast samples are loaded from folders of images, for tools/bench/vs_loader.py.
//
//   loader_speed FOLDER SECONDS [scaling]
//
// Applies a random-resized-crop to 224 × 224 and a flip on one thread. Prints samples per second of CPU time.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "frontend/data/sources/dataset.h"

namespace {

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const bool scaling = argc > 3 && argv[3] == std::string_view("scaling");
  const auto data =
      onnxtrain::OpenDataset(argv[1], {.images = {.width = 224,
                                                  .height = 224,
                                                  .decode_scaling = scaling,
                                                  .augment = {.crop_min = 0.08, .crop_max = 1, .flip = 0.5}}});
  if (!data.ok()) {
    std::fprintf(stderr, "%s\n", std::string(data.status().message()).c_str());
    return 1;
  }
  std::vector<std::byte> out((*data)->columns()[0].sample.bytes());
  const double begin = CpuSeconds(), seconds = std::atof(argv[2]);
  int64_t samples = 0;
  for (; samples == 0 || CpuSeconds() - begin < seconds; ++samples) {
    const int64_t size = (*data)->size();
    if (!(*data)->Read(samples % size, 0, {.augment = true, .epoch = samples / size}, out).ok()) return 1;
  }
  std::printf("%.1f\n", static_cast<double>(samples) / (CpuSeconds() - begin));
}
