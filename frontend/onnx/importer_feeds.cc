#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"

namespace onnxtrain {

// Dim names that are given, or that follow from the given shapes and the batch, hold for all inputs.
void Importer::CollectDimNames() {
  dims_ = options_.dim_values;
  for (const ParsedValue& input : model_.graph.inputs) {
    auto given = options_.input_shapes.find(input.name);
    for (size_t i = 0; i < input.dims.size(); ++i) {
      if (input.dims[i] >= 0 || input.dim_names[i].empty()) continue;
      if (given != options_.input_shapes.end() && i < given->second.size()) {
        dims_.emplace(input.dim_names[i], i == 0 && options_.batch > 0 ? batch_ : given->second[i]);
      } else if (i == 0) {
        dims_.emplace(input.dim_names[i], batch_);
      }
    }
  }
}

// Exports for a fixed batch have it as the leading extent of their inputs, none of which is free then.
void Importer::FindFrozenBatch() {
  batch_ = std::max<int64_t>(options_.batch, 1);
  int64_t fixed = 0;
  bool free = false;
  for (const ParsedValue& input : model_.graph.inputs) {
    if (!input.dtype || model_.graph.initializers.count(input.name) > 0 || needed_names_.count(input.name) == 0) continue;
    if (options_.fixed_inputs.count(input.name) > 0) continue;
    auto given = options_.input_shapes.find(input.name);
    const bool has_given = given != options_.input_shapes.end() && !given->second.empty();
    if (has_given && options_.batch == 0) batch_ = given->second[0];
    if (!input.has_shape || input.dims.empty()) continue;
    free |= input.dims[0] < 0;
    if (fixed == 0) fixed = input.dims[0];
  }
  if (!options_.conformance && !free && fixed > 0 && fixed != batch_ && (options_.batch > 0 || !options_.input_shapes.empty())) {
    frozen_batch_ = fixed;
  }
}

absl::StatusOr<int64_t> Importer::FreeDim(const ParsedValue& input, size_t axis) const {
  const std::string& name = input.dim_names[axis];
  if (auto it = dims_.find(name); !name.empty() && it != dims_.end()) return it->second;
  if (axis == 0) return batch_;
  if (name.empty()) return Invalid("extent ", axis, " is free: its shape must be given");
  return Invalid("extent ", axis, " ('", name, "') is free: it needs a value (--dim ", name, "=N)");
}

absl::StatusOr<Shape> Importer::FeedShape(const ParsedValue& input) {
  auto given = options_.input_shapes.find(input.name);
  if (given != options_.input_shapes.end()) {
    Shape shape = given->second;
    if (!input.has_shape || options_.conformance) return shape;
    // The batch may change from import to import, a given shape need not.
    const bool batched = !shape.empty() && !input.dims.empty() && (input.dims[0] < 0 || input.dims[0] == frozen_batch_);
    if (options_.batch > 0 && batched) shape[0] = batch_;
    bool fits = shape.size() == input.dims.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      fits = input.dims[i] < 0 || input.dims[i] == shape[i] || (i == 0 && input.dims[i] == frozen_batch_);
    }
    if (!fits) return Invalid("has the shape ", ToString(input.dims), " (-1: free), it cannot be ", ToString(shape));
    return shape;
  }
  if (!input.has_shape) return Invalid("declares no shape: it must be given");
  Shape shape = input.dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      ASSIGN_OR_RETURN(shape[i], FreeDim(input, i));
    }
  }
  if (frozen_batch_ > 0 && !shape.empty() && input.dims[0] == frozen_batch_ && input.dtype != DType::kBool) shape[0] = batch_;
  return shape;
}

// A tensor that is without elements whatever the batch has room for any.
HostTensor Importer::ForBatch(const HostTensor& fixed) const {
  if (fixed.size() > 0 || fixed.shape().empty()) return fixed;
  Shape shape = fixed.shape();
  shape[0] = batch_;
  return NumElements(shape) > 0 ? fixed : HostTensor({fixed.dtype(), shape});
}

// One feed for each element.
absl::Status Importer::CreateListFeed(const ParsedValue& input) {
  auto given = options_.list_inputs.find(input.name);
  if (given == options_.list_inputs.end()) {
    return absl::UnimplementedError(StrCat("is a ", input.kind, ": nothing says how many elements it has"));
  }
  const ListInput& shapes = given->second;
  if (!input.form.sequence && shapes.elements.size() != (shapes.present ? 1 : 0)) return Invalid("is an optional of ", shapes.elements.size(), " tensors");
  ListValue list{.form = input.form, .present = shapes.present};
  for (size_t i = 0; i < shapes.elements.size(); ++i) {
    const std::string name = ElementName(input.name, i);
    RETURN_IF_ERROR(Annotate(CheckShape(shapes.elements[i]), StrCat("element ", i, " ")));
    if (auto fixed = options_.fixed_inputs.find(name); fixed != options_.fixed_inputs.end()) {
      list.elements.push_back(builder_.Constant(Mapped(fixed->second)));
      continue;
    }
    if (needed_names_.count(name) > 0 || graph_.FindInput(name) != nullptr) return Invalid("has an element '", Printable(name), "', which another value is named");
    list.elements.push_back(builder_.Input(InputKind::kFeed, name, {MappedType(*input.element), shapes.elements[i]}));
  }
  root_.values[input.name] = std::move(list);
  return absl::OkStatus();
}

absl::Status Importer::CreateFeeds() {
  for (const auto& [name, shape] : options_.input_shapes) {
    auto is = [&, n = &name](const ParsedValue& v) { return v.name == *n; };
    if (std::none_of(model_.graph.inputs.begin(), model_.graph.inputs.end(), is)) return Invalid("has no input '", Printable(name), "'");
  }
  FindFrozenBatch();
  CollectDimNames();
  for (const ParsedValue& input : model_.graph.inputs) {
    if (model_.graph.initializers.count(input.name) > 0 || model_.graph.opaque.count(input.name) > 0) continue;
    if (needed_names_.count(input.name) == 0) {
      notes_.push_back(StrCat("input '", Printable(input.name), "' is not used"));
      continue;
    }
    const std::string tag = StrCat("input '", Printable(input.name), "' ");
    if (!input.form.is_tensor() && input.element) {
      RETURN_IF_ERROR(Annotate(CreateListFeed(input), tag));
      continue;
    }
    if (auto fixed = options_.fixed_inputs.find(input.name); fixed != options_.fixed_inputs.end()) {
      root_.values[input.name] = builder_.Constant(Mapped(ForBatch(fixed->second)));
      continue;
    }
    if (!input.dtype) return absl::UnimplementedError(StrCat(tag, "is a ", input.kind, ", which is not supported"));
    auto shape = FeedShape(input);
    if (!shape.ok()) return Annotate(shape.status(), tag);
    RETURN_IF_ERROR(Annotate(CheckShape(*shape), tag));
    // Half precision stays at the model's border: data is rounded as it will be when the trained model runs.
    const DType fed = SizeOf(*input.dtype) == 2 && IsFloat(*input.dtype) ? *input.dtype : MappedType(*input.dtype);
    const Val feed = builder_.Input(InputKind::kFeed, input.name, {fed, *shape});
    root_.values[input.name] = Cast(feed, MappedType(*input.dtype));
  }
  if (frozen_batch_ > 0) {
    notes_.push_back(StrCat("exported for a batch of ", frozen_batch_, ": its constants follow the batch of ", batch_, " now"));
  }
  ExtendFed();
  return absl::OkStatus();
}

}  // namespace onnxtrain
