// Functions of libraries that are loaded when they are first needed.
#pragma once

#include <dlfcn.h>

namespace onnxtrain::aten {

// Stores the address of a function; false where the library lacks it.
template <typename F>
bool FindSymbol(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace onnxtrain::aten
