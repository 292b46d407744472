// Operators of this backend alone, which lowering inserts: README.md lists them.
#pragma once

namespace onnxtrain::cpu {

// Adds the rows of these operators to the table. Idempotent.
void RegisterCpuOps();

}  // namespace onnxtrain::cpu
