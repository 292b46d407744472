// Memory that views of mapped files take.
#pragma once

#include <cstddef>
#include <span>

namespace onnxtrain {

// Releases the resident pages that hold these bytes, if they are in a MappedFile (as IsInMappedFile knows); the next
// access reads them again. Any thread.
void ReleaseMappedPages(std::span<const std::byte> bytes);

}  // namespace onnxtrain
