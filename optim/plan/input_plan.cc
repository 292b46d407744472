#include "optim/plan/input_plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "optim/plan/constant_inputs.h"

namespace onnxtrain {
namespace {

constexpr int64_t kUsualSampleRate = 16000;
constexpr double kMaxConstantElements = 1 << 24;  // limit for a default constant
constexpr double kMaxGuessedElements = 1 << 20;   // limit for a constant whose size is tried
constexpr int64_t kMaxTriedSize = 99'999;         // larger extents are no sequence lengths
constexpr int64_t kMaxNodesImported = 200'000;    // limit for all trials of a search for sizes
constexpr int64_t kMostSmallBatch = 16, kLargestBatch = 1024, kMostBatches = 32;  // batches that constants fix

Shape ConstantShape(const ModelInput& input, int64_t size) {
  Shape shape = input.dims;
  std::ranges::replace_if(
      shape, [](int64_t d) { return d < 0; }, size);
  return shape;
}

// Multiplies in double, because declared extents may be of any size.
bool HasMoreElements(const Shape& shape, double limit) {
  return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>()) > limit;
}

bool IsSampleRate(const std::string& name) {
  return name == "sr" || name.find("sample_rate") != std::string::npos ||
         name.find("sampling_rate") != std::string::npos;
}

bool IsBatchless(const ModelInput& input, const BatchAxes& axes) {
  const auto axis = axes.find(input.name);
  return input.has_shape && (input.dims.empty() || (axis != axes.end() && axis->second == kNoBatchAxis));
}

// Returns true if all known indices are inside the tables that they index. An import does not fail if a length exceeds
// a position table.
bool IndicesFit(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != "Gather") continue;
    const HostTensor* indices = graph.FindConstant(node.inputs[1]);
    if (indices == nullptr) continue;
    const int64_t extent = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")];
    for (int64_t i = 0; i < indices->size(); ++i) {
      if (indices->IntAt(i) >= extent || indices->IntAt(i) < -extent) return false;
    }
  }
  return true;
}

// Returns true if the model prepends an axis of extent 1 to each of its inputs.
bool UnsqueezesInputs(const Graph& graph) {
  const auto readers = ComputeUsers(graph);
  bool any = false;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kFeed || !IsFloat(graph.type(input.value).dtype)) continue;
    Shape shape = graph.type(input.value).shape;
    shape.insert(shape.begin(), 1);
    for (const int32_t reader : readers[input.value]) {
      if (graph.type(graph.nodes()[reader].outputs[0]).shape != shape) return false;
      any = true;
    }
  }
  return any;
}

bool HasLaterBatch(const BatchAxes& axes) {
  return std::ranges::any_of(axes, [](const auto& entry) { return entry.second > 0; });
}

// Returns true if the first axis of an output is the batch.
bool HasRows(const ImportedModel& imported, int64_t batch) {
  return std::ranges::any_of(imported.outputs, [&](const std::string& name) {
    const Type& type = imported.graph.type(imported.graph.FindOutput(name)->value);
    return type.rank() > 0 && type.shape[0] == batch;
  });
}

// Returns true if the first axis of every float output is the batch of 2.
bool BeginsWithBatch(const ImportedModel& two) {
  return std::ranges::all_of(two.outputs, [&](const std::string& name) {
    const Type& type = two.graph.type(two.graph.FindOutput(name)->value);
    return !IsFloat(type.dtype) || (type.rank() > 0 && type.shape[0] == 2);
  });
}

// Returns true if both errors say that a shape depends on data, which other sizes do not change. The payloads differ,
// because they contain sizes.
bool NeedSameConstants(const absl::Status& a, const absl::Status& b) {
  return a.message() == b.message() && absl::StrContains(a.message(), "must be a constant");
}

class InputPlanner {
 public:
  InputPlanner(const OnnxModel& model, const InputRequest& request)
      : model_(model), request_(request), needed_(NeededInputs(model, request.outputs)) {}

  absl::StatusOr<InputPlan> Run() {
    RETURN_IF_ERROR(ReadConstants());
    if (!request_.batch_axis) return TrySingleSample(TakeWholeInputs(OpenInputs()), 0);
    const BatchAxes obvious = Guesses().front();
    if (!request_.sizes && HasPlainBatch(VariedInputs(), obvious) && !MayBeTimeMajor())
      return MakePlan(obvious, MakeDims(TrialSizes().front(), 0));
    if (AreOneSample(OpenInputs())) {
      InputPlan plan = TrySingleSample(GuessSingleSamples(model_, OpenInputs()).back(), 0);
      if (plan.problem.ok()) return plan;
    }
    if (ShareVectors(OpenInputs())) {
      for (const BatchAxes& guess : GuessSingleSamples(model_, OpenInputs())) {
        if (!HasAddedAxis(guess)) continue;
        InputPlan plan = TrySingleSample(guess, 0);
        if (plan.problem.ok()) return plan;
      }
    }
    absl::Status first;
    for (const bool empty_caches : {true, false}) {
      if (!empty_caches && caches_.fixed.empty()) break;
      caches_ = empty_caches ? FindDefaultInputs(needed_) : DefaultInputs{};
      for (const BatchAxes& guess : Guesses()) {
        InputPlan plan = TryGuess(guess, empty_caches ? 0 : 1, true);
        if (plan.problem.ok()) return plan;
        if (first.ok()) first = plan.problem;
        if (HasLaterBatch(guess) || !BatchesOneSample()) continue;
        plan = TrySingleSample(TakeWholeInputs(OpenInputs()), 0);
        if (plan.problem.ok()) return plan;
      }
      for (const BatchAxes& guess : Guesses()) {
        InputPlan plan = SearchSizes(guess, empty_caches ? 0 : 1);
        if (plan.problem.ok()) return plan;
      }
      // Falls back to the batch that the file declares.
      for (const BatchAxes& guess : Guesses()) {
        InputPlan plan = TryGuess(guess, empty_caches ? 0 : 1, false);
        if (plan.problem.ok()) return plan;
      }
      const InputPlan plain = MakePlan(Guesses().front(), MakeDims(TrialSizes().front(), 0));
      if (plain.problem.ok() && FollowsLargerBatch(plain)) continue;
      for (const BatchAxes& guess : GuessSingleSamples(model_, OpenInputs())) {
        InputPlan plan = TrySingleSample(guess, empty_caches ? 0 : 1);
        if (plan.problem.ok()) return plan;
      }
    }
    caches_ = FindDefaultInputs(needed_);
    InputPlan plan = MakePlan(Guesses().front(), MakeDims(TrialSizes().front(), 0));
    plan.problem = first;
    return plan;
  }

 private:
  absl::Status ReadConstants() {
    for (const auto& [name, text] : request_.constants) {
      const auto input = std::ranges::find(model_.inputs(), name, &ModelInput::name);
      if (input == model_.inputs().end()) return Invalid("`input` ", name, "=", text, ": the model has no such input");
      ASSIGN_OR_RETURN(constants_[name], ReadConstant(*input, text));
    }
    return absl::OkStatus();
  }

  // Returns true if no dimension is named as a batch and axis 1 of the first input is free.
  bool MayBeTimeMajor() const {
    const bool named = std::ranges::any_of(
        needed_, [](const ModelInput& input) { return std::ranges::any_of(input.dim_names, NamesBatch); });
    return !named && !needed_.empty() && needed_[0].dims.size() > 1 && needed_[0].dims[1] < 0;
  }

  // Returns the inputs that the user has not made constants.
  std::vector<ModelInput> VariedInputs() const {
    std::vector<ModelInput> varied = needed_;
    std::erase_if(varied, [&](const ModelInput& input) { return constants_.contains(input.name); });
    return varied;
  }

  bool IsFixed(const ModelInput& input) const {
    return caches_.fixed.contains(input.name) || constants_.contains(input.name);
  }

  std::vector<ModelInput> OpenInputs() const {
    std::vector<ModelInput> open;
    std::ranges::copy_if(needed_, std::back_inserter(open), [&](const auto& input) { return !IsFixed(input); });
    return open;
  }
  std::vector<BatchAxes> Guesses() const { return GuessBatchAxes(model_, OpenInputs()); }

  // Returns true if the model accepts no other batch on the first axes of its inputs and prepends a batch axis of
  // extent 1 to them.
  bool BatchesOneSample() const {
    const std::vector<ModelInput> open = OpenInputs();
    if (std::ranges::any_of(open, [](const ModelInput& input) { return input.dims.empty() || input.dims[0] < 0; }))
      return false;
    const InputPlan plain = MakePlan({}, MakeDims(TrialSizes().front(), 0));
    if (!plain.problem.ok()) return false;
    const auto imported = ImportAt(plain, DeclaredBatch(model_, MakeOptions(plain)));
    return imported.ok() && UnsqueezesInputs(imported->graph);
  }

  FreeDims MakeDims(int64_t size, int64_t past) const { return {model_, request_.dims, size, past}; }

  InputPlan MakePlan(const BatchAxes& guess, const FreeDims& dims) const {
    InputPlan plan{.batch_axes = guess, .fixed = caches_.fixed};
    for (const auto& [name, axis] : caches_.batch_axes) {
      if (axis != 0) plan.batch_axes[name] = axis;
    }
    for (const ModelInput& input : MoveBatchFirst(needed_, guess)) {
      if (const auto constant = constants_.find(input.name); constant != constants_.end()) {
        plan.fixed[input.name] = constant->second;
        plan.batch_axes[input.name] = kNoBatchAxis;
      } else if (IsBatchless(input, guess) && !IsFixed(input)) {
        const Shape shape = ConstantShape(input, dims.size);
        if (HasMoreElements(shape, shape == input.dims ? kMaxConstantElements : kMaxGuessedElements)) {
          plan.problem = Invalid(model_.path(), ": input '", input.name, "' ", ToString(input.dims),
                                 " has no batch axis and is too big for a constant");
          return plan;
        }
        plan.fixed.emplace(input.name, DefaultConstant(input, dims.size));
        plan.batch_axes[input.name] = kNoBatchAxis;
      } else if (input.has_shape && !IsFixed(input)) {
        Shape& shape = plan.input_shapes[input.name] = {-1};
        const Shape sample = SizeSample(dims, input);
        shape.insert(shape.end(), sample.begin(), sample.end());
      }
    }
    return plan;
  }

  // Returns the names of the dimensions whose sizes have to be found.
  std::set<std::string> FreeNames(const BatchAxes& guess) const {
    std::set<std::string> names;
    for (const ModelInput& input : MoveBatchFirst(needed_, guess)) {
      if (!IsFixed(input)) names.merge(FreeDimNames(MakeDims(0, 0), input));
    }
    return names;
  }

  InputPlan TryGuess(const BatchAxes& guess, int64_t past, bool follows_batch) const {
    return TryPlan(guess, past,
                   [&](InputPlan* plan) { return follows_batch ? TraceBatch(guess, plan) : TryDeclaredBatch(plan); });
  }

  InputPlan TrySingleSample(const BatchAxes& guess, int64_t past) const {
    return TryPlan(guess, past, [&](InputPlan* plan) -> absl::Status {
      ASSIGN_OR_RETURN(const ImportedModel one, ImportAt(*plan, 1));
      return TakeOneSample(one, plan);
    });
  }

  // Adds a batch axis to outputs that have none, unless constants fix a batch that no input declares
  // (PreparedModels::FindFixedBatch): with a batch of 1, such outputs may contain its rows.
  absl::Status TakeOneSample(const ImportedModel& one, InputPlan* plan) const {
    const BatchAxes before = plan->batch_axes;
    if (!AddOutputAxes(one, &plan->batch_axes)) return Invalid(model_.path(), ": no output is of floats");
    if (plan->batch_axes == before) return absl::OkStatus();
    InputPlan batched = *plan;
    batched.batch_axes = before;
    return FollowsLargerBatch(batched) ? Invalid(model_.path(), ": follows a batch above 1") : absl::OkStatus();
  }

  // Returns true if the model fails to import with a batch of 2 but imports with a larger one and has outputs for it.
  bool FollowsLargerBatch(const InputPlan& plan) const {
    if (HasAddedAxis(plan.batch_axes)) return false;  // its extent is 1
    const absl::Status two = ImportAt(plan, 2).status();
    std::set<int64_t> batches;
    for (int64_t batch = 3; batch <= kMostSmallBatch; ++batch) batches.insert(batch);
    for (const NodeFailure& failure : GetImportFailures(two)) {
      std::ranges::copy_if(failure.extents, std::inserter(batches, batches.end()),
                           [](int64_t extent) { return extent > kMostSmallBatch && extent <= kLargestBatch; });
    }
    int64_t left = std::min(kMostBatches, kMaxNodesImported / std::max<int64_t>(std::ssize(model_.nodes()), 1));
    return !two.ok() && std::ranges::any_of(batches, [&](int64_t batch) {
      if (left-- <= 0) return false;
      const auto imported = ImportAt(plan, batch);
      return imported.ok() && HasRows(*imported, batch);
    });
  }

  // Tries sizes for the free dimensions until the model accepts one.
  template <typename Try>
  InputPlan TryPlan(const BatchAxes& guess, int64_t past, Try attempt) const {
    InputPlan first;
    for (const int64_t size : TrialSizes()) {
      InputPlan plan = MakePlan(guess, MakeDims(size, past));
      if (plan.problem.ok()) plan.problem = attempt(&plan);
      if (plan.problem.ok()) return plan;
      // An error that sizes do not change ends the search.
      const bool again = first.problem == plan.problem || NeedSameConstants(first.problem, plan.problem);
      if (first.problem.ok()) first = std::move(plan);
      if (again || FreeNames(guess).empty()) break;
    }
    return first;
  }

  // Searches a size for each named dimension separately: among the sizes that the failed nodes read and the usual ones,
  // the size with which the fewest nodes fail.
  InputPlan SearchSizes(const BatchAxes& guess, int64_t past) const {
    std::set<std::string> names = FreeNames(guess);
    names.erase("");
    std::map<std::string, int64_t> sizes = request_.dims;
    InputPlan best = TrySizes(guess, sizes, past);
    int64_t left = kMaxNodesImported / std::max<int64_t>(std::ssize(model_.nodes()), 1);
    for (const std::string& name : names) {
      for (const int64_t size : CandidateSizes(best.problem)) {
        if (best.problem.ok() || left-- <= 0) return best;
        std::map<std::string, int64_t> tried = sizes;
        tried[name] = size;
        InputPlan plan = TrySizes(guess, tried, past);
        if (NeedSameConstants(best.problem, plan.problem)) return best;
        if (!plan.problem.ok() && CountFailed(plan) >= CountFailed(best)) continue;
        best = std::move(plan);
        sizes = std::move(tried);
      }
    }
    return best;
  }

  InputPlan TrySizes(const BatchAxes& guess, const std::map<std::string, int64_t>& sizes, int64_t past) const {
    InputPlan plan = MakePlan(guess, {model_, sizes, TrialSizes().front(), past});
    if (plan.problem.ok()) plan.problem = TraceBatch(guess, &plan);
    return plan;
  }

  static size_t CountFailed(const InputPlan& plan) {
    return std::max<size_t>(GetImportFailures(plan.problem).size(), 1);
  }

  static std::vector<int64_t> CandidateSizes(const absl::Status& problem) {
    std::vector<int64_t> sizes;
    for (const NodeFailure& failure : GetImportFailures(problem)) {
      for (const int64_t extent : failure.extents) {
        if (extent <= kMaxTriedSize && std::ranges::find(sizes, extent) == sizes.end()) sizes.push_back(extent);
      }
    }
    sizes.insert(sizes.end(), TrialSizes().begin(), TrialSizes().end());
    return sizes;
  }

  ImportOptions MakeOptions(const InputPlan& plan) const {
    return {.input_shapes = plan.input_shapes,
            .dim_values = request_.dims,
            .fixed_inputs = plan.fixed,
            .batch_axes = plan.batch_axes,
            .half_weights = true,
            .outputs = request_.outputs};
  }

  absl::StatusOr<ImportedModel> ImportAt(const InputPlan& plan, int64_t batch) const {
    ImportOptions options = MakeOptions(plan);
    options.batch = batch;
    for (auto& [name, shape] : options.input_shapes) std::ranges::replace(shape, int64_t{-1}, batch);
    ASSIGN_OR_RETURN(ImportedModel imported, Import(model_, options));
    if (!IndicesFit(imported.graph)) return Invalid("a constant index lies outside of its table");
    return imported;
  }

  // Imports the model with two batch sizes; some float output must change with them. One import is enough for the
  // common model whose inputs and outputs all begin with a free batch.
  absl::Status TraceBatch(const BatchAxes& guess, InputPlan* plan) const {
    ASSIGN_OR_RETURN(const ImportedModel two, ImportAt(*plan, 2));
    if (HasPlainBatch(needed_, guess) && BeginsWithBatch(two)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ImportedModel three, ImportAt(*plan, 3));
    const BatchAxes outputs = TraceOutputs(two, three);
    bool follows = false;
    for (const std::string& name : two.outputs) {
      const auto axis = outputs.find(name);
      follows |= IsFloat(two.graph.type(two.graph.FindOutput(name)->value).dtype) &&
                 (axis == outputs.end() || axis->second != kNoBatchAxis);
    }
    if (!follows && !plan->input_shapes.empty()) return Invalid(model_.path(), ": no output follows the batch");
    plan->batch_axes.insert(outputs.begin(), outputs.end());
    return absl::OkStatus();
  }

  // Imports the model with the batch of its file. Some float output must have one row per sample.
  absl::Status TryDeclaredBatch(InputPlan* plan) const {
    const int64_t batch = DeclaredBatch(model_, MakeOptions(*plan));
    ASSIGN_OR_RETURN(const ImportedModel imported, ImportAt(*plan, batch));
    if (batch == 1) return TakeOneSample(imported, plan);
    bool any = false;
    for (const std::string& name : imported.outputs) {
      const Type& type = imported.graph.type(imported.graph.FindOutput(name)->value);
      const auto axis = std::ranges::find(type.shape, batch);
      any |= axis != type.shape.end() && IsFloat(type.dtype);
      const bool first = axis == type.shape.begin() && axis != type.shape.end();
      if (!first)
        plan->batch_axes[name] = axis == type.shape.end() ? kNoBatchAxis : static_cast<int>(axis - type.shape.begin());
    }
    return any ? absl::OkStatus() : Invalid(model_.path(), ": no output has the batch of ", batch);
  }

  const OnnxModel& model_;
  const InputRequest& request_;
  const std::vector<ModelInput> needed_;
  DefaultInputs caches_ = FindDefaultInputs(needed_);
  std::map<std::string, HostTensor> constants_;
};

}  // namespace

absl::StatusOr<HostTensor> ReadConstant(const ModelInput& input, const std::string& text) {
  const std::string tag = StrCat("`input` ", input.name, "=", text, ": ");
  if (text.starts_with("@")) {
    auto array = ReadNpyFile(text.substr(1));
    if (!array.ok()) return Annotate(array.status(), tag);
    const Shape& shape = array->shape();
    const bool fits = !input.has_shape || std::equal(shape.begin(), shape.end(), input.dims.begin(), input.dims.end(),
                                                     [](int64_t a, int64_t d) { return d < 0 || a == d; });
    if (!fits) return Invalid(tag, "the file has ", ToString(array->type()), ", the input ", ToString(input.dims));
    return array->CastTo(input.dtype);
  }
  ASSIGN_OR_RETURN(const double number, ParseNumber(text));
  const Shape shape = ConstantShape(input, 1);
  if (HasMoreElements(shape, kMaxConstantElements))
    return Invalid(tag, ToString(shape), " is too big for one number: use @FILE.npy");
  HostTensor constant({input.dtype, shape});
  for (int64_t i = 0; i < constant.size(); ++i) constant.Set(i, number);
  return constant;
}

HostTensor DefaultConstant(const ModelInput& input, int64_t size) {
  HostTensor constant({input.dtype, ConstantShape(input, size)});
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const bool tensor = IsFloat(input.dtype) && !input.dims.empty();
  const double number = IsSampleRate(input.name) ? kUsualSampleRate : input.dtype == DType::kBool ? 0 : 1;
  for (int64_t i = 0; i < constant.size(); ++i) constant.Set(i, tensor ? normal(random) : number);
  return constant;
}

absl::StatusOr<InputPlan> PlanInputs(const OnnxModel& model, const InputRequest& request) {
  return InputPlanner(model, request).Run();
}

}  // namespace onnxtrain
