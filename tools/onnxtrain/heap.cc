// jemalloc, the heap of the program: how it is set, and what it cannot do without.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

// jemalloc reads it (jemalloc(3), TUNING). With more arenas, one that finds no address space for itself when a thread
// starts is used all the same, and the program crashes. Threads keep small blocks of their own anyway.
extern "C" {
const char* malloc_conf = "narenas:1";
}

namespace onnxtrain::cli {
namespace {

constexpr rlim_t kNeeded = 16 << 20;  // jemalloc takes half of it when it starts, or crashes

// Returns the bytes of this process's address space, or 0 if unknown. Allocates nothing.
rlim_t AddressSpaceTaken() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof(text) - 1);
  close(file);
  return size <= 0 ? 0 : strtoull(text, nullptr, 10) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void CheckAddressSpace(int, char**, char**) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (limit.rlim_cur >= AddressSpaceTaken() + kNeeded) return;
  constexpr std::string_view kMessage = "onnxtrain: error: no address space is left (ulimit -v)\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(1);
}

// Runs before the initializers of libraries, which allocate.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kCheck)(int, char**, char**) = CheckAddressSpace;

}  // namespace
}  // namespace onnxtrain::cli
