// Imports TfIdfVectorizer of integers, which counts n-grams.
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

struct NGrams {
  int64_t length = 1;
  Ints items;         // concatenated n-grams
  int64_t first = 0;  // index of the first one among the n-grams of all lengths

  int64_t count() const { return static_cast<int64_t>(items.size()) / length; }
};

constexpr int64_t kMaxGram = 64, kMaxSkip = 1024;

// Reads the pool, which has all 1-grams, then all 2-grams …; `ngram_counts` has the start of each length.
absl::StatusOr<std::vector<NGrams>> ReadNGrams(const ImportContext& c) {
  const Ints pool = c.attrs().Ints("pool_int64s"), starts = c.attrs().Ints("ngram_counts");
  if (pool.empty()) return absl::UnimplementedError("n-grams of strings");
  const auto size = static_cast<int64_t>(pool.size());
  std::vector<NGrams> grams;
  int64_t seen = 0;
  for (size_t i = 0; i < starts.size() && i < kMaxGram; ++i) {
    const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : size;
    NGrams g{.length = static_cast<int64_t>(i) + 1, .first = seen};
    if (begin < 0 || end < begin || end > size || (end - begin) % g.length != 0)
      return Invalid("ngram_counts ", ToString(starts), " do not divide ", size, " items");
    g.items.assign(pool.begin() + begin, pool.begin() + end);
    seen += g.count();
    grams.push_back(std::move(g));
  }
  const size_t indexes = c.attrs().Ints("ngram_indexes").size();
  if (static_cast<int64_t>(indexes) != seen)
    return Invalid("ngram_indexes has ", indexes, " numbers for ", seen, " n-grams");
  return grams;
}

// Counts the occurrences of each n-gram in x, i64 [N,C], with distance `step` between its items. Returns f32 [N,grams].
Val Count(Val x, const NGrams& grams, int64_t step) {
  const int64_t rows = x.dim(0), places = x.dim(1) - (grams.length - 1) * step;
  Val hits;
  for (int64_t k = 0; k < grams.length; ++k) {
    Ints items;
    for (int64_t g = 0; g < grams.count(); ++g) items.push_back(grams.items[g * grams.length + k]);
    const Val hit = Equal(Reshape(Slice(x, 1, k * step, places), {rows, places, 1}), x.b().Ints(items));
    hits = hits ? Binary("And", hits, hit) : hit;
  }
  return ReduceSum(Cast(hits, DType::kFloat32), {1}, false);
}

absl::StatusOr<Val> CountAll(ImportContext& c, Val x) {
  ASSIGN_OR_RETURN(const std::vector<NGrams> all, ReadNGrams(c));
  const int64_t shortest = c.attrs().Int("min_gram_length", 1), longest = c.attrs().Int("max_gram_length", 1);
  const int64_t skips = std::clamp<int64_t>(c.attrs().Int("max_skip_count"), 0, kMaxSkip);
  std::vector<Val> counts;
  for (const NGrams& grams : all) {
    Val sum = Expand(c.b().Scalar(DType::kFloat32, 0), {x.dim(0), grams.count()});
    const bool wanted = grams.length >= shortest && grams.length <= longest && grams.count() > 0;
    for (int64_t step = 1; wanted && step <= (grams.length == 1 ? 1 : skips + 1); ++step) {
      if ((grams.length - 1) * step >= x.dim(1)) break;
      sum = sum + Count(x, grams, step);
    }
    counts.push_back(sum);
  }
  if (counts.empty()) return Invalid("ngram_counts is empty");
  return Concat(counts, 1);
}

absl::StatusOr<Val> Weighted(ImportContext& c, Val counts) {
  const std::string mode = c.attrs().String("mode");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return Invalid("mode '", mode, "' is none of TF, IDF, TFIDF");
  if (mode == "IDF") counts = Cast(Greater(counts, 0), DType::kFloat32);
  const std::vector<double> weights = c.attrs().Floats("weights");
  if (mode == "TF" || weights.empty()) return counts;
  if (static_cast<int64_t>(weights.size()) != counts.dim(1))
    return Invalid(weights.size(), " weights for ", counts.dim(1), " n-grams");
  return counts * c.b().Constant(HostTensor::FromDoubles({DType::kFloat32, {counts.dim(1)}}, weights));
}

ImportOr ImportTfIdf(ImportContext& c) {
  const Val in = c.in(0);
  if (!IsInteger(in.dtype()) || in.rank() < 1 || in.rank() > 2)
    return Invalid("expected integers [C] or [N,C], got ", ToString(in.type()));
  const int64_t rows = in.rank() == 2 ? in.dim(0) : 1, columns = in.dim(-1);
  ASSIGN_OR_RETURN(const Val counts, CountAll(c, Reshape(Cast(in, DType::kInt64), {rows, columns})));
  ASSIGN_OR_RETURN(const Val values, Weighted(c, counts));
  const Ints places = c.attrs().Ints("ngram_indexes");
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  if (places.empty() || *least < 0) return Invalid("ngram_indexes should not be negative");
  const Shape shape = {rows, *most == INT64_MAX ? INT64_MAX : *most + 1};
  RETURN_IF_ERROR(CheckShape(shape));
  const Val y = c.b().Op("GatherGrad", {values, c.b().Ints(places)}, {{"axis", int64_t{1}}, {"input_shape", shape}});
  return One(in.rank() == 1 ? Reshape(y, {shape[1]}) : y);
}

}  // namespace

std::span<const OnnxOp> TfIdfImports() {
  static const OnnxOp ops[] = {{"", "TfIdfVectorizer", 1, 1, ImportTfIdf}};
  return ops;
}

}  // namespace onnxtrain
