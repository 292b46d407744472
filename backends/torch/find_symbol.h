// Looks up functions of shared libraries that are loaded at run time.
#pragma once

#include <dlfcn.h>

namespace onnxtrain::aten {

// Stores the address of a function. Returns false if the library lacks it.
template <typename F>
bool FindSymbol(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace onnxtrain::aten
