// Operators of this backend's own, which legalization puts in and which no other part of the program sees.
//
// | operator | inputs → outputs | attributes, meaning |
// |---|---|---|
// | cpu.Fused | x… → y… | a chain of elementwise operators run tile by tile (fused.h). Outputs have the shape that the inputs broadcast to, or are sums over it |
// | cpu.PackWeight | w → u8[bytes] | a matrix in the layout that oneDNN multiplies fastest: rows (of the other operand), k, n, trans (w is [n,k]) |
// | cpu.MatMul | a, w, bias? → y | y = act(a′·w′ + bias): trans_a, trans_b, activation ("", "Relu"), and for a packed w: packed = 1, n |
// | cpu.PackConvWeight | w → u8[bytes] | the weights of a convolution in the blocks that layout describes (kernels/conv.h); group; turned = 1: those of the convolution that gives the gradient of the input |
// | cpu.Conv, cpu.ConvTranspose, cpu.ConvWeightGrad | as without cpu. | over [N,…,C], of f32 or bf16 to f32 or (but for the last) to bf16: to; weights are packed, weight_shape says from what; activation ("", "Relu") |
// | those below | | over f32 or bf16; statistics, scales and biases are f32 |
// | cpu.BatchNorm | x, scale, bias, residual? → y, mean, rstd | over […,C]; the residual is added, then comes activation ("", "Relu") |
// | cpu.BatchNormInference | as without cpu. | over […,C] |
// | cpu.BatchNormAgain | the inputs of cpu.BatchNorm, mean, rstd → y | what that gave, with its attributes |
// | cpu.BatchNormGrad | dy, x, scale, mean, rstd, bias? → dx, dscale, dbias | activation; with "Relu", dy is the gradient behind that, and bias is given |
// | cpu.MaxPool | x → y, u8 | over [N,…,C]; the second output is the number of the maximum in its window |
// | cpu.MaxPoolGrad, cpu.AveragePool, cpu.AveragePoolGrad | as without cpu. | over [N,…,C]; the first has the attributes of its cpu.MaxPool |
// | cpu.Attention, cpu.AttentionGrad | as Attention and AttentionGrad | over transposed operands: perms (attention_ops.h) |
// | cpu.LayerNorm, cpu.LayerNormGrad | scale, …, terms… → … | with sums, dropout and roundings around them (norm_ops.h) |
// | cpu.ReduceSumSquares | x → y | ReduceSum of x² |
#pragma once

namespace onnxtrain::cpu {

// Idempotent.
void RegisterCpuOps();

}  // namespace onnxtrain::cpu
