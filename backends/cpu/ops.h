// Operators of this backend's own, which legalization puts in and which no other part of the program sees.
//
// | operator | inputs → outputs | attributes, meaning |
// |---|---|---|
// | cpu.Fused | x… → y… | a chain of elementwise operators run tile by tile (fused.h). All outputs have the shape that the inputs broadcast to |
// | cpu.PackWeight | w → u8[bytes] | a matrix in the layout that oneDNN multiplies fastest: rows (of the other operand), k, n, trans (w is [n,k]) |
// | cpu.MatMul | a, w, bias? → y | y = act(a′·w′ + bias): trans_a, trans_b, activation ("", "Relu"), and for a packed w: packed = 1, n |
// | cpu.ReduceSumSquares | x → y | ReduceSum of x² |
#pragma once

namespace onnxtrain::cpu {

// Idempotent.
void RegisterCpuOps();

}  // namespace onnxtrain::cpu
