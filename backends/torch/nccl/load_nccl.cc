#include <dlfcn.h>

#include "backends/torch/nccl/nccl.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

template <typename F>
bool Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Nccl* nccl) {
  return Find(library, "ncclGetErrorString", &nccl->describe) &&
         Find(library, "ncclGetUniqueId", &nccl->get_unique_id) &&
         Find(library, "ncclCommInitRank", &nccl->init_rank) && Find(library, "ncclCommAbort", &nccl->abort) &&
         Find(library, "ncclCommGetAsyncError", &nccl->get_async_error) &&
         Find(library, "ncclAllReduce", &nccl->all_reduce) && Find(library, "ncclBroadcast", &nccl->broadcast) &&
         Find(library, "ncclAllGather", &nccl->all_gather) && Find(library, "ncclSend", &nccl->send) &&
         Find(library, "ncclRecv", &nccl->receive) && Find(library, "ncclGroupStart", &nccl->group_start) &&
         Find(library, "ncclGroupEnd", &nccl->group_end);
}

}  // namespace

absl::StatusOr<const Nccl*> LoadNccl(std::span<const std::string> folders) {
  constexpr char kName[] = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  for (auto folder = folders.begin(); library == nullptr && folder != folders.end(); ++folder)
    library = dlopen(StrCat(*folder, "/", kName).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(StrCat(kName, " was not found"));
  auto* const nccl = new Nccl;
  if (!FindAll(library, nccl)) return absl::NotFoundError(StrCat(kName, " is too old: version 2.7 or later is needed"));
  return nccl;
}

}  // namespace onnxtrain::aten
