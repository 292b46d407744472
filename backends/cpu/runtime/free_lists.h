// Keeps the heap from growing while a program runs.
#pragma once

namespace onnxtrain::cpu {

// Fills the lists of small free blocks that glibc keeps for each thread: the calling thread's and those of the pool
// that SetNumThreads has sized. A block that goes into such a list is not merged with its neighbors.
//
// oneDNN's products for AVX2 take megabytes at aligned addresses and give them back when they end. What lies before
// such an address goes into a list that has room, the hole is then smaller than the next product's request, and the
// heap grows by a product's memory, up to seven times for each size of small blocks. Compiling, and code that oneDNN
// generates for the first product of a kind, take blocks from the lists.
void FillFreeLists();

}  // namespace onnxtrain::cpu
