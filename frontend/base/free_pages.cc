#include "frontend/base/free_pages.h"

#include <malloc.h>
#include <sys/types.h>

#include <string>

// jemalloc's interface (jemalloc(3)); null where the program has another heap.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value, size_t new_size)
    __attribute__((weak));

namespace onnxtrain {
namespace {

constexpr int kMappedBytes = 1 << 20;
constexpr char kPurgeAll[] = "arena.4096.purge";  // MALLCTL_ARENAS_ALL

// Returns pages as soon as they are free.
void DecayAtOnce() {
  ssize_t milliseconds = 0;
  for (const std::string kind : {"dirty", "muzzy"}) {
    const std::string setting = kind + "_decay_ms";
    mallctl(("arenas." + setting).c_str(), nullptr, nullptr, &milliseconds, sizeof milliseconds);  // of later arenas
    unsigned arenas = 0;
    size_t size = sizeof arenas;
    mallctl("arenas.narenas", &arenas, &size, nullptr, 0);
    for (unsigned i = 0; i < arenas; ++i)
      mallctl(("arena." + std::to_string(i) + "." + setting).c_str(), nullptr, nullptr, &milliseconds,
              sizeof milliseconds);
  }
}

}  // namespace

void ReturnFreePages() {
  malloc_trim(0);
  if (mallctl != nullptr) mallctl(kPurgeAll, nullptr, nullptr, nullptr, 0);
}

void KeepFewFreePages() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  if (mallctl != nullptr) DecayAtOnce();
  ReturnFreePages();
}

}  // namespace onnxtrain
