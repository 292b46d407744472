#include "backends/cpu/ops/ops.h"

#include <sstream>

#include "backends/cpu/kernels/elementwise.h"
#include "frontend/base/status.h"
#include "frontend/ops/dynamic_code.h"

namespace onnxtrain::cpu {

Attrs ToAttrs(const FusedProgram& program) {
  std::string ops;
  std::vector<int64_t> operands, results(program.results.begin(), program.results.end()), sums;
  std::vector<double> params;
  for (const Instruction& i : program.code) {
    StrAppend(&ops, ops.empty() ? "" : ";", i.entry);
    operands.insert(operands.end(), i.operands.begin(), i.operands.end());
    params.insert(params.end(), i.params.begin(), i.params.end());
  }
  for (const FusedReduction& sum : program.sums)
    sums.insert(sums.end(), {sum.slot, sum.columns, sum.by_column, sum.mean});
  return {{"ops", ops},       {"operands", operands},
          {"params", params}, {"results", results},
          {"sums", sums},     {"num_outputs", static_cast<int64_t>(results.size() + program.sums.size())}};
}

namespace {

int Operands(std::string_view entry) { return entry == "Where" ? 3 : FindBinary(entry) != nullptr ? 2 : 1; }

bool IsKnown(std::string_view entry) {
  return entry == "Where" || FindUnary(entry) != nullptr || FindBinary(entry) != nullptr;
}

absl::Status Check(const FusedProgram& program, size_t inputs) {
  const auto count = static_cast<int>(program.code.size());
  if (count == 0 || count > kMaxInstructions || inputs > kMaxFusedInputs) return Invalid("the chain is too long");
  for (int i = 0; i < count; ++i) {
    const Instruction& in = program.code[i];
    if (!IsKnown(in.entry)) return Invalid("no elementwise function '", in.entry, "'");
    for (int k = 0; k < Operands(in.entry); ++k) {
      if (in.operands[k] < 0 || in.operands[k] >= static_cast<int>(inputs) + i) return Invalid("operand out of range");
    }
  }
  std::vector<int> results = program.results;
  for (const FusedReduction& sum : program.sums) {
    results.push_back(sum.slot);
    if (sum.columns < 1 || !sum.IsCompatibleWith(program.sums[0]))
      return Invalid("sums have different numbers of columns");
  }
  if (program.sums.size() > kMaxFusedReductions) return Invalid("too many sums");
  for (int r : results) {
    if (r < static_cast<int>(inputs) || r >= static_cast<int>(inputs) + count) return Invalid("result out of range");
  }
  return absl::OkStatus();
}

bool CanRotate(const Shape& shape, double size) {
  return size >= 2 && size <= kMaxRotated && !shape.empty() && static_cast<double>(shape.back()) == size &&
         shape.back() % 2 == 0;
}

// Rotated rows must be those of the result, and sums would cut them.
absl::Status CheckRotations(const FusedProgram& program, std::span<const Type* const> inputs, const Shape& shape) {
  for (const Instruction& in : program.code) {
    if (in.entry != kRotateHalves) continue;
    const auto of = static_cast<size_t>(in.operands[0]);
    const bool whole = of >= inputs.size() || inputs[of]->shape == shape;
    if (!whole || !program.sums.empty() || !CanRotate(shape, in.params[0]))
      return Invalid("cannot rotate rows of ", in.params[0], " elements of ", ToString(shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> RotateTypes(const TypeContext& c) {
  const int64_t size = c.attrs.Int("size");
  if (c.in(0).dtype != DType::kFloat32 || !CanRotate(c.in(0).shape, static_cast<double>(size)))
    return Invalid("cannot rotate rows of ", size, " elements of ", ToString(c.in(0)));
  return std::vector<Type>{c.in(0)};
}

absl::StatusOr<std::vector<Type>> FusedTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const FusedProgram program, FromAttrs(c.attrs, c.inputs.size()));
  Shape shape;
  std::vector<DType> dtypes;
  for (const Type* type : c.inputs) {
    if (type == nullptr) return Invalid("an input is missing");
    const auto broadcast = BroadcastShapes(shape, type->shape);
    if (!broadcast) return Invalid("inputs do not broadcast");
    shape = *broadcast;
    dtypes.push_back(type->dtype);
  }
  RETURN_IF_ERROR(CheckRotations(program, c.inputs, shape));
  ASSIGN_OR_RETURN(const std::vector<DType> slots, SlotTypes(program, dtypes));
  std::vector<Type> types;
  for (int r : program.results) types.push_back({slots[r], shape});
  for (const FusedReduction& sum : program.sums) {
    const int64_t size = NumElements(shape);
    if (slots[sum.slot] != DType::kFloat32 || size % sum.columns != 0)
      return Invalid("no sum over ", ToString(Type{slots[sum.slot], shape}));
    types.push_back({DType::kFloat32, {sum.by_column ? sum.columns : size / sum.columns}});
  }
  return types;
}

DType OperandType(std::string_view entry, int k) {
  if (entry == "Cast/bf16-f32") return DType::kBFloat16;
  if (entry == "Cast/f16-f32") return DType::kFloat16;
  return (entry == "Where" && k == 0) || entry == "Cast/bool-f32" ? DType::kBool : DType::kFloat32;
}

DType ResultType(std::string_view entry) {
  if (entry == "Cast/f32-bf16") return DType::kBFloat16;
  if (entry == "Cast/f32-f16") return DType::kFloat16;
  const bool tells =
      entry.starts_with("Is") || entry == "Equal" || entry.starts_with("Less") || entry.starts_with("Greater");
  return tells ? DType::kBool : DType::kFloat32;
}

bool IsCoded(int64_t kind) { return kind != static_cast<int64_t>(CodeKind::kNone); }

// Codes must be u8 and have as many scales as blocks.
absl::Status CheckCodes(const std::vector<int64_t>& loads, std::span<const Type* const> inputs) {
  size_t at = 0;
  for (const int64_t load : loads) {
    const size_t operands = IsCoded(load) ? 2 : 1;
    if (at + operands > inputs.size()) return Invalid("an input is missing");
    for (size_t i = at; i < at + operands; ++i) {
      if (inputs[i] == nullptr) return Invalid("an input is missing");
    }
    if (IsCoded(load) && (inputs[at]->dtype != DType::kUInt8 ||
                          *inputs[at + 1] != Type{DType::kFloat32, {DynamicBlocks(inputs[at]->elements())}}))
      return Invalid("codes ", ToString(*inputs[at]), " beside scales ", ToString(*inputs[at + 1]));
    at += operands;
  }
  return at == inputs.size() ? absl::OkStatus() : Invalid("too many inputs");
}

absl::StatusOr<std::vector<Type>> FusedCodesTypes(const TypeContext& c) {
  const std::vector<int64_t> loads = c.attrs.Ints("loads"), stores = c.attrs.Ints("stores");
  RETURN_IF_ERROR(CheckCodes(loads, c.inputs));
  const Types decoded = GetDecodedInputs(c.attrs, c.inputs);
  std::vector<const Type*> inputs;
  for (const Type& type : decoded) inputs.push_back(&type);
  ASSIGN_OR_RETURN(const Types results, FusedTypes({c.op, inputs, c.attrs}));
  if (results.size() != stores.size()) return Invalid("lists of different lengths");
  const Shape& shape = results[0].shape;
  for (const Type& type : decoded) {
    if (type.elements() != 1 && type.shape != shape) return Invalid("inputs do not have the shape of the results");
  }
  Types types;
  for (size_t i = 0; i < results.size(); ++i) {
    types.push_back(IsCoded(stores[i]) ? Type{DType::kUInt8, shape} : results[i]);
    if (IsCoded(stores[i])) types.push_back({DType::kFloat32, {DynamicBlocks(NumElements(shape))}});
  }
  return types;
}

}  // namespace

Types GetDecodedInputs(const Attrs& attrs, std::span<const Type* const> inputs) {
  Types types;
  size_t at = 0;
  for (const int64_t load : attrs.Ints("loads")) {
    types.push_back(IsCoded(load) ? Type{DType::kFloat32, inputs[at]->shape} : *inputs[at]);
    at += IsCoded(load) ? 2 : 1;
  }
  return types;
}

absl::StatusOr<FusedProgram> FromAttrs(const Attrs& attrs, size_t inputs) {
  FusedProgram program;
  const auto operands = attrs.Ints("operands"), results = attrs.Ints("results"), sums = attrs.Ints("sums");
  const auto params = attrs.Floats("params");
  std::istringstream ops(attrs.String("ops"));
  for (std::string entry; std::getline(ops, entry, ';');) program.code.push_back({.entry = entry});
  const size_t n = program.code.size();
  if (operands.size() != 3 * n || params.size() != 2 * n || sums.size() % 4 != 0)
    return Invalid("lists of different lengths");
  for (size_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) program.code[i].operands[k] = static_cast<int>(operands[3 * i + k]);
    for (int k = 0; k < 2; ++k) program.code[i].params[k] = static_cast<float>(params[2 * i + k]);
  }
  program.results.assign(results.begin(), results.end());
  for (size_t i = 0; i < sums.size(); i += 4) {
    program.sums.push_back({.slot = static_cast<int>(sums[i]),
                            .columns = sums[i + 1],
                            .by_column = sums[i + 2] != 0,
                            .mean = sums[i + 3] != 0});
  }
  RETURN_IF_ERROR(Check(program, inputs));
  return program;
}

int64_t FindRotatedRows(const FusedProgram& program) {
  const auto rotation = std::ranges::find(program.code, kRotateHalves, &Instruction::entry);
  return rotation == program.code.end() ? 0 : static_cast<int64_t>(rotation->params[0]);
}

bool TakesTypes(std::string_view entry, std::span<const DType> operands, DType result) {
  for (size_t k = 0; k < operands.size(); ++k) {
    if (operands[k] != OperandType(entry, static_cast<int>(k))) return false;
  }
  return std::ssize(operands) == Operands(entry) && result == ResultType(entry);
}

absl::StatusOr<std::vector<DType>> SlotTypes(const FusedProgram& program, const std::vector<DType>& inputs) {
  std::vector<DType> types = inputs;
  for (const Instruction& in : program.code) {
    const int operands = Operands(in.entry);
    for (int k = 0; k < operands; ++k) {
      const DType type = types[in.operands[k]];
      if (type != OperandType(in.entry, k)) return Invalid(in.entry, " cannot take ", ToString(type));
    }
    types.push_back(ResultType(in.entry));
  }
  return types;
}

std::vector<OpRow> FusedRows() {
  const std::vector<int64_t> ints;
  const std::vector<AttrSpec> program = {
      {"ops", std::string(), true}, {"operands", ints, true}, {"params", std::vector<double>(), true},
      {"results", ints, true},      {"sums", ints},           {"num_outputs", int64_t{1}, true}};
  std::vector<AttrSpec> with_codes = program;
  with_codes.insert(with_codes.end(), {{"loads", ints, true}, {"stores", ints, true}});
  return {{.name = "cpu.Fused",
           .inputs = {1, kMaxFusedInputs},
           .outputs = kOutputsFromAttr,
           .attrs = program,
           .infer = FusedTypes,
           .elementwise = true},
          {.name = "cpu.FusedCodes",
           .inputs = {1, 2 * kMaxFusedInputs},
           .outputs = kOutputsFromAttr,
           .attrs = with_codes,
           .infer = FusedCodesTypes,
           .overwrites = kAnyInput},
          {.name = kRotateHalves,
           .attrs = {{"size", int64_t{0}, true}, {"negates_second", int64_t{0}}},
           .infer = RotateTypes}};
}

}  // namespace onnxtrain::cpu
