// Imports operators that select elements. Those whose output shape depends on values require values known at import.
#include <algorithm>
#include <limits>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Imports Where(index = 0, 1, …, on, off). An index outside [−depth, depth) equals none of them.
ImportOr ImportOneHot(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t depth, KnownInt(c, 1, "depth"));
  const Type places{DType::kInt64, {depth}};
  RETURN_IF_ERROR(CheckHostConstant(places));
  const Val values = c.in(2);
  if (values.shape() != Shape{2}) return Invalid("values should be two numbers, got ", ToString(values.type()));
  Val index = Cast(c.in(0), DType::kInt64);
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, -1, index.rank() + 1));
  Shape shape = index.shape(), along(index.rank() + 1, 1);
  shape.insert(shape.begin() + axis, 1);
  along[axis] = depth;
  Ints classes(depth);
  std::iota(classes.begin(), classes.end(), 0);
  index = Reshape(Where(Less(index, 0), index + static_cast<double>(depth), index), std::move(shape));
  const Val hit = Equal(index, Reshape(c.b().Ints(classes), std::move(along)));
  return One(Where(hit, Slice(values, 0, 1, 1), Slice(values, 0, 0, 1)));
}

// Imports Compress, which selects elements (or, with an axis, slices) by a condition. The condition must be known,
// since it determines the shape.
ImportOr ImportCompress(ImportContext& c) {
  ASSIGN_OR_RETURN(const Ints condition, c.KnownInts(1, "condition"));
  Val x = c.in(0);
  int64_t axis = 0;
  if (c.attrs().Has("axis")) {
    ASSIGN_OR_RETURN(axis, ReadAxis(c, 0, x.rank()));
  } else {
    x = Reshape(x, {x.type().elements()});
  }
  Ints index;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i]) index.push_back(static_cast<int64_t>(i));
  }
  if (!index.empty() && index.back() >= x.dim(static_cast<int>(axis))) {
    return Invalid("condition of ", condition.size(), " for ", ToString(x.type()));
  }
  return One(GatherConstant(x, index, axis));
}

// Imports NonZero of a known tensor: one column per nonzero element, with its index.
ImportOr ImportNonZero(ImportContext& c) {
  const HostTensor* x = c.Known(0);
  if (x == nullptr) return Invalid("input 0 must be a constant: it decides the shape of the result");
  Ints found;
  for (int64_t i = 0, n = x->size(); i < n; ++i) {
    if (x->At(i) != 0) found.push_back(i);
  }
  const int64_t count = static_cast<int64_t>(found.size()), rank = x->type().rank();
  const Type type{DType::kInt64, {rank, count}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor places(type);
  const Shape strides = Strides(x->shape());
  for (int64_t axis = 0; axis < rank; ++axis) {
    for (int64_t k = 0; k < count; ++k) places.SetInt(axis * count + k, found[k] / strides[axis] % x->shape()[axis]);
  }
  return One(c.b().Constant(std::move(places)));
}

// Imports x[mask].view(batch, -1, width)[:, -1] of x [batch, length, width] as the element of x at the last position of
// each row that the mask [batch, length] selects, or at the first one if it selects none.
ImportOr ImportLastSelected(ImportContext& c) {
  const Val x = c.in(0), mask = c.in(1);
  if (x.rank() != 3 || mask.shape() != Shape{x.dim(0), x.dim(1)})
    return Invalid("a mask ", ToString(mask.type()), " selects more than positions of ", ToString(x.type()));
  const int64_t batch = x.dim(0), length = x.dim(1), width = x.dim(2);
  const HostTensor* view = c.Known(2);
  const bool by_row = view != nullptr && view->size() == 3 && view->IntAt(0) == batch && view->IntAt(1) == -1 &&
                      view->IntAt(2) == width;
  if (!by_row) return Invalid("what the mask selects is not viewed as rows of the batch");
  Ints positions(length), rows(batch);
  for (int64_t i = 0; i < length; ++i) positions[i] = i;
  for (int64_t i = 0; i < batch; ++i) rows[i] = i * length;
  const Val position = Cast(c.b().Ints(positions), DType::kFloat32);
  const Val selected = Where(Cast(mask, DType::kBool), position, c.b().Scalar(DType::kFloat32, -1));
  return One(Gather(Reshape(x, {batch * length, width}), ArgMax(selected, 1) + c.b().Ints(rows), 0));
}

// Imports TopK. k is an attribute before opset 10. Always sorts the values, even if the file does not require it.
ImportOr ImportTopK(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, -1, c.in(0).rank()));
  int64_t k = c.attrs().Int("k");
  if (c.since(10, true, c.has(1))) {
    if (!c.has(1)) return Invalid("input 1 (K) is missing");
    ASSIGN_OR_RETURN(k, KnownInt(c, 1, "K"));
  }
  return c.b().Ops("TopK", {c.in(0)},
                   {{"axis", axis}, {"k", k}, {"largest", int64_t{c.attrs().Int("largest", 1) != 0}}});
}

// Orders the slices of a tensor [outer, n, inner] along its middle axis.
class Slices {
 public:
  Slices(const HostTensor& x, int64_t axis) : x_(x), n_(x.shape()[axis]) {
    for (size_t a = axis + 1; a < x.shape().size(); ++a) inner_ *= x.shape()[a];
    outer_ = n_ == 0 ? 0 : x.size() / (n_ * inner_ == 0 ? 1 : n_ * inner_);
  }

  int64_t count() const { return n_; }
  // Compares two slices lexicographically. Returns < 0, 0 or > 0.
  int Compare(int64_t i, int64_t j) const {
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t k = 0; k < inner_; ++k) {
        const int order = CompareElements((o * n_ + i) * inner_ + k, (o * n_ + j) * inner_ + k);
        if (order != 0) return order;
      }
    }
    return 0;
  }

 private:
  int CompareElements(int64_t i, int64_t j) const {
    if (IsFloat(x_.dtype())) return (x_.At(i) > x_.At(j)) - (x_.At(i) < x_.At(j));
    return (x_.IntAt(i) > x_.IntAt(j)) - (x_.IntAt(i) < x_.IntAt(j));
  }

  const HostTensor& x_;
  int64_t n_, outer_ = 0, inner_ = 1;
};

struct Groups {
  Ints first, member_of, counts;  // by group: first slice; by slice: its group; by group: number of slices
};

Groups GroupEqual(const Slices& slices, bool sorted) {
  Ints order(slices.count());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return slices.Compare(i, j) < 0; });
  std::vector<Ints> groups;
  for (int64_t i : order) {
    if (groups.empty() || slices.Compare(groups.back()[0], i) != 0) groups.emplace_back();
    groups.back().push_back(i);
  }
  if (!sorted) std::sort(groups.begin(), groups.end());  // orders groups by their first slices
  Groups result{.member_of = Ints(slices.count())};
  for (size_t g = 0; g < groups.size(); ++g) {
    result.first.push_back(groups[g][0]);
    result.counts.push_back(static_cast<int64_t>(groups[g].size()));
    for (int64_t i : groups[g]) result.member_of[i] = static_cast<int64_t>(g);
  }
  return result;
}

ImportOr ImportUnique(ImportContext& c) {
  const HostTensor* known = c.Known(0);
  if (known == nullptr) return Invalid("input 0 must be a constant: it decides the shape of the result");
  int64_t axis = 0;
  HostTensor x = known->Reshaped({known->size()});
  if (c.attrs().Has("axis")) {
    ASSIGN_OR_RETURN(axis, ReadAxis(c, 0, known->type().rank()));
    x = *known;
  }
  const Groups groups = GroupEqual(Slices(x, axis), c.attrs().Int("sorted", 1) != 0);
  Builder& b = c.b();
  return std::vector<Val>{GatherConstant(b.Constant(x), groups.first, axis), b.Ints(groups.first),
                          b.Ints(groups.member_of), b.Ints(groups.counts)};
}

struct Box {
  double y0, x0, y1, x1;

  double area() const { return (y1 - y0) * (x1 - x0); }
};

// Reads a box: two diagonal corners (y, x, y, x) in any order or, if `centered`, center and extents (x, y, width,
// height).
Box BoxAt(const HostTensor& boxes, int64_t i, bool centered) {
  const double a = boxes.At(4 * i), b = boxes.At(4 * i + 1), c = boxes.At(4 * i + 2), d = boxes.At(4 * i + 3);
  if (centered) return {b - d / 2, a - c / 2, b + d / 2, a + c / 2};
  return {std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d)};
}

double IntersectionOverUnion(const Box& a, const Box& b) {
  const double height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0),
               width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (!(height > 0 && width > 0) || a.area() <= 0 || b.area() <= 0) return 0;
  const double common = height * width;
  return common / (a.area() + b.area() - common);
}

struct Suppression {
  int64_t most = 0;    // limit for boxes per class
  double overlap = 0;  // boxes that overlap more exclude each other
  double score = -std::numeric_limits<double>::infinity();
};

// Returns the selected boxes of one image and class, best first.
Ints SelectBoxes(const std::vector<Box>& boxes, const std::vector<double>& scores, const Suppression& s) {
  Ints order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (scores[i] > s.score) order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return scores[i] > scores[j]; });
  Ints kept;
  for (int64_t i : order) {
    if (static_cast<int64_t>(kept.size()) >= s.most) break;
    const bool free = std::all_of(kept.begin(), kept.end(),
                                  [&](int64_t k) { return IntersectionOverUnion(boxes[i], boxes[k]) <= s.overlap; });
    if (free) kept.push_back(i);
  }
  return kept;
}

absl::StatusOr<Suppression> ReadSuppression(ImportContext& c) {
  Suppression s;
  if (c.has(2)) {
    ASSIGN_OR_RETURN(s.most, KnownInt(c, 2, "max_output_boxes_per_class"));
  }
  if (c.has(3)) {
    ASSIGN_OR_RETURN(s.overlap, KnownDouble(c, 3, "iou_threshold"));
  }
  if (c.has(4)) {
    ASSIGN_OR_RETURN(s.score, KnownDouble(c, 4, "score_threshold"));
  }
  return s;
}

// Imports NonMaxSuppression of known values, since the number of selected boxes depends on them.
ImportOr ImportNonMaxSuppression(ImportContext& c) {
  const HostTensor *boxes = c.Known(0), *scores = c.Known(1);
  if (boxes == nullptr || scores == nullptr) {
    return absl::UnimplementedError(
        "its result has a shape that depends on values which are not constants; `logits` NAME trains on the values "
        "before it");
  }
  const Shape &b = boxes->shape(), &s = scores->shape();
  if (b.size() != 3 || s.size() != 3 || b[0] != s[0] || b[1] != s[2] || b[2] != 4) {
    return Invalid("expected boxes [N,B,4] and scores [N,C,B], got ", ToString(boxes->type()), " and ",
                   ToString(scores->type()));
  }
  ASSIGN_OR_RETURN(const Suppression suppression, ReadSuppression(c));
  Ints found;
  for (int64_t image = 0; image < s[0]; ++image) {
    std::vector<Box> of_image;
    for (int64_t i = 0; i < b[1]; ++i)
      of_image.push_back(BoxAt(*boxes, image * b[1] + i, c.attrs().Int("center_point_box") != 0));
    for (int64_t label = 0; label < s[1]; ++label) {
      std::vector<double> of_class;
      for (int64_t i = 0; i < s[2]; ++i) of_class.push_back(scores->At((image * s[1] + label) * s[2] + i));
      for (int64_t i : SelectBoxes(of_image, of_class, suppression)) found.insert(found.end(), {image, label, i});
    }
  }
  const auto rows = static_cast<int64_t>(found.size()) / 3;
  return One(c.b().Constant(HostTensor::FromInts({DType::kInt64, {rows, 3}}, found)));
}

}  // namespace

std::span<const OnnxOp> SelectionImports() {
  static const OnnxOp ops[] = {
      {"", "OneHot", 3, 3, ImportOneHot, {.takes_numbers = true, .discrete_outputs = 1, .keeps_choice = true}},
      {"", "Compress", 2, 2, ImportCompress, {.shape_from_values = true}},
      {"", "NonZero", 1, 1, ImportNonZero, {.discrete_outputs = 1, .shape_from_values = true}},
      {kRowDomain, kLastSelected, 3, 3, ImportLastSelected},
      {"", "TopK", 1, 2, ImportTopK, {.discrete_outputs = 0b10, .largest_attr = "largest"}},
      {"", "Unique", 1, 1, ImportUnique, {.discrete_outputs = 0b1110, .shape_from_values = true}},
      {"",
       "NonMaxSuppression",
       2,
       5,
       ImportNonMaxSuppression,
       {.discrete_outputs = 1, .scores_input = 1, .shape_from_values = true}},
  };
  return ops;
}

}  // namespace onnxtrain
