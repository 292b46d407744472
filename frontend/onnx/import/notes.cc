#include "frontend/onnx/import/stages.h"

#include <algorithm>
#include <map>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"

namespace onnxtrain {
namespace {

class NoteTaker {
 public:
  NoteTaker(const OnnxModel& file, const ImportState& state, const std::vector<std::string>& outputs,
            std::vector<std::string>* notes)
      : file_(file), state_(state), outputs_(outputs), notes_(*notes) {
    for (const ParsedNode& node : state.model.graph.nodes) {
      if (!state.live.Contains(node)) continue;
      if (!node.attrs.Has(kOwnRatio)) ++counts_[node.op_type];  // those of adapters are not in the file
      frozen_norms_ += HasFrozenScale(state.options, node);
    }
  }

  void Run() {
    NoteActivations();
    NoteStoredForms();
    if (counts_["ZipMap"] > 0) Add("ZipMap nodes: ", counts_["ZipMap"], ", imported as one column per class");
    if (state_.options.training) NoteTraining();
  }

 private:
  template <typename... Args>
  void Add(const Args&... args) {
    notes_.push_back(StrCat(args...));
  }

  void NoteActivations() {
    for (const std::string& name : outputs_) {
      const ParsedNode* node = state_.live.Producer(name);
      if (node == nullptr) continue;
      if (GetOnnxTraits(*node).probabilities) Add("output '", Printable(name), "' ends in ", node->op_type);
    }
  }

  void NoteStoredForms() {
    const auto sparse = std::ranges::count_if(state_.model.graph.sparse,
                                              [&](const std::string& name) { return state_.live.IsRead(name); });
    if (sparse > 0) Add("sparse initializers: ", sparse, ", not trained and left as they are");
    if (const int filled = state_.filled_weights.count(); filled > 0)
      Add("weights that ConstantOfShape nodes fill: ", filled, "; the export stores them as initializers");
    std::map<std::string, int> low;
    int wide = 0;
    for (const ImportWeight& weight : state_.weights.weights()) {
      const HostTensor* stored = file_.Initializer(weight.name);
      if (stored == nullptr) continue;
      if (stored->dtype() == DType::kFloat16) ++low["float16"];
      if (stored->dtype() == DType::kBFloat16) ++low["bfloat16"];
      wide += stored->dtype() == DType::kFloat64 && weight.tensor.dtype() == DType::kFloat32;
    }
    if (wide > 0) Add("float64 weights: ", wide, ", trained as float32 and stored as float64 again on export");
    for (const auto& [name, count] : low) {
      Add(name, " weights: ", count, ", trained as ", ToString(state_.options.float_type),
          " masters and rounded back on export");
    }
  }

  void NoteTraining() {
    const WeightTable& weights = state_.weights;
    if (weights.body_tensors() > 0)
      Add("float tensors within bodies of If, Loop or Scan: ", weights.body_tensors(), ", not trained");
    NoteTiedWeights(weights, state_.live, &notes_);
    NoteSplits();
    NotePositions();
    if (const auto& factors = weights.constant_factors(); !factors.empty())
      Add("factors that the exporter derived: ", factors.size(), " ('", Printable(factors[0]),
          factors.size() > 1 ? "', …)" : "')", ", not trained (`train` trains them)");
    if (weights.split_copies() > 0)
      Add("equal initializers that the exporter had merged: ", weights.split_copies(), ", trained separately");
    if (counts_["Dropout"] > 0 && state_.options.dropout < 0)
      Add("Dropout nodes: ", counts_["Dropout"], ", with the ratio and mode of the file");
    NoteStraightThrough();
    NoteBatchNorm();
  }

  void NoteStraightThrough() {
    const Graph& graph = state_.graph;
    const auto is_estimate = [&](const Node& node) {
      if (node.op != "StraightThrough" || node.inputs.size() < 2) return false;
      const Node* sum = graph.producer(node.inputs[0]);
      const bool is_sum = sum != nullptr && (sum->op == "Add" || sum->op == "Sub");
      return is_sum && std::ranges::find(sum->inputs, node.inputs[1]) != sum->inputs.end();
    };
    if (const auto count = std::ranges::count_if(graph.nodes(), is_estimate); count > 0)
      Add("sums x + (q(x) − x) of a step q: ", count, ", straight-through estimators: the gradient goes to x alone");
  }

  void NotePositions() {
    std::vector<std::string> names;
    for (const WeightRecord& record : state_.model.graph.records) {
      if (record.row->matches != MatchPositionTables) continue;
      const auto& weights = state_.weights.weights();
      const auto weight = std::ranges::find(weights, record.weight, &ImportWeight::name);
      if (weight != weights.end() && weight->fixed == FixedWeight::kConstant) names.push_back(record.weight);
    }
    if (names.empty()) return;
    Add("tables that only make sines and cosines of positions: ", names.size(), " ('", Printable(names[0]),
        names.size() > 1 ? "', …)" : "')", ", not trained (`train` trains them)");
  }

  void NoteSplits() {
    const WeightRecords& records = state_.model.graph.records;
    const auto count_live = [&](bool restored) {
      return std::ranges::count_if(ListForms<SplitWeight>(records), [&](const SplitWeight* split) {
        return split->merged.empty() == restored && state_.live.IsRead(split->name);
      });
    };
    if (const auto count = count_live(true); count > 0)
      Add("biases that the exporter had removed because they were zeros: ", count, ", trained; the export stores them");
    if (const auto count = count_live(false); count > 0)
      Add("weights of different modules that the exporter had merged: ", count,
          ", trained separately; the export stores them apart where they differ");
    if (const auto copied = ListForms<SplitNodes>(records); !copied.empty())
      Add("nodes that the exporter had merged, though modules of their own have their weights: ", copied.size(), " ('",
          Printable(copied[0]->outputs[0].second), "'", copied.size() > 1 ? ", …" : "",
          "), copied; the export copies those whose weights differ");
    if (const auto computed = ListForms<ComputedFunction>(records); !computed.empty())
      Add("functions of one parameter that the exporter had computed: ", computed.size(), " ('",
          Printable(computed[0]->value), "'", computed.size() > 1 ? ", …" : "", "), whose arguments are trained");
    NoteLookups();
    for (const JoinedWeight* joined : ListForms<JoinedWeight>(records)) {
      if (state_.live.IsRead(joined->value)) Add("'", Printable(joined->value), "' ", DescribeParts(*joined));
    }
    for (const WeightTie* tie : ListForms<WeightTie>(records)) {
      if (!state_.live.IsRead(tie->copy)) continue;
      const bool complement = tie->form == WeightTie::Form::kComplement;
      Add("'", Printable(tie->copy), complement ? "' is 1 − '" : "' stores '", Printable(tie->weight),
          complement ? "', which the exporter computed" : "' a second time",
          tie->form == WeightTie::Form::kTransposed ? ", transposed" : "",
          ": trained as one weight (`tie` none trains them apart)");
    }
  }

  static std::string DescribeParts(const JoinedWeight& joined) {
    for (const JoinedWeight::Part& part : joined.parts) {
      if (part.form == JoinedWeight::Part::Form::kTransposed)
        return StrCat(
            "holds '", Printable(part.weight),
            "' a second time, transposed, beside a matrix: trained as one weight (`tie` none trains it apart)");
    }
    return "has a bias for queries and values; that of keys is zero in the program, and stays so";
  }

  void NoteLookups() {
    std::vector<const RowCopies*> live;
    int assumed = 0;
    const auto& initializers = state_.model.graph.initializers;
    for (const RowCopies* copies : ListForms<RowCopies>(state_.model.graph.records)) {
      if (!state_.live.IsRead(copies->copy)) continue;
      live.push_back(copies);
      const auto table = initializers.find(copies->weight);  // absent if it was merged with an equal table
      assumed += table != initializers.end() && IsAssumed(*copies, table->second) ? 1 : 0;
    }
    if (live.empty()) return;
    if (assumed > 0)
      Add("attention biases of equal numbers: ", assumed,
          ", taken for biases by relative position in a square window, ",
          "one for each offset (`tie` none trains each pair of positions apart)");
    const int64_t rows = *std::ranges::max_element(live[0]->rows) + 1;
    const auto origin = state_.model.graph.origins.find(live[0]->weight);
    const std::string name = origin == state_.model.graph.origins.end() ? "" : origin->second.module_name;
    Add("lookups that the exporter had computed: ", live.size(), " ('", Printable(live[0]->copy),
        "': ", live[0]->rows.size(), " rows, ", rows, " different",
        name.empty() ? "" : StrCat(", of '", Printable(name), "'"), live.size() > 1 ? ", …" : "",
        "), trained once each");
  }

  void NoteBatchNorm() {
    const bool frozen = state_.options.batch_norm_frozen;
    if (const int count = counts_["BatchNormalization"]; count > 0)
      Add("BatchNormalization nodes: ", count,
          frozen ? ", statistics frozen" : ", statistics of the batch, running statistics updated");
    if (frozen_norms_ > 0 && !frozen)
      Add("BatchNormalization nodes whose scale is frozen: ", frozen_norms_, ", they stay in inference mode");
  }

  const OnnxModel& file_;
  const ImportState& state_;
  const std::vector<std::string>& outputs_;
  std::vector<std::string>& notes_;
  std::map<std::string, int> counts_;  // live nodes of each operator
  int frozen_norms_ = 0;
};

}  // namespace

void NoteModel(const OnnxModel& model, const ImportState& state, const std::vector<std::string>& outputs,
               std::vector<std::string>* notes) {
  NoteTaker(model, state, outputs, notes).Run();
}

}  // namespace onnxtrain
