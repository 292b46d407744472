#include "backends/cpu/runtime/free_lists.h"

#include <omp.h>

#include <array>
#include <cstddef>
#include <memory>

namespace onnxtrain::cpu {
namespace {

// Of glibc's lists (tcache): how many there are, the sizes between them and how many blocks one takes.
constexpr size_t kLists = 64, kStep = 16, kBlocks = 7;
constexpr size_t kHeader = sizeof(size_t);  // of a block, of which it is part

void FillOwnFreeLists() {
  for (size_t list = 1; list <= kLists; ++list) {
    std::array<std::unique_ptr<std::byte[]>, kBlocks> blocks;
    for (auto& block : blocks) block.reset(new std::byte[(list + 1) * kStep - kHeader]);
  }
}

}  // namespace

void FillFreeLists() {
#pragma omp parallel
  FillOwnFreeLists();
}

}  // namespace onnxtrain::cpu
