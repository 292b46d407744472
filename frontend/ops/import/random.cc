#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// Fails for ONNX's own test cases, whose random numbers only their generator can reproduce.
absl::Status RefuseInConformance(const ImportContext& c) {
  if (c.conformance) return Unsupported("repeating another implementation's random numbers");
  return absl::OkStatus();
}

// Returns the ratio: an attribute before version 12, input 1 since.
absl::StatusOr<double> DropoutRatio(ImportContext& c) {
  if (c.attrs().Has(kOwnRatio)) return c.attrs().Float(kOwnRatio, 0);
  double ratio = c.attrs().Float("ratio", 0.5);
  if (c.has(1)) {
    ASSIGN_OR_RETURN(const std::vector<double> known, c.KnownDoubles(1, "ratio"));
    if (known.size() != 1) return Invalid("ratio should be one number, got ", known.size());
    ratio = known[0];
  }
  if (c.dropout >= 0) ratio = c.dropout;
  if (!(ratio >= 0 && ratio <= 1)) return Invalid("ratio ", ratio, " is outside [0, 1]");
  return ratio;
}

// Returns true if a test case of ONNX requests training mode. For other files, the import option decides.
absl::StatusOr<bool> FileSaysTraining(ImportContext& c) {
  if (!c.conformance || !c.has(2)) return false;
  ASSIGN_OR_RETURN(const std::vector<int64_t> mode, c.KnownInts(2, "training_mode"));
  return mode.size() == 1 && mode[0] != 0;
}

Val Drop(ImportContext& c, Val x, double ratio) {
  if (ratio == 1) return ZerosLike(x);
  return c.b().Op("Dropout", {x, c.RandomKey()}, {{"ratio", ratio}, {"stream", c.RandomStream()}});
}

ImportOr ImportDropout(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  const bool mask = c.node().used.size() > 1 && c.node().used[1];
  const DType mask_type = mask ? c.since(10, DType::kBool, x.dtype()) : DType::kBool;
  ASSIGN_OR_RETURN(const bool asked, FileSaysTraining(c));
  double ratio = 0;
  if (c.for_training() || asked) {
    ASSIGN_OR_RETURN(ratio, DropoutRatio(c));
  }
  if (ratio == 0) return std::vector<Val>{x, mask ? Expand(c.b().Scalar(mask_type, 1), x.shape()) : Val()};
  RETURN_IF_ERROR(RefuseInConformance(c));
  // Computes the mask by dropping elements of ones with the same stream, which selects the same elements.
  const Val kept = mask ? Cast(Cast(Drop(c, Ones(x, x.shape()), ratio), DType::kBool), mask_type) : Val();
  return std::vector<Val>{Drop(c, x, ratio), kept};
}

struct Drawn {
  Shape shape;
  DType dtype;
};

absl::StatusOr<DType> DTypeAttr(const ImportContext& c, DType otherwise) {
  if (!c.attrs().Has("dtype")) return otherwise;
  const std::optional<DType> dtype = DTypeFromOnnx(c.attrs().Int("dtype"));
  if (!dtype) return Invalid("dtype ", c.attrs().Int("dtype"), " is not supported");
  return *dtype;
}

absl::StatusOr<Drawn> FromShapeAttr(const ImportContext& c) {
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttr(c, DType::kFloat32));
  return Drawn{c.attrs().Ints("shape"), dtype};
}

absl::StatusOr<Drawn> LikeInput(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const DType own = c.in(0).dtype();
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttr(c, IsFloat(own) ? own : DType::kFloat32));
  return Drawn{c.in(0).shape(), dtype};
}

// Ignores the attribute `seed`, since all random numbers derive from the seed of the run.
ImportOr Uniform(ImportContext& c, const Drawn& d) {
  RETURN_IF_ERROR(RefuseInConformance(c));
  return std::vector<Val>{c.b().Op("RandomUniform", {c.RandomKey()},
                                   {{"shape", d.shape},
                                    {"dtype", std::string(ToString(d.dtype))},
                                    {"low", c.attrs().Float("low", 0)},
                                    {"high", c.attrs().Float("high", 1)},
                                    {"stream", c.RandomStream()}})};
}

ImportOr Normal(ImportContext& c, const Drawn& d) {
  RETURN_IF_ERROR(RefuseInConformance(c));
  return std::vector<Val>{c.b().Op("RandomNormal", {c.RandomKey()},
                                   {{"shape", d.shape},
                                    {"dtype", std::string(ToString(d.dtype))},
                                    {"mean", c.attrs().Float("mean", 0)},
                                    {"scale", c.attrs().Float("scale", 1)},
                                    {"stream", c.RandomStream()}})};
}

template <absl::StatusOr<Drawn> (*Of)(const ImportContext&), ImportOr (*Draw)(ImportContext&, const Drawn&)>
ImportOr Import(ImportContext& c) {
  ASSIGN_OR_RETURN(const Drawn drawn, Of(c));
  return Draw(c, drawn);
}

// Imports Bernoulli: 1 with probability x, else 0.
ImportOr ImportBernoulli(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttr(c, c.in(0).dtype()));
  ASSIGN_OR_RETURN(const std::vector<Val> u, Uniform(c, {c.in(0).shape(), c.in(0).dtype()}));
  return std::vector<Val>{Cast(Less(u[0], c.in(0)), dtype)};
}

// Imports Multinomial: draws classes with probabilities softmax(x), as the largest of x + Gumbel noise.
ImportOr ImportMultinomial(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  const Val x = c.in(0);
  const int64_t draws = c.attrs().Int("sample_size", 1);
  if (x.rank() != 2 || x.dim(1) < 1 || draws < 1)
    return Invalid("expected [N,C] and a sample, got ", ToString(x.type()), " and sample_size ", draws);
  ASSIGN_OR_RETURN(const DType dtype, DTypeAttr(c, DType::kInt32));
  ASSIGN_OR_RETURN(const std::vector<Val> u, Uniform(c, {{x.dim(0), draws, x.dim(1)}, x.dtype()}));
  const Val noisy = Reshape(x, {x.dim(0), 1, x.dim(1)}) - Log(-Log(u[0]));
  return std::vector<Val>{Cast(c.b().Op("ArgMax", {noisy}, {{"axis", int64_t{2}}, {"keepdims", int64_t{0}}}), dtype)};
}

}  // namespace

std::span<const OnnxOp> RandomImports() {
  static constexpr OnnxOp ops[] = {
      {"", "Dropout", 1, 3, ImportDropout, {.keeps_classes = true, .takes_numbers = true}},
      {"",
       "RandomUniform",
       0,
       0,
       Import<FromShapeAttr, Uniform>,
       {.type_attr = "dtype", .type_defaults_to_float = true}},
      {"", "RandomNormal", 0, 0, Import<FromShapeAttr, Normal>, {.type_attr = "dtype", .type_defaults_to_float = true}},
      {"", "RandomUniformLike", 1, 1, Import<LikeInput, Uniform>, {.type_attr = "dtype"}},
      {"", "RandomNormalLike", 1, 1, Import<LikeInput, Normal>, {.type_attr = "dtype"}},
      {"", "Bernoulli", 1, 1, ImportBernoulli, {.discrete_outputs = 1}},
      {"", "Multinomial", 1, 1, ImportMultinomial, {.discrete_outputs = 1}},
  };
  return ops;
}

}  // namespace onnxtrain
