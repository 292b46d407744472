/* Makes one call of the file system fail, or kills the process in front of it: for tests, by LD_PRELOAD.
 *
 * Counts calls on checkpoints: those that name a file below ".tmp-" or "step-", or a link "latest" or "best", and those
 * on descriptors that such a call has opened. FAULT_AT=N chooses the N-th, from 1; FAULT=kill, sleep:SECONDS or an
 * errno. With FAULT_COUNT=FILE the number of calls is written there at exit. With FAULT_FREE=N every disk has N free
 * blocks. With FAULT_ROOM=N the disk of a folder has N bytes for what is below the folder. With FAULT_DIRECT=FILE every
 * write that bypasses the page cache fails; their number is written there at exit. With FAULT_SIGNAL=N the process gets
 * signal N when its libraries are initialized. With FAULT_TRUNCATE=FILE this file loses its content once it is mapped.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_FDS 4096

static atomic_int calls, direct_writes;
static atomic_char counted_fds[MAX_FDS];

static int is_counted_name(const char* path) {
  return path != NULL &&
         (strstr(path, ".tmp-") || strstr(path, "step-") || !strcmp(path, "latest") || !strcmp(path, "best") ||
          !strncmp(path, "model.safetensors", 17) || !strncmp(path, "optimizer.safetensors", 21) ||
          !strncmp(path, "model.rank-", 11) || !strncmp(path, "optimizer.rank-", 15) ||
          !strcmp(path, "state.json") || !strcmp(path, "MANIFEST.json"));
}
static int is_counted_fd(int fd) { return fd >= 0 && fd < MAX_FDS && counted_fds[fd]; }
static void remember(int fd, int counted) {
  if (fd >= 0 && fd < MAX_FDS) counted_fds[fd] = (char)counted;
}

/* Is this call to fail? Sets errno. */
static int strike(int counted) {
  const char* at = getenv("FAULT_AT");
  const char* fault = getenv("FAULT");
  if (!counted) return 0;
  const int call = atomic_fetch_add(&calls, 1) + 1;
  if (at == NULL || fault == NULL || call != atoi(at)) return 0;
  if (!strcmp(fault, "kill")) raise(SIGKILL);
  if (!strncmp(fault, "sleep:", 6)) return sleep(atoi(fault + 6)), 0;
  errno = atoi(fault);
  return 1;
}

__attribute__((constructor)) static void signal_early(void) {
  const char* number = getenv("FAULT_SIGNAL");
  if (number != NULL) raise(atoi(number));
}

static void report_number(const char* variable, int number) {
  const char* path = getenv(variable);
  FILE* file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "%d\n", number);
  fclose(file);
}
__attribute__((destructor)) static void report(void) {
  report_number("FAULT_COUNT", calls);
  report_number("FAULT_DIRECT", direct_writes);
}

/* Is this a write that the file system does not support? Sets errno. */
static int refuse_direct(int fd) {
  if (getenv("FAULT_DIRECT") == NULL || !(fcntl(fd, F_GETFL) & O_DIRECT)) return 0;
  atomic_fetch_add(&direct_writes, 1);
  errno = EINVAL;
  return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static mode_t mode_of(int flags, va_list list) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; }

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  const int counted = is_counted_name(path) && (flags & O_CREAT || flags & O_DIRECTORY);
  if (strike(counted)) return -1;
  const int fd = NEXT(openat)(folder, path, flags, mode);
  remember(fd, counted);
  return fd;
}
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  void* data = NEXT(mmap)(address, size, protection, flags, fd, offset);
  const char* path = getenv("FAULT_TRUNCATE");
  struct stat file, mapped;
  if (path != NULL && fd >= 0 && fstat(fd, &mapped) == 0 && stat(path, &file) == 0 && file.st_ino == mapped.st_ino &&
      truncate(path, 0) != 0)
    perror(path);
  return data;
}
ssize_t write(int fd, const void* data, size_t size) {
  if (is_counted_fd(fd) && refuse_direct(fd)) return -1;
  return strike(is_counted_fd(fd)) ? -1 : NEXT(write)(fd, data, size);
}
int fsync(int fd) { return strike(is_counted_fd(fd)) ? -1 : NEXT(fsync)(fd); }
int close(int fd) {
  const int counted = is_counted_fd(fd);
  remember(fd, 0);
  if (strike(counted)) {
    const int error = errno;
    NEXT(close)(fd);
    errno = error;
    return -1;
  }
  return NEXT(close)(fd);
}
int mkdirat(int folder, const char* path, mode_t mode) {
  return strike(is_counted_name(path)) ? -1 : NEXT(mkdirat)(folder, path, mode);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return strike(is_counted_name(from)) ? -1 : NEXT(renameat)(from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return strike(is_counted_name(from)) ? -1 : NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}
int symlinkat(const char* target, int folder, const char* path) {
  return strike(is_counted_name(path)) ? -1 : NEXT(symlinkat)(target, folder, path);
}
int unlinkat(int folder, const char* path, int flags) {
  return strike(is_counted_name(path)) ? -1 : NEXT(unlinkat)(folder, path, flags);
}
static unsigned long used_bytes;
static int add_file(const char* path, const struct stat* info, int kind, struct FTW* place) {
  (void)path, (void)place;
  if (kind == FTW_F) used_bytes += (unsigned long)info->st_size;
  return 0;
}
static unsigned long bytes_below(int folder) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  if (readlink(link, path, sizeof path - 1) < 0) return 0;
  used_bytes = 0;
  nftw(path, add_file, 16, FTW_PHYS);
  return used_bytes;
}

int fstatvfs(int fd, struct statvfs* info) {
  const int result = NEXT(fstatvfs)(fd, info);
  if (getenv("FAULT_ROOM") != NULL) {
    const unsigned long room = strtoul(getenv("FAULT_ROOM"), NULL, 10), used = bytes_below(fd);
    info->f_frsize = 1;
    info->f_bavail = room > used ? room - used : 0;
  }
  if (getenv("FAULT_FREE") != NULL) info->f_bavail = strtoul(getenv("FAULT_FREE"), NULL, 10);
  return result;
}
