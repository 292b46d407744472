// Bits of integers. Imports: bitwise_import.cc.
#include "frontend/base/status.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

absl::Status RequireInteger(const TypeContext& c) {
  return IsInteger(c.in(0).dtype) ? absl::OkStatus()
                                  : Invalid("input 0 should be of an integer type, got ", ToString(c.in(0)));
}

TypesOr BitwiseTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireInteger(c));
  return BroadcastNumeric(c);
}

TypesOr NotTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireInteger(c));
  return SameAsInput(c);
}

// What is shifted in is 0, so the type must be unsigned.
TypesOr ShiftTypes(const TypeContext& c) {
  const DType dtype = c.in(0).dtype;
  const bool is_unsigned =
      dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
  if (!is_unsigned) return Invalid("input 0 should be of an unsigned integer type, got ", ToString(c.in(0)));
  return BroadcastNumeric(c);
}

int64_t ShiftLeft(int64_t a, int64_t b) {
  return static_cast<uint64_t>(b) > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t ShiftRight(int64_t a, int64_t b) {
  return static_cast<uint64_t>(b) > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
}
double NoFloats(double, double) { return 0; }

template <auto F>
constexpr Evaluate kOnInts = EvalBinary<NoFloats, F>;

OpRow BitRow(std::string_view name, TypeRule infer, Evaluate evaluate, ImportFn onnx = ImportSame) {
  return {.name = name,
          .inputs = {2, 2},
          .infer = infer,
          .grad_status = GradStatus::kZero,
          .evaluate = evaluate,
          .onnx = onnx};
}

}  // namespace

std::span<const OpRow> BitwiseOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>{
        BitRow("BitwiseAnd", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a & b; }>),
        BitRow("BitwiseOr", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a | b; }>),
        BitRow("BitwiseXor", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a ^ b; }>),
        BitRow("ShiftLeft", ShiftTypes, kOnInts<ShiftLeft>, nullptr),
        BitRow("ShiftRight", ShiftTypes, kOnInts<ShiftRight>, nullptr),
        {.name = "BitwiseNot",
         .infer = NotTypes,
         .grad_status = GradStatus::kZero,
         .evaluate = EvalNumeric<[](double x) { return x; }, [](int64_t x) { return ~x; }>,
         .onnx = ImportSame},
    };
    for (OpRow& row : *all) row.elementwise = true;
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain
