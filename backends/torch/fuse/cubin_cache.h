// Keeps compiled kernels on disk, for later processes.
#pragma once

#include <optional>
#include <string>

namespace onnxtrain::aten {

// Files in one folder, each with a digest of its bytes, written atomically: processes may share the folder. A cache
// that cannot be read or written is no error: everything is compiled again.
class CubinCache {
 public:
  // Empty: caches nothing.
  explicit CubinCache(std::string folder) : folder_(std::move(folder)) {}

  // $XDG_CACHE_HOME/onnxtrain/kernels, by default in ~/.cache; empty without a home.
  static std::string DefaultFolder();

  // Returns what was stored under the key (hex digits), or nullopt; damaged files count as absent.
  std::optional<std::string> Find(const std::string& key) const;
  void Store(const std::string& key, const std::string& bytes) const;

 private:
  std::string GetPath(const std::string& key) const;

  std::string folder_;
};

}  // namespace onnxtrain::aten
