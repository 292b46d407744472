#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/batched_model.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Returns a tensor of the given shape, with the element of `from` at offset Σ index · stride for each index.
HostTensor CopyStrided(const HostTensor& from, const Shape& strides, Shape shape) {
  HostTensor to({from.dtype(), std::move(shape)});
  const Shape& extents = to.shape();
  const size_t element = DTypeSize(from.dtype());
  const bool rows = !extents.empty() && strides.back() == 1;
  const int64_t count = rows ? extents.back() : 1;
  std::byte* out = to.mutable_bytes().data();
  for (int64_t i = 0; i < to.size(); i += count, out += count * element) {
    int64_t at = 0, rest = i;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) at += rest % extents[axis] * strides[axis];
    std::memcpy(out, from.bytes().data() + at * element, count * element);
  }
  return to;
}

}  // namespace

HostTensor TakeCorner(const HostTensor& tensor, Shape shape) {
  return CopyStrided(tensor, Strides(tensor.shape()), std::move(shape));
}

std::optional<HostTensor> Unrepeat(const HostTensor& tensor, const std::vector<bool>& axes) {
  Shape shape = tensor.shape();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axes[axis] && shape[axis] > 0) shape[axis] = 1;
  }
  HostTensor base = TakeCorner(tensor, std::move(shape));
  return Repeat(base, tensor.shape()).SameBytes(tensor) ? std::optional(std::move(base)) : std::nullopt;
}

HostTensor Repeat(const HostTensor& base, Shape shape) {
  Shape strides = Strides(base.shape());
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (base.shape()[axis] == 1) strides[axis] = 0;
  }
  return CopyStrided(base, strides, std::move(shape));
}

namespace {

// Two batches at least this far apart reveal values that are rounded quotients of the batch, for divisors up to this
// number.
constexpr int64_t kFarApart = 8;
constexpr int64_t kMostCounted = int64_t{1} << 23;  // n / (n − 1) > 1 in float32 for smaller n
// Larger constants may remain nodes in the imported graph.
constexpr size_t kMaxRepeatedBytes = size_t{1} << 20;

struct Batches {
  int64_t low, high;
};

// The linear function offset + slope · batch.
struct Line {
  int64_t offset = 0, slope = 0;

  int64_t At(int64_t batch) const { return offset + slope * batch; }
  bool operator==(const Line&) const = default;
};

// Returns the line through both values. Accepts only multiples of the batch (offset 0) and constant distances from it
// (slope ±1), because any two values of a square or a rounded quotient are on some line.
std::optional<Line> FitLine(int64_t low, int64_t high, Batches batches) {
  if (low == high) return Line{low, 0};
  const int64_t distance = batches.high - batches.low;
  if ((high - low) % distance != 0) return std::nullopt;
  const int64_t slope = (high - low) / distance;
  const Line line{low - slope * batches.low, slope};
  return line.offset == 0 || std::abs(slope) == 1 ? std::optional(line) : std::nullopt;
}

std::optional<std::vector<Line>> FitLines(const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                                          Batches batches) {
  if (low.size() != high.size()) return std::nullopt;
  std::vector<Line> lines;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto line = FitLine(low[i], high[i], batches);
    if (!line.has_value()) return std::nullopt;
    lines.push_back(*line);
  }
  return lines;
}

std::vector<int64_t> LinesAt(const std::vector<Line>& lines, int64_t batch) {
  std::vector<int64_t> values;
  for (const Line& line : lines) values.push_back(line.At(batch));
  return values;
}

std::vector<bool> FollowingAxes(const std::vector<Line>& extents) {
  std::vector<bool> follow;
  for (const Line& extent : extents) follow.push_back(extent.slope != 0);
  return follow;
}

// Returns true if the ranks are equal and no extent of `inner` exceeds that of `outer`.
bool FitsWithin(const Shape& inner, const Shape& outer) {
  return std::ranges::equal(inner, outer, [](int64_t a, int64_t b) { return a <= b; });
}

int64_t CountPerChannel(const Type& type) {
  return type.rank() < 2 || type.shape[1] == 0 ? 0 : type.elements() / type.shape[1];
}

// Returns n / (n − 1), the factor that makes the variance of n values unbiased.
HostTensor UnbiasedFactor(DType dtype, int64_t count) {
  const auto n = static_cast<double>(count);
  return HostTensor::Scalar(dtype, n > 1 ? n / (n - 1) : 1);
}

enum class Following : uint8_t {
  kInts,      // an integer or a list of integers: lines
  kShape,     // as kInts, and equal to the extents of the node's output, which the type rule checks
  kElements,  // a tensor of integers: each element is a line
  kCorner,    // a tensor whose extents are lines, with the first elements of a larger one
  kRepeated,  // a tensor that repeats along the axes whose extents are lines
  kUnbiased,  // n / (n − 1) for the n values in each channel of another value
};

// An attribute that depends on the batch.
struct FollowingAttr {
  size_t node;
  std::string name;
  Following how;
  std::vector<Line> lines = {};
  ValueId counted = kNoValue;
};

// Returns true if the weights are equal except for the location of their bytes.
bool AreSameWeights(const std::vector<ImportedWeight>& a, const std::vector<ImportedWeight>& b) {
  return std::ranges::equal(a, b, [](const ImportedWeight& x, const ImportedWeight& y) {
    return x.name == y.name && x.consumer == y.consumer && x.alias == y.alias && x.fixed == y.fixed;
  });
}

// Returns the position of the batch in two notes that differ in nothing else; npos if there is none.
size_t FindBatch(const std::string& low, const std::string& of_low, const std::string& high,
                 const std::string& of_high) {
  for (size_t at = high.find(of_high); at < low.size(); at = high.find(of_high, at + 1)) {
    const std::string rest = high.substr(at + of_high.size());
    if (low == StrCat(high.substr(0, at), of_low, rest)) return at;
  }
  return std::string::npos;
}

// Returns true if the importer has folded all operators on constants. Then it also folds them for smaller batches.
bool IsFolded(const Graph& graph) {
  return std::ranges::none_of(graph.nodes(), [&](const Node& node) {
    const OpRow* row = FindOp(node.op);
    return row != nullptr && row->evaluate != nullptr && !node.inputs.empty() &&
           std::ranges::all_of(node.inputs,
                               [&](ValueId v) { return v == kNoValue || graph.FindConstant(v) != nullptr; });
  });
}

// Compares everything that has no extents.
bool AreAlike(const ImportedModel& a, const ImportedModel& b) {
  return a.outputs == b.outputs && a.moved_outputs == b.moved_outputs &&
         a.low_precision_outputs == b.low_precision_outputs && a.logits == b.logits &&
         a.state_updates == b.state_updates && a.exported_batch == b.exported_batch && a.random_key == b.random_key &&
         a.graph.inputs() == b.graph.inputs() && a.graph.outputs() == b.graph.outputs() &&
         a.graph.nodes().size() == b.graph.nodes().size() && a.graph.values().size() == b.graph.values().size() &&
         AreSameWeights(a.weights, b.weights);
}

}  // namespace

// Holds the common graph of two imports of a model, and the functions of the batch for its extents, attributes and
// constants.
class BatchTemplate {
 public:
  // Returns null if the models have different nodes.
  static std::unique_ptr<BatchTemplate> Create(const ImportedModel& low, const ImportedModel& high) {
    std::unique_ptr<BatchTemplate> made(new BatchTemplate(high, {low.batch, high.batch}));
    return made->Compare(low, high) ? std::move(made) : nullptr;
  }

  // Returns nullopt if the template is not valid for the batch.
  std::optional<ImportedModel> At(int64_t batch) const {
    const bool above = batch > batches_.high, below = batch < batches_.low;
    if (batch == rest_.exported_batch || ((above || below) && !extrapolates_) || (below && !folded_))
      return std::nullopt;
    auto graph = Instantiate(batch);
    if (!graph.ok()) return std::nullopt;
    ImportedModel model = rest_;
    model.graph = *std::move(graph);
    model.batch = batch;
    for (const auto& [note, at] : batch_in_notes_) model.notes[note].insert(at, StrCat(batch));
    return model;
  }

  Batches batches() const { return batches_; }
  int64_t exported_batch() const { return rest_.exported_batch; }
  std::vector<ImportedWeight>& weights() { return rest_.weights; }

 private:
  BatchTemplate(const ImportedModel& high, Batches batches)
      : graph_(high.graph), batches_(batches), folded_(IsFolded(graph_)), rest_(high) {
    rest_.graph = Graph();
  }

  bool Compare(const ImportedModel& low, const ImportedModel& high) {
    if (!AreAlike(low, high) || !CompareNotes(low.notes)) return false;
    for (const GraphInput& input : graph_.inputs()) {
      if (!CompareInput(input, low.graph.type(input.value))) return false;
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (!CompareNode(low.graph, n)) return false;
    }
    extrapolates_ = extrapolates_ && batches_.high - batches_.low >= kFarApart && !RoundsCounts(low);
    return true;
  }

  // Returns true if factors n / (n − 1) may round to 1 for both batches but not for smaller ones.
  static bool RoundsCounts(const ImportedModel& low) {
    return !low.state_updates.empty() && std::ranges::any_of(low.graph.values(), [](const Value& value) {
      return CountPerChannel(*value.type) >= kMostCounted;
    });
  }

  // Removes the batch from the notes that contain it and records the positions.
  bool CompareNotes(const std::vector<std::string>& low) {
    if (low.size() != rest_.notes.size()) return false;
    const std::string of_low = StrCat(batches_.low), of_high = StrCat(batches_.high);
    for (size_t i = 0; i < low.size(); ++i) {
      std::string& note = rest_.notes[i];
      if (note == low[i]) continue;
      const size_t at = FindBatch(low[i], of_low, note, of_high);
      if (at == std::string::npos) return false;
      note.erase(at, of_high.size());
      batch_in_notes_.emplace_back(i, at);
    }
    return true;
  }

  bool CompareInput(const GraphInput& input, const Type& low) {
    const Type& high = graph_.type(input.value);
    auto lines = FitLines(low.shape, high.shape, batches_);
    if (low.dtype != high.dtype || !lines.has_value()) return false;
    if (input.kind != InputKind::kFeed && !(low == high)) return false;
    input_shapes_.push_back(*std::move(lines));
    return true;
  }

  bool CompareNode(const Graph& low, size_t n) {
    const Node &a = low.nodes()[n], &b = graph_.nodes()[n];
    const auto have_same_names = [&] {
      return std::ranges::equal(a.outputs, b.outputs, [&](ValueId x, ValueId y) {
        return x == y && low.value(x).name == graph_.value(y).name && low.type(x).dtype == graph_.type(y).dtype;
      });
    };
    if (a.op != b.op || a.inputs != b.inputs || !(a.source == b.source) || !have_same_names()) return false;
    if (a.attrs == b.attrs) return true;
    return std::ranges::equal(a.attrs, b.attrs, [&](const auto& x, const auto& y) {
      return x.first == y.first && (SameAttr(x.second, y.second) || FollowAttr(low, n, x.first, x.second, y.second));
    });
  }

  // Determines how an attribute depends on the batch (Following); returns false if in no known way.
  bool FollowAttr(const Graph& low, size_t n, const std::string& name, const AttrValue& a, const AttrValue& b) {
    if (a.index() != b.index()) return false;
    if (const auto* tensor = std::get_if<HostTensor>(&a))
      return FollowTensor(low, n, name, *tensor, std::get<HostTensor>(b));
    const std::vector<int64_t>* list = std::get_if<std::vector<int64_t>>(&a);
    const int64_t* number = std::get_if<int64_t>(&a);
    if (list == nullptr && number == nullptr) return false;
    const std::vector<int64_t> of_low = list != nullptr ? *list : std::vector{*number};
    const std::vector<int64_t> of_high =
        list != nullptr ? std::get<std::vector<int64_t>>(b) : std::vector{std::get<int64_t>(b)};
    const ValueId output = graph_.nodes()[n].outputs[0];
    const bool shape = of_low == low.type(output).shape && of_high == graph_.type(output).shape;
    return Follow({n, name, shape ? Following::kShape : Following::kInts}, FitLines(of_low, of_high, batches_));
  }

  bool FollowTensor(const Graph& low, size_t n, const std::string& name, const HostTensor& a, const HostTensor& b) {
    if (a.dtype() != b.dtype()) return false;
    if (a.shape() == b.shape())
      return IsInteger(a.dtype()) ? Follow({n, name, Following::kElements}, FitLines(a.ToInts(), b.ToInts(), batches_))
                                  : FollowCount(low, n, name, a, b);
    auto lines = FitLines(a.shape(), b.shape(), batches_);
    if (!lines.has_value() || !FitsWithin(a.shape(), b.shape()) || !TakeCorner(b, a.shape()).SameBytes(a)) return false;
    const bool repeated = Unrepeat(b, FollowingAxes(*lines)).has_value();
    return Follow({n, name, repeated ? Following::kRepeated : Following::kCorner}, std::move(lines));
  }

  // Searches the operands of earlier nodes of the same ONNX node for the value whose element count determines the
  // factor.
  bool FollowCount(const Graph& low, size_t n, const std::string& name, const HostTensor& a, const HostTensor& b) {
    if (a.size() != 1 || !IsFloat(a.dtype())) return false;
    for (size_t i = n; i-- > 0 && graph_.nodes()[i].source == graph_.nodes()[n].source;) {
      for (const ValueId v : graph_.nodes()[i].inputs) {
        if (v == kNoValue || !UnbiasedFactor(a.dtype(), CountPerChannel(low.type(v))).SameBytes(a) ||
            !UnbiasedFactor(b.dtype(), CountPerChannel(graph_.type(v))).SameBytes(b))
          continue;
        return Follow({.node = n, .name = name, .how = Following::kUnbiased, .counted = v}, std::vector<Line>());
      }
    }
    return false;
  }

  bool Follow(FollowingAttr attr, std::optional<std::vector<Line>> lines) {
    if (!lines.has_value()) return false;
    extrapolates_ = extrapolates_ && attr.how != Following::kInts && attr.how != Following::kElements &&
                    attr.how != Following::kCorner;
    attr.lines = *std::move(lines);
    attrs_.push_back(std::move(attr));
    return true;
  }

  absl::StatusOr<Graph> Instantiate(int64_t batch) const {
    Graph graph;
    graph.ReserveAs(graph_);
    auto attr = attrs_.begin();
    for (ValueId v = 0; v < std::ssize(graph_.values()); ++v) {
      const Value& value = graph_.value(v);
      if (value.node < 0) {
        RETURN_IF_ERROR(AddInput(value.index, batch, &graph));
      } else if (value.index == 0) {
        const Node& node = graph_.nodes()[value.node];
        Attrs attrs = node.attrs;
        for (; attr != attrs_.end() && attr->node == static_cast<size_t>(value.node); ++attr) {
          ASSIGN_OR_RETURN(AttrValue made, MakeAttr(*attr, graph, batch));
          attrs.Set(attr->name, std::move(made));
        }
        RETURN_IF_ERROR(AddNode(node, std::move(attrs), &graph));
      }
      graph.SetValueName(v, value.name);
    }
    for (const GraphOutput& output : graph_.outputs()) graph.AddOutput(output.name, output.value, output.into);
    return graph;
  }

  absl::Status AddInput(int32_t index, int64_t batch, Graph* graph) const {
    const GraphInput& input = graph_.inputs()[index];
    Type type = graph_.type(input.value);
    type.shape = LinesAt(input_shapes_[index], batch);
    RETURN_IF_ERROR(CheckShape(type.shape));
    graph->AddInput(input.kind, input.name, std::move(type));
    return absl::OkStatus();
  }

  static absl::Status AddNode(const Node& node, Attrs attrs, Graph* graph) {
    std::vector<const Type*> types;
    for (const ValueId v : node.inputs) types.push_back(v == kNoValue ? nullptr : &graph->type(v));
    ASSIGN_OR_RETURN(std::vector<Type> results, InferTypes(node.op, types, attrs));
    for (const Type& type : results) RETURN_IF_ERROR(CheckShape(type.shape));
    graph->AddNode(node.op, node.inputs, std::move(attrs), std::move(results), node.source);
    return absl::OkStatus();
  }

  absl::StatusOr<AttrValue> MakeAttr(const FollowingAttr& attr, const Graph& graph, int64_t batch) const {
    const AttrValue& value = std::ranges::find_if(graph_.nodes()[attr.node].attrs, [&](const auto& entry) {
                               return entry.first == attr.name;
                             })->second;
    const auto* tensor = std::get_if<HostTensor>(&value);
    if (attr.how == Following::kUnbiased)
      return UnbiasedFactor(tensor->dtype(), CountPerChannel(graph.type(attr.counted)));
    std::vector<int64_t> numbers = LinesAt(attr.lines, batch);
    if (attr.how == Following::kElements) return HostTensor::FromInts(tensor->type(), numbers);
    if (tensor != nullptr) return MakeTensor(*tensor, attr, std::move(numbers));
    return std::holds_alternative<int64_t>(value) ? AttrValue(numbers[0]) : AttrValue(std::move(numbers));
  }

  // Cuts the tensor of another batch out of the tensor of the higher batch, or extends it.
  static absl::StatusOr<AttrValue> MakeTensor(const HostTensor& high, const FollowingAttr& attr, Shape shape) {
    RETURN_IF_ERROR(CheckShape(shape));
    if (FitsWithin(shape, high.shape())) return TakeCorner(high, std::move(shape));
    const Type type{high.dtype(), std::move(shape)};
    if (type.bytes() > kMaxRepeatedBytes) return Invalid("a constant of ", type.bytes(), " bytes");
    return Repeat(*Unrepeat(high, FollowingAxes(attr.lines)), type.shape);
  }

  Graph graph_;  // from the import of the higher batch
  Batches batches_;
  bool folded_;                                            // IsFolded(graph_)
  ImportedModel rest_;                                     // all but the graph; the batch is removed from notes
  std::vector<std::pair<size_t, size_t>> batch_in_notes_;  // note, and position in it
  std::vector<std::vector<Line>> input_shapes_;            // by input of the graph
  std::vector<FollowingAttr> attrs_;                       // in the order of nodes
  bool extrapolates_ = true;
};

namespace {

bool HasBodies(const ParsedGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const ParsedNode& node) { return !node.graphs.empty(); });
}

bool HasBodies(const OnnxModel::Parsed& model) {
  return HasBodies(model.graph) ||
         std::ranges::any_of(model.functions, [](const auto& f) { return HasBodies(f.second.graph); });
}

}  // namespace

BatchedModel::BatchedModel(std::shared_ptr<const OnnxModel> model, ImportOptions options)
    : model_(std::move(model)), options_(std::move(options)), unlike_(HasBodies(model_->parsed())) {}
BatchedModel::BatchedModel(BatchedModel&&) noexcept = default;
BatchedModel& BatchedModel::operator=(BatchedModel&&) noexcept = default;
BatchedModel::~BatchedModel() = default;

absl::StatusOr<ImportedModel> BatchedModel::At(int64_t batch, bool values) {
  if (template_ != nullptr && batch > 1 && !(values && released_)) {
    RETURN_IF_ERROR(model_->CheckUnchanged());
    if (auto made = template_->At(batch)) return *std::move(made);
  }
  return ImportAt(batch);
}

absl::StatusOr<ImportedModel> BatchedModel::ImportAt(int64_t batch) {
  ImportOptions options = options_;
  options.batch = batch;
  for (auto& [name, shape] : options.input_shapes) std::ranges::replace(shape, int64_t{-1}, batch);
  ++imports_;
  ASSIGN_OR_RETURN(ImportedModel imported, Import(*model_, options));
  mode_matters_ = imported.mode_matters;
  if (batch > 1 && !unlike_) Learn(imported);
  return imported;
}

// Extends the range of imported sizes. Ignores the size that the file was exported for if constants change for other
// sizes.
void BatchedModel::Learn(const ImportedModel& imported) {
  const int64_t exported = imported.exported_batch;
  if (template_ != nullptr) {
    if (template_->exported_batch() != exported) return;
    template_->weights() = imported.weights;
    released_ = false;
    const auto [low, high] = template_->batches();
    if (imported.batch >= low && imported.batch <= high) return;
    sample_ = template_->At(imported.batch < low ? high : low);
    template_ = nullptr;
  }
  if (sample_ && sample_->exported_batch > 0 && exported == 0) return;
  released_ = false;
  if (!sample_ || sample_->batch == imported.batch || sample_->exported_batch != exported) {
    sample_ = imported;
    return;
  }
  const bool lower = sample_->batch < imported.batch;
  template_ = BatchTemplate::Create(lower ? *sample_ : imported, lower ? imported : *sample_);
  if (template_ != nullptr) template_->weights() = imported.weights;
  unlike_ = template_ == nullptr;
  sample_.reset();
}

void BatchedModel::ReleaseValues(const std::function<bool(std::vector<ImportedWeight>*)>& release) {
  if (released_) return;
  if (sample_) released_ = release(&sample_->weights);
  if (template_ != nullptr) released_ = release(&template_->weights());
}

}  // namespace onnxtrain
