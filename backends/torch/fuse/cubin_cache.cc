#include "backends/torch/fuse/cubin_cache.h"

#include <cstdlib>
#include <filesystem>
#include <span>

#include "frontend/base/sha256.h"
#include "frontend/base/strings.h"
#include "frontend/base/text_file.h"

namespace onnxtrain::aten {
namespace {

constexpr int64_t kMostBytes = 64 << 20;  // of a file: far beyond a kernel
constexpr size_t kDigestBytes = 64;

std::string Digest(std::string_view bytes) { return Sha256Hex(std::as_bytes(std::span(bytes))); }

}  // namespace

std::string CubinCache::DefaultFolder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return StrCat(cache, "/onnxtrain/kernels");
  return home != nullptr && *home == '/' ? StrCat(home, "/.cache/onnxtrain/kernels") : "";
}

std::string CubinCache::GetPath(const std::string& key) const { return StrCat(folder_, "/", key, ".cubin"); }

std::optional<std::string> CubinCache::Find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto file = ReadTextFile(GetPath(key), kMostBytes);
  if (!file.ok() || file->size() < kDigestBytes) return std::nullopt;
  const std::string bytes = file->substr(kDigestBytes);
  return file->compare(0, kDigestBytes, Digest(bytes)) == 0 ? std::optional(bytes) : std::nullopt;
}

void CubinCache::Store(const std::string& key, const std::string& bytes) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  WriteTextFile(GetPath(key), Digest(bytes) + bytes).IgnoreError();
}

}  // namespace onnxtrain::aten
