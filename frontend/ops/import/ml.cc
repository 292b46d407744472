// Imports ai.onnx.ml: preprocessing, and linear models as matrix products with trainable weights. Does not support
// trees, support vectors, strings and dictionaries.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;
using Numbers = std::vector<double>;

constexpr std::string_view kDomain = "ai.onnx.ml";
constexpr int64_t kMaxRows = int64_t{1} << 24;  // limit for rows of coefficients

// Returns input i in the result type of these operators: float32, or the type that replaces it in this import; float64
// is kept.
Val AsFloat(ImportContext& c, size_t i) {
  const Val x = c.in(i);
  return IsFloat(x.dtype()) ? x : Cast(x, c.float_type);
}

Val Row(Val like, const Numbers& values) {
  return like.valid()
             ? like.b().Constant(HostTensor::FromDoubles({like.dtype(), {static_cast<int64_t>(values.size())}}, values))
             : Val();
}

// Requires one number per feature (the last axis), or one for all features.
absl::Status CheckPerFeature(Val x, size_t count, std::string_view what) {
  if (count == 1 || (x.rank() > 0 && static_cast<int64_t>(count) == x.dim(-1))) return absl::OkStatus();
  return Invalid(what, " has ", count, " numbers for ", ToString(x.type()));
}

ImportOr ImportScaler(ImportContext& c) {
  const Val x = AsFloat(c, 0);
  const Numbers offset = c.attrs().Floats("offset", {0}), scale = c.attrs().Floats("scale", {1});
  RETURN_IF_ERROR(CheckPerFeature(x, offset.size(), "offset"));
  RETURN_IF_ERROR(CheckPerFeature(x, scale.size(), "scale"));
  return One((x - Row(x, offset)) * Row(x, scale));
}

ImportOr ImportImputer(ImportContext& c) {
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) {
    const Ints imputed = c.attrs().Ints("imputed_value_int64s");
    RETURN_IF_ERROR(CheckPerFeature(x, imputed.size(), "imputed_value_int64s"));
    const HostTensor replaced = HostTensor::FromInts({DType::kInt64, {}}, Ints{c.attrs().Int("replaced_value_int64")});
    return One(Where(Equal(x, Cast(c.b().Constant(replaced), x.dtype())), Cast(c.b().Ints(imputed), x.dtype()), x));
  }
  const Numbers imputed = c.attrs().Floats("imputed_value_floats");
  RETURN_IF_ERROR(CheckPerFeature(x, imputed.size(), "imputed_value_floats"));
  const double replaced = c.attrs().Float("replaced_value_float");
  const Val missing = std::isnan(replaced) ? Unary("IsNaN", x) : Equal(x, replaced);
  return One(Where(missing, Row(x, imputed), x));
}

// Divides each row by its maximum, the sum of its magnitudes or its length. Does not change rows of zeros.
ImportOr ImportNormalizer(ImportContext& c) {
  const Val x = AsFloat(c, 0);
  if (x.rank() < 1) return Invalid("expected rows, got ", ToString(x.type()));
  const std::string norm = c.attrs().String("norm", "MAX");
  Val size;
  if (norm == "MAX") {
    if (x.dim(-1) == 0) return One(x);
    size = ReduceMax(x, {-1});
  } else if (norm == "L1" || norm == "L2") {
    size = ReduceSum(norm == "L1" ? Unary("Abs", x) : x * x, {-1});
  } else {
    return Invalid("norm '", norm, "' is none of MAX, L1, L2");
  }
  size = Where(Equal(size, 0), Number(x, 1), size);
  const Val y = x / (norm == "L2" ? Sqrt(size) : size);
  if (norm == "L1") c.SetLogits(y, c.FindLogits(c.in(0)));
  return One(y);
}

ImportOr ImportBinarizer(ImportContext& c) {
  const Val x = c.in(0);
  if (x.dtype() == DType::kBool) return Invalid("input 0 should be numeric, got ", ToString(x.type()));
  const Val limit = IsFloat(x.dtype()) ? Number(x, c.attrs().Float("threshold"))
                                       : c.b().Scalar(DType::kFloat64, c.attrs().Float("threshold"));
  return One(Cast(Greater(Cast(x, limit.dtype()), limit), x.dtype()));
}

// Concatenates the columns of all inputs, each cut or padded with zeros to its width.
ImportOr ImportFeatureVectorizer(ImportContext& c) {
  const Ints widths = c.attrs().Ints("inputdimensions");
  if (widths.size() != c.num_inputs())
    return Invalid("inputdimensions has ", widths.size(), " numbers for ", c.num_inputs(), " inputs");
  std::vector<Val> parts;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (!c.has(i) || c.in(i).rank() < 1) return Invalid("input ", i, " should have features");
    Val x = AsFloat(c, i);
    const int64_t rows = x.rank() == 1 ? 1 : x.dim(0), columns = rows == 0 ? 0 : x.type().elements() / rows;
    RETURN_IF_ERROR(CheckShape({rows, widths[i]}));
    x = Reshape(x, {rows, columns});
    if (columns > widths[i]) x = Slice(x, 1, 0, widths[i]);
    if (columns < widths[i] && x.valid())
      x = c.b().Op("Pad", {x}, {{"pads", Ints{0, 0, 0, widths[i] - columns}}, {"value", 0.0}});
    parts.push_back(x);
  }
  return One(Concat(parts, 1));
}

// Imports ArrayFeatureExtractor, which gathers columns of the last axis. The result for a vector is a row.
ImportOr ImportArrayFeatureExtractor(ImportContext& c) {
  Val x = c.in(0);
  if (x.rank() < 1 || !IsInteger(c.in(1).dtype()))
    return Invalid("expected features and integer places, got ", ToString(x.type()), " and ", ToString(c.in(1).type()));
  if (x.rank() == 1) x = Reshape(x, {1, x.dim(0)});
  if (const HostTensor* known = c.Known(1)) {
    for (int64_t i = 0; i < known->size(); ++i) {
      if (known->IntAt(i) < 0 || known->IntAt(i) >= x.dim(-1))
        return Invalid("place ", known->IntAt(i), " among ", x.dim(-1), " features");
    }
  }
  const Val index = Reshape(Cast(c.in(1), DType::kInt64), {c.in(1).type().elements()});
  return One(c.b().Op("Gather", {x, index}, {{"axis", int64_t{x.rank() - 1}}}));
}

// Compares x, as [..., 1], with all keys.
Val Matches(Val x, const HostTensor& keys) {
  if (!x.valid()) return Val();
  Shape shape = x.shape();
  shape.push_back(1);
  return Equal(Reshape(x, std::move(shape)), Cast(x.b().Constant(keys.Reshaped({keys.size()})), x.dtype()));
}

ImportOr ImportOneHotEncoder(ImportContext& c) {
  const Ints* categories = c.attrs().Find<Ints>("cats_int64s");
  if (categories == nullptr) return absl::UnimplementedError("categories that are strings");
  return One(Cast(Matches(c.in(0), HostTensor::FromInts(*categories)), c.float_type));
}

// Reads a table from the attribute STEM_int64s (or STEM_int64), STEM_floats or STEM_tensor.
absl::StatusOr<HostTensor> ReadTable(const ImportContext& c, const std::string& stem) {
  const Attrs& a = c.attrs();
  if (const auto* ints = a.Find<Ints>(stem + "_int64s")) return HostTensor::FromInts(*ints);
  if (const auto* floats = a.Find<Numbers>(stem + "_floats")) {
    return HostTensor::FromDoubles({c.float_type, {static_cast<int64_t>(floats->size())}}, *floats);
  }
  if (const HostTensor* tensor = a.Tensor(stem + "_tensor")) return *tensor;
  return absl::UnimplementedError(StrCat(stem, " that are no numbers"));
}

HostTensor DefaultFor(const ImportContext& c, DType dtype) {
  if (const HostTensor* tensor = c.attrs().Tensor("default_tensor"); tensor != nullptr && tensor->size() == 1)
    return tensor->Reshaped({}).CastTo(dtype);
  if (IsFloat(dtype)) return HostTensor::Scalar(dtype, c.attrs().Float("default_float", -0.0));
  return HostTensor::FromInts({DType::kInt64, {}}, Ints{c.attrs().Int("default_int64", -1)}).CastTo(dtype);
}

// Replaces each element, a key, by its value.
ImportOr LookUp(ImportContext& c, const HostTensor& keys, const HostTensor& values) {
  if (keys.size() != values.size() || keys.size() == 0)
    return Invalid(keys.size(), " keys for ", values.size(), " values");
  const Val hits = Cast(Matches(c.in(0), keys), DType::kInt32);
  if (!hits.valid()) return One(Val());
  const int64_t last = hits.rank() - 1;
  const Val place = c.b().Op("ArgMax", {hits}, {{"axis", last}, {"keepdims", int64_t{0}}});
  const Val value =
      c.b().Op("Gather", {c.b().Constant(values.Reshaped({values.size()})), place}, {{"axis", int64_t{0}}});
  const Val found = Cast(ReduceMax(hits, {last}, false), DType::kBool);
  return One(Where(found, value, c.b().Constant(DefaultFor(c, values.dtype()))));
}

ImportOr ImportLabelEncoder(ImportContext& c) {
  ASSIGN_OR_RETURN(const HostTensor keys, ReadTable(c, "keys"));
  ASSIGN_OR_RETURN(const HostTensor values, ReadTable(c, "values"));
  return LookUp(c, keys, values);
}

// Imports CategoryMapper from strings to integers. The opposite direction is not supported.
ImportOr ImportCategoryMapper(ImportContext& c) {
  ASSIGN_OR_RETURN(const HostTensor keys, ReadTable(c, "keys"));
  ASSIGN_OR_RETURN(const HostTensor values, ReadTable(c, "cats"));
  return LookUp(c, keys, values);
}

// Builds x·Wᵀ + b with weights from attributes of the node. `outputs` is the number of rows of coefficients.
absl::StatusOr<Val> Linear(ImportContext& c, int64_t outputs, const Numbers& coefficients, const Numbers& intercepts) {
  Val x = AsFloat(c, 0);
  if (x.rank() == 1) x = Reshape(x, {1, x.dim(0)});
  const auto count = static_cast<int64_t>(coefficients.size());
  if (x.rank() != 2 || outputs < 1 || outputs > kMaxRows || count % outputs != 0 || count / outputs != x.dim(1)) {
    return Invalid(count, " coefficients for ", outputs, " outputs of ", ToString(x.type()));
  }
  if (!intercepts.empty() && static_cast<int64_t>(intercepts.size()) != outputs)
    return Invalid(intercepts.size(), " intercepts for ", outputs, " outputs");
  const Val w =
      c.AttributeWeight("coefficients", HostTensor::FromDoubles({x.dtype(), {outputs, x.dim(1)}}, coefficients));
  const Val y = MatMul(x, w, false, true);
  if (intercepts.empty()) return y;
  return y + c.AttributeWeight("intercepts", HostTensor::FromDoubles({x.dtype(), {outputs}}, intercepts));
}

absl::StatusOr<Val> Linear(ImportContext& c, int64_t outputs) {
  return Linear(c, outputs, c.attrs().Floats("coefficients"), c.attrs().Floats("intercepts"));
}

Val BuildSoftmax(Val x) { return x.valid() ? x.b().Op("Softmax", {x}, {{"axis", int64_t{x.rank() - 1}}}) : Val(); }

// Computes SOFTMAX_ZERO, in which scores of 0 contribute nothing.
Val SoftmaxZero(Val x) {
  const Val largest = ReduceMax(x, {-1}), zero = Less(Unary("Abs", x), 1e-7);
  const Val power = Where(zero, x * Exp(-largest), Exp(x - largest));
  return power / ReduceSum(power, {-1});
}

// Scores after the transform, and the logits whose softmax they are (up to a factor per sample).
struct Scores {
  Val y, logits;
};

// Applies the transform. The logits of independent sigmoids are ln σ(x): their softmax is the sigmoids divided by their
// sum.
absl::StatusOr<Scores> Transformed(Val x, const std::string& transform) {
  if (transform == "NONE") return Scores{x, x};
  if (transform == "LOGISTIC") return Scores{Sigmoid(x), -Unary("Softplus", -x)};
  if (transform == "SOFTMAX") return Scores{BuildSoftmax(x), x};
  if (transform == "SOFTMAX_ZERO") return Scores{SoftmaxZero(x), x};
  return absl::UnimplementedError(StrCat("post_transform '", transform, "'"));
}

ImportOr ImportLinearRegressor(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, Linear(c, c.attrs().Int("targets", 1)));
  const std::string transform = c.attrs().String("post_transform", "NONE");
  // onnxruntime applies no transform to a single target.
  ASSIGN_OR_RETURN(const Scores scores, Transformed(x, x.dim(-1) == 1 ? "NONE" : transform));
  return One(scores.y);
}

// Computes the scores of two classes from one row of coefficients. The row yields the score of the second class; the
// first score is its complement.
absl::StatusOr<Scores> TwoClasses(Val x, const std::string& transform) {
  if (transform != "LOGISTIC") return Scores{Concat({1.0 - x, x}, 1), Concat({1.0 - x, x}, 1)};
  return Transformed(Concat({-x, x}, 1), transform);
}

// Returns true for rows (−w, w), which scikit-learn's binary classifiers have with independent sigmoids. If both rows
// were trained, the probabilities would no longer sum to 1, so only one is; the exporter writes its negative as well.
bool IsMirrored(const Numbers& rows) {
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
  return rows.size() % 2 == 0 && std::equal(rows.begin(), middle, middle, [](double a, double b) { return a == -b; });
}

Numbers SecondHalf(const Numbers& rows) {
  return {rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end()};
}

// Returns the integer class labels, by default 0, 1, … For string labels, returns as many zeros, which are not read.
absl::StatusOr<Ints> ReadClasses(const ImportContext& c, int64_t rows) {
  Ints labels = c.attrs().Ints("classlabels_ints");
  if (auto names = c.node().strings.find("classlabels_strings"); labels.empty() && names != c.node().strings.end()) {
    labels.resize(names->second.size());
  }
  if (rows > kMaxRows) return Invalid(rows, " classes");
  if (labels.empty()) {
    labels.resize(rows);
    std::iota(labels.begin(), labels.end(), 0);
  }
  const auto classes = static_cast<int64_t>(labels.size());
  if (classes != rows && !(classes == 2 && rows == 1))
    return Invalid(rows, " rows of coefficients for ", classes, " classes");
  return labels;
}

int64_t ReadRows(const ImportContext& c) {
  const auto intercepts = static_cast<int64_t>(c.attrs().Floats("intercepts").size());
  if (intercepts > 0) return intercepts;
  const int64_t features = c.in(0).rank() == 0 ? 0 : c.in(0).dim(-1);
  return features == 0 ? 0 : static_cast<int64_t>(c.attrs().Floats("coefficients").size()) / features;
}

ImportOr ImportLinearClassifier(ImportContext& c) {
  const int64_t rows = ReadRows(c);
  ASSIGN_OR_RETURN(const Ints labels, ReadClasses(c, rows));
  const Numbers coefficients = c.attrs().Floats("coefficients"), intercepts = c.attrs().Floats("intercepts");
  const std::string transform = c.attrs().String("post_transform", "NONE");
  const bool mirrored = rows == 2 && transform == "LOGISTIC" && IsMirrored(coefficients) && IsMirrored(intercepts);
  ASSIGN_OR_RETURN(const Val x, mirrored ? Linear(c, 1, SecondHalf(coefficients), SecondHalf(intercepts))
                                         : Linear(c, rows, coefficients, intercepts));
  if (!x.valid()) return One(Val());
  const bool two = mirrored || (rows == 1 && labels.size() == 2);
  ASSIGN_OR_RETURN(const Scores scores, two ? TwoClasses(x, transform) : Transformed(x, transform));
  c.SetLogits(scores.y, scores.logits);
  if (c.node().strings.count("classlabels_strings") > 0 && c.attrs().Ints("classlabels_ints").empty())
    return std::vector<Val>{Val(), scores.y};
  const Val best = two ? Cast(Greater(Reshape(x, {x.dim(0)}), 0), DType::kInt64)
                       : c.b().Op("ArgMax", {x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  return std::vector<Val>{c.b().Op("Gather", {c.b().Ints(labels), best}, {{"axis", int64_t{0}}}), scores.y};
}

// Imports ZipMap, whose result is a list of dictionaries from class to score, as its input: one column per class.
ImportOr ImportZipMap(ImportContext& c) {
  c.SetLogits(c.in(0), c.FindLogits(c.in(0)));
  return One(c.in(0));
}

}  // namespace

std::span<const OnnxOp> MlImports() {
  static const OnnxOp ops[] = {
      {kDomain, "Scaler", 1, 1, ImportScaler},
      {kDomain, "Imputer", 1, 1, ImportImputer},
      {kDomain, "Normalizer", 1, 1, ImportNormalizer, {.keeps_classes = true}},
      {kDomain, "Binarizer", 1, 1, ImportBinarizer, {.discrete_outputs = 1}},
      {kDomain, "FeatureVectorizer", 1, Arity::kMany, ImportFeatureVectorizer, {.moves = true}},
      {kDomain, "ArrayFeatureExtractor", 2, 2, ImportArrayFeatureExtractor, {.moves = true}},
      {kDomain, "OneHotEncoder", 1, 1, ImportOneHotEncoder, {.text_keys = {"cats_strings", "cats_int64s"}}},
      {kDomain,
       "LabelEncoder",
       1,
       1,
       ImportLabelEncoder,
       {.text_keys = {"keys_strings", "keys_int64s"}, .text_values = {"values_strings", "values_int64s"}}},
      {kDomain, "CategoryMapper", 1, 1, ImportCategoryMapper, {.text_keys = {"cats_strings", "keys_int64s"}}},
      {kDomain, "LinearRegressor", 1, 1, ImportLinearRegressor},
      {kDomain, "LinearClassifier", 1, 1, ImportLinearClassifier, {.classifier = true}},
      {kDomain, "ZipMap", 1, 1, ImportZipMap, {.keeps_classes = true}},
  };
  return ops;
}

}  // namespace onnxtrain
