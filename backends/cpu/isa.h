// Kernels of our own are compiled once per instruction set: the file NAME.cc includes NAME.leaf.inc through foreach_isa.inc,
// which puts it into one namespace per set, and picks one table of functions when the backend is loaded.
#pragma once

#include <string_view>

namespace onnxtrain::cpu {

enum class Isa { kBase, kAvx2, kAvx512 };

Isa CurrentIsa();  // the best that this processor has
std::string_view NameOf(Isa isa);

template <typename T>
const T& PickIsa(const T& base, const T& avx2, const T& avx512) {
  const Isa isa = CurrentIsa();
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 ? avx2 : base;
}

}  // namespace onnxtrain::cpu

// The object NAME of the leaf that fits this processor.
#define ONNXTRAIN_PICK(NAME) ::onnxtrain::cpu::PickIsa(base::NAME, avx2::NAME, avx512::NAME)
