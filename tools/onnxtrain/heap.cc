// Configures jemalloc, the heap of the program, and checks its requirements at the start.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

// Options that jemalloc reads (jemalloc(3), TUNING). With more arenas, the program crashes if one cannot be mapped when
// a thread starts. Threads cache small blocks anyway.
extern "C" {
const char* malloc_conf = "narenas:1";
}

namespace onnxtrain::cli {
namespace {

constexpr rlim_t kNeeded = 16 << 20;  // jemalloc maps half of it at its start, and crashes if that fails

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
