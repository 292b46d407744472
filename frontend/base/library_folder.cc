#include "frontend/base/library_folder.h"

#include <dlfcn.h>

namespace onnxtrain {

std::filesystem::path LibraryFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&LibraryFolder), &info) == 0) return ".";
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace onnxtrain
