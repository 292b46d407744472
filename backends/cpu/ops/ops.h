// Operators of this backend alone, which lowering inserts (README.md lists them), and what builds and reads them.
#pragma once

#include <vector>

#include "backends/cpu/runtime/kernel.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

using Types = std::vector<Type>;
using TypesOr = absl::StatusOr<Types>;

// Adds the rows of these operators to the table. Idempotent.
void RegisterCpuOps();

// The families of rows.
std::vector<OpRow> AttentionRows();
std::vector<OpRow> FusedRows();
std::vector<OpRow> LayerNormRows();
std::vector<OpRow> LayoutRows();

// "MatMul" of "cpu.MatMul".
std::string_view BaseName(std::string_view op);
// The row of an operator of this backend with the traits of the operator without "cpu.", and more optional inputs and
// attributes.
OpRow FormOf(std::string_view name, TypeRule infer, int more_inputs = 0, std::vector<AttrSpec> more_attrs = {});

// Element types of factors.
bool IsMultiplied(DType dtype);

// The bytes of x as a tensor of that type: x itself, a Reshape or a cpu.View.
Val Reinterpret(Val x, const Type& type);

// Row-major [N,C,…] stored channels last, and back.
Val ToNhwc(Val x);
Val ToNchw(Val x);

// Returns the index of the mask among the inputs of Attention, AttentionGrad or their cpu variants. The mask is not
// permuted.
size_t MaskIndex(std::string_view op);

// An operand in the axes of Attention (batch…, rows, columns).
struct StridedType {
  Shape shape, strides;
};

// The inputs to the mask (a scalar where there is none), then the outputs, of cpu.Attention or cpu.AttentionGrad.
std::vector<StridedType> GetHeadOperands(const KernelContext& c);

}  // namespace onnxtrain::cpu
