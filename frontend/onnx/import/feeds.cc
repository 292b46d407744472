#include "frontend/onnx/import/feeds.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Moves axis 0 of a feed to where the file has the batch.
Val MoveBatchTo(Val feed, int axis) {
  if (axis == kAddedBatchAxis) return Reshape(feed, Shape(feed.shape().begin() + 1, feed.shape().end()));
  if (axis <= 0) return feed;
  std::vector<int64_t> perm(feed.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
  return Transpose(feed, std::move(perm));
}

class FeedCreator {
 public:
  FeedCreator(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes, const FloatTypes& types,
              Builder* builder)
      : options_(options), live_(live), shapes_(shapes), types_(types), builder_(*builder) {}

  absl::StatusOr<ImportValue> Create(const ParsedValue& input) const {
    if (!input.form.is_tensor() && input.element) return CreateList(input);
    if (const HostTensor* fixed = FindFixed(input.name))
      return ImportValue(builder_.Constant(types_.Map(FitToBatch(*fixed, shapes_.BatchAxis(input)))));
    if (!input.dtype) return absl::UnimplementedError(StrCat("is a ", input.kind, ", which is not supported"));
    ASSIGN_OR_RETURN(const Shape shape, shapes_.Resolve(input));
    RETURN_IF_ERROR(CheckShape(shape));
    // The file's types stay at the model's border: data is rounded as it will be when the trained model runs.
    const bool chosen = *input.dtype == DType::kFloat32;
    const Val feed =
        builder_.Input(InputKind::kFeed, input.name, {chosen ? types_.Map(*input.dtype) : *input.dtype, shape});
    return ImportValue(MoveBatchTo(Cast(feed, types_.Map(*input.dtype)), shapes_.BatchAxis(input)));
  }

 private:
  const HostTensor* FindFixed(const std::string& name) const {
    const auto it = options_.fixed_inputs.find(name);
    return it == options_.fixed_inputs.end() ? nullptr : &it->second;
  }

  // A tensor that would be empty for any batch keeps its shape.
  HostTensor FitToBatch(const HostTensor& fixed, int axis) const {
    if (fixed.size() > 0 || axis < 0 || axis >= fixed.type().rank()) return fixed;
    Shape shape = fixed.shape();
    shape[axis] = shapes_.batch();
    return NumElements(shape) > 0 ? fixed : HostTensor({fixed.dtype(), shape});
  }

  absl::StatusOr<ImportValue> CreateList(const ParsedValue& input) const {
    const auto given = options_.list_inputs.find(input.name);
    if (given == options_.list_inputs.end())
      return absl::UnimplementedError(StrCat("is a ", input.kind, ": its number of elements is not given"));
    const auto& [present, elements] = given->second;
    if (!input.form.sequence && elements.size() != (present ? 1 : 0))
      return Invalid("is an optional of ", elements.size(), " tensors");
    ListValue list{.form = input.form, .present = present};
    for (size_t i = 0; i < elements.size(); ++i) {
      RETURN_IF_ERROR(Annotate(CheckShape(elements[i]), StrCat("element ", i, " ")));
      ASSIGN_OR_RETURN(const Val element, CreateElement(ElementName(input.name, i), {*input.element, elements[i]}));
      list.elements.push_back(element);
    }
    return ImportValue(std::move(list));
  }

  absl::StatusOr<Val> CreateElement(const std::string& name, const Type& type) const {
    if (const HostTensor* fixed = FindFixed(name)) return builder_.Constant(types_.Map(*fixed));
    if (live_.IsRead(name) || builder_.graph().FindInput(name) != nullptr)
      return Invalid("has an element '", Printable(name), "', which another value is named");
    return builder_.Input(InputKind::kFeed, name, {types_.Map(type.dtype), type.shape});
  }

  const ImportOptions& options_;
  const LiveGraph& live_;
  const InputShapes& shapes_;
  const FloatTypes& types_;
  Builder& builder_;
};

absl::Status CheckGivenNames(const ImportOptions& options, const ParsedGraph& graph) {
  std::unordered_set<std::string_view> inputs;
  for (const ParsedValue& input : graph.inputs) inputs.insert(input.name);
  for (const auto& [name, shape] : options.input_shapes) {
    if (!inputs.contains(name)) return Invalid("has no input '", Printable(name), "'");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes) {
  const ParsedGraph& graph = *top->graph;
  RETURN_IF_ERROR(CheckGivenNames(options, graph));
  const FeedCreator creator(options, live, shapes, types, builder);
  for (const ParsedValue& input : graph.inputs) {
    if (graph.initializers.count(input.name) > 0 || graph.opaque.count(input.name) > 0) continue;
    const std::string tag = StrCat("input '", Printable(input.name), "' ");
    if (!live.IsRead(input.name)) {
      notes->push_back(StrCat(tag, "is not used"));
      continue;
    }
    auto value = creator.Create(input);
    if (!value.ok()) return Annotate(value.status(), tag);
    top->values[input.name] = *std::move(value);
    const int axis = shapes.BatchAxis(input);
    if (axis > 0) notes->push_back(StrCat(tag, "has its batch on axis ", axis, ": samples come without it"));
    if (axis == kAddedBatchAxis)
      notes->push_back(StrCat(tag, "has no batch axis: the model takes one sample at a time"));
  }
  if (shapes.fixed_batch() > 0) {
    notes->push_back(StrCat("exported for a batch of ", shapes.fixed_batch(), ": its constants follow the batch of ",
                            shapes.batch(), " now"));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
