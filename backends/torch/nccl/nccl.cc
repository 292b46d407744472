#include "backends/torch/nccl/nccl.h"

#include <dlfcn.h>

#include "backends/torch/find_symbol.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

bool FindAll(void* library, Nccl* nccl) {
  return FindSymbol(library, "ncclGetErrorString", &nccl->describe) &&
         FindSymbol(library, "ncclGetUniqueId", &nccl->get_unique_id) &&
         FindSymbol(library, "ncclCommInitRank", &nccl->init_rank) &&
         FindSymbol(library, "ncclCommAbort", &nccl->abort) &&
         FindSymbol(library, "ncclCommGetAsyncError", &nccl->get_async_error) &&
         FindSymbol(library, "ncclAllReduce", &nccl->all_reduce) &&
         FindSymbol(library, "ncclBroadcast", &nccl->broadcast) &&
         FindSymbol(library, "ncclAllGather", &nccl->all_gather) && FindSymbol(library, "ncclSend", &nccl->send) &&
         FindSymbol(library, "ncclRecv", &nccl->receive) && FindSymbol(library, "ncclGroupStart", &nccl->group_start) &&
         FindSymbol(library, "ncclGroupEnd", &nccl->group_end);
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
