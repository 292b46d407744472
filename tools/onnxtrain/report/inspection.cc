#include "tools/onnxtrain/report/inspection.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/row.h"
#include "frontend/passes/recognize.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/surgery.h"
#include "optim/plan/threads.h"
#include "optim/plan/training_data.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/optimize.h"
#include "optim/step/training_graph.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {
namespace {

std::string FoldedNorms(const OnnxModel& file) {
  const int folded = CountFoldedNorms(file);
  if (folded == 0) return "";
  return StrCat("BatchNorm was folded into ", folded,
                " nodes: they train as plain affine layers; an export with BatchNorm trains "
                "better (PyTorch: optimize=False)");
}

std::string FoldedWeights(const OnnxModel& file) {
  const std::vector<std::string> names = FindFoldedWeights(file);
  if (names.empty()) return "";
  return StrCat("the exporter computed '", Printable(names[0]), "'",
                names.size() > 1 ? StrCat(" and ", names.size() - 1, " more weights") : "",
                " from parameters, as weight_norm does: they train as plain weights (PyTorch: "
                "do_constant_folding=False keeps the expression)");
}

std::string FoldedNumbers(const OnnxModel& file) {
  const std::vector<std::string> names = FindFoldedNumbers(file);
  if (names.empty()) return "";
  return StrCat("the exporter computed the number '", Printable(names[0]), "'",
                names.size() > 1 ? StrCat(" and ", names.size() - 1, " more") : "",
                ", which is not trained; where it comes from a parameter, export with do_constant_folding=False");
}

std::string Reader(const Node& node) { return StrCat(node.op, " '", *node.source, "'"); }

// Returns one node per node of the file, which the importer may have split into several.
std::vector<int32_t> BySource(const Graph& graph, std::span<const int32_t> nodes) {
  std::vector<int32_t> first;
  std::set<std::string> seen;
  for (int32_t n : nodes) {
    if (seen.insert(graph.nodes()[n].source).second) first.push_back(n);
  }
  return first;
}

std::string SharedText(const Graph& graph, const std::string& name, const std::vector<int32_t>& readers) {
  std::string text;
  constexpr size_t kMost = 3;
  for (size_t i = 0; i < readers.size() && i < kMost; ++i)
    StrAppend(&text, i == 0 ? "" : ", ", Reader(graph.nodes()[readers[i]]));
  return StrCat("tied: '", name, "' is read by ", readers.size(), " nodes: ", text,
                readers.size() > kMost ? ", …" : "");
}

bool SameTransposed(const HostTensor& a, const HostTensor& b) {
  if (a.type().rank() != 2 || b.type().rank() != 2 || a.dtype() != b.dtype()) return false;
  const int64_t rows = a.shape()[0], columns = a.shape()[1];
  if (b.shape() != Shape{columns, rows}) return false;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (a.At(i * columns + j) != b.At(j * rows + i)) return false;
    }
  }
  return true;
}

bool IsConstant(const HostTensor& t) {
  for (int64_t i = 1; i < t.size(); ++i) {
    if (t.At(i) != t.At(0)) return false;
  }
  return true;
}

enum class Sameness : uint8_t { kNo, kSame, kTransposed };

Sameness Compare(const HostTensor& a, const HostTensor& b) {
  if (a.type() == b.type() && a.SameBytes(b)) return Sameness::kSame;
  return SameTransposed(a, b) ? Sameness::kTransposed : Sameness::kNo;
}

std::string StoredTwice(const std::vector<std::string>& names, bool transposed) {
  constexpr size_t kMost = 3;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    const bool last = i + 1 == names.size();
    StrAppend(&list, i == 0 ? "'" : last ? " and '" : ", '", names[i], "'");
  }
  if (names.size() > kMost) StrAppend(&list, ", …");
  const std::string times = names.size() == 2 ? "twice" : StrCat(names.size(), " times");
  return StrCat("stored ", times, ": ", list, " are equal", transposed ? ", transposed" : "", "; they train apart");
}

// Appends a note for each set of equal weights among weights of one size.
void AppendStoredTwice(const std::vector<const ImportedWeight*>& weights, std::vector<std::string>* tied) {
  std::vector<bool> told(weights.size(), false);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (told[i] || IsConstant(weights[i]->value)) continue;
    std::vector<std::string> names = {weights[i]->name};
    bool transposed = false;
    for (size_t j = i + 1; j < weights.size(); ++j) {
      const Sameness sameness = told[j] ? Sameness::kNo : Compare(weights[i]->value, weights[j]->value);
      if (sameness == Sameness::kNo) continue;
      told[j] = true;
      transposed |= sameness == Sameness::kTransposed;
      names.push_back(weights[j]->name);
    }
    if (names.size() > 1) tied->push_back(StoredTwice(names, transposed));
  }
}

// Reports exports that hamper training: BatchNorm folded into convolutions, removed Dropout, half precision.
std::vector<std::string> FindQuirks(const OnnxModel& file) {
  std::vector<std::string> quirks;
  const auto ops = file.op_histogram();
  if (std::string folded = FoldedNorms(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (std::string folded = FoldedWeights(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (std::string folded = FoldedNumbers(file); !folded.empty()) quirks.push_back(std::move(folded));
  if (!ops.contains("Dropout"))
    quirks.emplace_back(
        "no Dropout nodes: exports for inference leave them out, and --dropout has nothing to activate");
  int half = 0;
  for (const std::string& name : file.InitializerNames()) {
    const HostTensor* t = file.Initializer(name);
    half += t != nullptr && (t->dtype() == DType::kFloat16 || t->dtype() == DType::kBFloat16);
  }
  if (half > 0)
    quirks.push_back(
        StrCat(half, " initializers of half precision: trained as float32 masters and cast back on export"));
  return quirks;
}

// Reports trained weights with several users, and weights that are stored twice, also transposed.
std::vector<std::string> TiedWeights(const ImportedModel& model) {
  std::vector<std::string> tied;
  const auto readers = ComputeUsers(model.graph);
  std::map<int64_t, std::vector<const ImportedWeight*>> by_size;
  for (const ImportedWeight& w : model.weights) {
    const GraphInput* input = model.graph.FindInput(w.name);
    if (input == nullptr || input->kind != InputKind::kParameter) continue;
    const std::vector<int32_t> apart = BySource(model.graph, readers[input->value]);
    if (apart.size() > 1) tied.push_back(SharedText(model.graph, w.name, apart));
    constexpr int64_t kEnough = 64;  // smaller tensors may be equal by chance
    if (w.value.size() >= kEnough && w.value.type().rank() >= 2) by_size[w.value.size()].push_back(&w);
  }
  for (const auto& [size, weights] : by_size) AppendStoredTwice(weights, &tied);
  return tied;
}

constexpr const char* kGradientNames[] = {"formula", "zero", "decomposition", "none"};  // by GradStatus

std::string GetWorse(const std::string& a, const std::string& b) {
  constexpr const char* kWorst[] = {"missing", "decomposed", "kernel"};
  for (const char* word : kWorst) {
    if (a == word || b == word) return word;
  }
  return b;
}

std::string DescribeExecution(const Backend& backend, const Graph& graph, const Node& node) {
  if (backend.Supports(graph, node)) return "kernel";
  const OpRow* row = FindOp(node.op);
  return row != nullptr && (row->decompose != nullptr || row->view) ? "decomposed" : "missing";
}

// Finds a node of the file by its source. Nodes of inlined functions and branches are prefixed by the caller's name.
struct Index {
  std::map<std::string, std::string> op_of;

  explicit Index(const OnnxModel& file) {
    for (const OnnxModel::Node& node : file.nodes()) op_of.emplace(node.source, node.op);
  }
  const std::string* Find(std::string source) const {
    while (true) {
      if (auto it = op_of.find(source); it != op_of.end()) return &it->second;
      const size_t slash = source.rfind('/');
      if (slash == std::string::npos || slash == 0) return nullptr;
      source.resize(slash);
    }
  }
};

void LookAtNode(const Graph& graph, const Node& node, const std::vector<InstalledBackend>& backends,
                OperatorSupport* support, std::set<std::string>* gradients) {
  for (const InstalledBackend& b : backends) {
    if (b.backend == nullptr) continue;
    std::string& how = support->backends[b.name];
    how = GetWorse(how, DescribeExecution(*b.backend, graph, node));
  }
  if (const OpRow* row = FindOp(node.op)) gradients->insert(kGradientNames[static_cast<size_t>(row->grad_status)]);
}

}  // namespace

InstalledBackend LoadInstalledBackend(const std::string& name) {
  const int threads = ComputeThreads({});
  SetEnvironment(threads);
  InstalledBackend b{.name = name};
  const std::vector<std::string> installed = BackendNames();
  const bool there = std::find(installed.begin(), installed.end(), name) != installed.end();
  auto backend = there ? CreateBackend(name, {.device = "cpu", .threads = threads})
                       : absl::StatusOr<std::unique_ptr<Backend>>(absl::NotFoundError("not installed"));
  if (backend.ok()) {
    b.backend = *std::move(backend);
  } else {
    b.problem = std::string(ToStd(backend.status().message()));
  }
  return b;
}

std::vector<OperatorSupport> GetOperatorSupport(const OnnxModel& file, const ImportedModel* model,
                                                const std::vector<NodeFailure>& failures,
                                                const std::vector<InstalledBackend>& backends) {
  std::map<std::string, OperatorSupport> by_op;
  for (const auto& [op, count] : file.op_histogram()) {
    const bool known = std::ranges::find(failures, op, &NodeFailure::unsupported_op) == failures.end();
    by_op[op] = {.op = op, .count = count, .known = known};
    for (const InstalledBackend& b : backends) {
      if (b.backend == nullptr) by_op[op].backends[b.name] = "absent";
    }
  }
  std::map<std::string, std::set<std::string>> gradients;
  if (model != nullptr) {
    const Index index(file);
    for (const Node& node : model->graph.nodes()) {
      const std::string* op = IsConstant(node) ? nullptr : index.Find(node.source);
      if (op != nullptr) LookAtNode(model->graph, node, backends, &by_op[*op], &gradients[*op]);
    }
  }
  std::vector<OperatorSupport> list;
  for (auto& [op, support] : by_op) {
    support.gradient = absl::StrJoin(gradients[op], ", ");
    list.push_back(std::move(support));
  }
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return list;
}

// A rewritten node keeps the source of the node that it replaces. A composite that the file itself contains has a
// source of the same operator, or of one without a row.
std::map<std::string, int> CountRecognized(const OnnxModel& file, const Graph& graph) {
  const Index index(file);
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) {
    const OpRow* row = FindOp(node.op);
    const bool composite = row != nullptr && !row->is_gradient &&
                           (row->decompose != nullptr || row->probabilities || !row->written_as.empty());
    const std::string* written = composite ? index.Find(node.source) : nullptr;
    if (written != nullptr && *written != node.op && FindOp(*written) != nullptr) ++counts[node.op];
  }
  return counts;
}

namespace {

std::string Text(const absl::Status& status) { return std::string(ToStd(status.message())); }

class Inspector {
 public:
  // `logits`: the output of an appended head, else "".
  Inspector(const TrainConfig& config, Inspection* out, const std::string& logits)
      : config_(config), out_(*out), file_(*out->model), models_(out->model), logits_(logits) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(options_.import, MakeImportOptions(config_, file_));
    ASSIGN_OR_RETURN(options_.loss, MakeLossSpec(config_, file_, std::nullopt));
    if (!logits_.empty()) options_.loss.logits = logits_;
    options_.trainable = MakeTrainableSpec(config_);
    batch_ = DeclaredBatch(file_, options_.import);
    options_.loss.sum_outputs = true;
    out_.shapes = options_.import.input_shapes;
    for (std::string& quirk : FindQuirks(file_)) out_.quirks.push_back(std::move(quirk));
    const auto imported = Import();
    InspectOperators(imported.ok() ? imported->get() : nullptr, GetImportFailures(imported.status()));
    if (!imported.ok()) {
      AddReasons(imported.status());
      if (AllOperatorsKnown()) out_.problems.back() += DescribeFreeDims(file_, options_.import.dim_values);
      return absl::OkStatus();
    }
    InspectForward(**imported);
    out_.recognized = CountRecognized(file_, (*imported)->graph);
    out_.elementwise = CountElementwiseForms((*imported)->graph);
    out_.near_misses = FindNearMisses((*imported)->graph);
    InspectBatch();
    InspectWeights();
    return absl::OkStatus();
  }

 private:
  // Imports the model with the batch size of the file, or with another one if that fails.
  absl::StatusOr<std::shared_ptr<const ImportedModel>> Import() {
    auto imported = models_.ImportForward(options_, batch_, true, true);
    const int64_t other = imported.ok() ? 0 : models_.FindFixedBatch(options_, imported.status(), true);
    if (other == 0) return imported;
    out_.quirks.push_back(
        StrCat("a batch of ", batch_ == 1 ? "one sample" : StrCat(batch_), " fails: ", Text(imported.status())));
    batch_ = other;
    return models_.ImportForward(options_, batch_, true, true);
  }

  bool AllOperatorsKnown() const { return std::ranges::all_of(out_.operators, &OperatorSupport::known); }

  void LoadBackend(const std::string& name) {
    if (std::ranges::find(out_.looked_at, name) != out_.looked_at.end()) return;
    backends_.push_back(LoadInstalledBackend(name));
    out_.looked_at.push_back(name);
  }

  void InspectOperators(const ImportedModel* model, const std::vector<NodeFailure>& failures) {
    if (model != nullptr) {
      LoadBackend("cpu");
      if (config_.backend == "torch" || (config_.backend == "auto" && MayHaveGpu())) LoadBackend("torch");
    }
    out_.operators = GetOperatorSupport(file_, model, failures, backends_);
    const auto runs = [](const OperatorSupport& op) {
      return std::ranges::none_of(op.backends,
                                  [](const auto& b) { return b.second == "missing" || b.second == "absent"; });
    };
    if (std::ranges::all_of(out_.operators, runs)) return;
    LoadBackend("torch");
    out_.operators = GetOperatorSupport(file_, model, failures, backends_);
  }

  // Adds one problem per node and operator.
  void AddReasons(const absl::Status& status) {
    const std::vector<NodeFailure> failures = GetImportFailures(status);
    for (const NodeFailure& failure : failures) out_.problems.push_back(failure.message);
    if (failures.empty()) {
      const std::string text = Text(status), path = file_.path() + ": ";
      out_.problems.push_back(text.starts_with(path) ? text.substr(path.size()) : text);
    }
  }

  void InspectForward(const ImportedModel& model) {
    for (const std::string& note : model.notes) out_.quirks.push_back(note);
    for (const std::string& name : model.outputs)
      out_.outputs[name] = model.graph.type(model.graph.FindOutput(name)->value);
    for (const Node& node : model.graph.nodes()) {
      out_.forward_flops += NodeFlops(model.graph, node) / static_cast<double>(batch_);
      const OpRow* row = FindOp(node.op);
      if (IsConstant(node) || (row != nullptr && row->view)) continue;
      out_.activation_bytes +=
          static_cast<double>(model.graph.type(node.outputs[0]).bytes()) / static_cast<double>(batch_);
    }
    for (const ImportedWeight& w : model.weights) out_.parameter_bytes += static_cast<double>(w.value.type().bytes());
  }

  // Tries another batch size if the file fixes one.
  void InspectBatch() {
    const std::vector<ModelInput> inputs = MoveBatchFirst(file_.inputs(), options_.import.batch_axes);
    const bool fixed =
        std::ranges::any_of(inputs, [](const auto& input) { return !input.dims.empty() && input.dims[0] > 0; });
    const auto other = ImportAsWritten(file_, options_, batch_ + 1, true);
    if (other.ok() && !fixed) return;
    out_.quirks.push_back(
        other.ok() ? StrCat("exported for a batch of ", batch_, "; other batches work")
                   : StrCat("exported for a batch of ", batch_,
                            " and bound to it, so that micro-batches have that size: ", Text(other.status())));
  }

  void InspectWeights() {
    auto prepared = models_.PrepareWeights(options_, batch_, true, true);
    if (!prepared.ok()) return AddReasons(prepared.status());
    ImportedModel& model = prepared->model;
    for (const std::string& note : model.notes) {
      if (std::find(out_.quirks.begin(), out_.quirks.end(), note) == out_.quirks.end()) out_.quirks.push_back(note);
    }
    out_.origin = ClassifyWeightOrigin(CollectWeights(model, {}));
    out_.weights = prepared->weights;
    for (const WeightDecision& weight : out_.weights) out_.forms.push_back(DescribeForm(file_, weight.name));
    for (std::string& tied : TiedWeights(model)) out_.quirks.push_back(std::move(tied));
    const auto trained = [](const WeightDecision& w) { return w.trained; };
    if (std::none_of(out_.weights.begin(), out_.weights.end(), trained)) return NothingToTrain(model);
    InspectLoss(model);
  }

  // Explains why no weight is trainable: nodes that pass no gradient.
  void NothingToTrain(const ImportedModel& model) {
    out_.problems.emplace_back(out_.weights.empty() ? "nothing to train: the model has no floating-point weights"
                                                    : "nothing to train: no weight is trainable (the table says why)");
    const Graph& graph = model.graph;
    std::vector<bool> weighted(graph.values().size(), false);
    for (const ImportedWeight& w : model.weights) weighted[graph.FindInput(w.name)->value] = true;
    for (const Node& node : graph.nodes()) {
      const OpRow* row = FindOp(node.op);
      bool reached = false;
      for (ValueId v : node.inputs) reached |= v != kNoValue && weighted[v] && IsFloat(graph.type(v).dtype);
      for (ValueId v : node.outputs) weighted[v] = reached;
      const bool passes =
          row == nullptr || row->grad_status == GradStatus::kFormula || row->grad_status == GradStatus::kDecomposition;
      if (reached && !passes) out_.problems.push_back(StrCat(NodeTag(node), "no gradient passes"));
    }
  }

  void InspectLoss(const ImportedModel& model) {
    auto loss = ChooseLoss(model, options_.loss, options_.labels);
    if (loss.ok()) {
      out_.loss = loss->explanation;
    } else {
      out_.loss_problem = Text(loss.status());
      // The user chooses the output; the inspection takes the first that can be trained.
      for (const std::string& name : model.outputs) {
        LossSpec some = options_.loss;
        some.logits = name;
        loss = ChooseLoss(model, some, options_.labels);
        if (loss.ok()) break;
      }
    }
    if (!loss.ok()) return out_.problems.push_back(out_.loss_problem);
    InspectTraining(model, *loss);
  }

  void InspectTraining(const ImportedModel& model, const LossChoice& loss) {
    auto training = BuildMicro(model, loss, options_.loss, batch_, {});
    if (!training.ok()) return AddReasons(training.status());
    auto graph = OptimizeProgram(*std::move(training), DType::kFloat32);
    if (!graph.ok()) return AddReasons(graph.status());
    for (const Node& node : graph->nodes())
      out_.training_flops += NodeFlops(*graph, node) / static_cast<double>(batch_);
    if (AnyBackendRuns(*graph)) return;
    LoadBackend("torch");
    if (AnyBackendRuns(*graph)) return;
    for (const auto& [name, problem] : out_.backends) out_.problems.push_back(StrCat("backend ", name, ": ", problem));
  }

  bool AnyBackendRuns(const Graph& step) {
    for (const InstalledBackend& b : backends_) {
      if (out_.backends.contains(b.name)) continue;
      out_.backends[b.name] = b.backend == nullptr ? b.problem : Text(b.backend->Legalize(step).status());
    }
    return std::ranges::any_of(out_.backends, [](const auto& b) { return b.second.empty(); });
  }

  const TrainConfig& config_;
  Inspection& out_;
  const OnnxModel& file_;
  PreparedModels models_;  // caches imports
  int64_t batch_ = 1;      // batch size in the file
  const std::string logits_;
  PrepareOptions options_;
  std::vector<InstalledBackend> backends_;
};

}  // namespace

absl::StatusOr<Inspection> Inspect(const TrainConfig& config) {
  Inspection out;
  ASSIGN_OR_RETURN(out.model, LoadModel(config));
  std::string logits;
  if (HasSurgery(config)) {
    ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, out.model, nullptr, config.logits));
    out.model = std::move(surgery.model);
    out.quirks = std::move(surgery.lines);
    logits = surgery.logits;
  }
  RETURN_IF_ERROR(Inspector(config, &out, logits).Run());
  return out;
}

}  // namespace onnxtrain::cli
