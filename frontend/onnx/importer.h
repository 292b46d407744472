// One import of one model. The parts are spread over importer*.cc:
//   importer.cc           the walk: which nodes, in which scope, into which values; errors collected
//   importer_feeds.cc     model inputs → concrete shapes
//   importer_weights.cc   initializers and Constant nodes → graph inputs or constants; element types
//   importer_forms.cc     forms in which exporters hide weights: filled by a node, stored twice, in half precision
//   importer_node.cc      the ImportContext that operators see; known values; frozen batch extents
//   importer_control.cc   If, Loop, Scan, SequenceMap: bodies in scopes of their own
//   importer_sequence.cc  operators on sequences and optionals
//   importer_gradient.cc  nodes that ask for the gradient of a value
//   importer_finish.cc    what is read, kinds of weights, notes
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/onnx/parsed.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

// A sequence or an optional. There is none at run time: import keeps track of the elements.
struct ListValue {
  ValueForm form;
  bool present = true;        // false: an optional that holds nothing
  std::vector<Val> elements;  // of the sequence; of an optional tensor that is present: one
};

// What a name stands for: a tensor, a list, or (neither) nothing.
struct ImportValue {
  ImportValue() = default;
  ImportValue(Val v) : tensor(v) {}
  ImportValue(ListValue v) : list(std::make_shared<const ListValue>(std::move(v))) {}

  bool valid() const { return tensor.valid() || list != nullptr; }

  Val tensor;
  std::shared_ptr<const ListValue> list;
};

// The names that a list of nodes sees: its own, then those of the enclosing scopes.
struct ImportScope {
  const ParsedGraph* graph = nullptr;
  ImportScope* parent = nullptr;                  // of a subgraph; functions see nothing outside
  const std::map<std::string, int64_t>* opsets = nullptr;
  const Attrs* call = nullptr;                    // in a function: the calling node's attributes
  std::string prefix;                             // of node sources and value names within a function: "call/"
  std::unordered_map<std::string, ImportValue> values;  // an invalid one: failed, and reported already
};

// The status of a node whose failure has been reported with a node of its body.
absl::Status AlreadyReported();

class Importer {
 public:
  Importer(const OnnxModel& model, const ImportOptions& options);

  absl::StatusOr<ImportedModel> Run();
  // The first part of it: what is needed for the outputs, and whether all of its operators are known.
  absl::Status Survey();

 private:
  friend class NodeContext;

  struct Weight {
    ValueId value;
    std::string name;
    HostTensor tensor;
    std::string consumer;
    bool state = false, updated = false;
  };

  // importer.cc
  void ChooseOutputs();
  void MarkNeeded();
  absl::Status CheckOperators();
  static bool IsBuiltIn(const ParsedNode& node);
  absl::Status ImportNodes(ImportScope& scope);
  absl::Status CountExpanded();
  absl::Status ImportNode(ImportScope& scope, const ParsedNode& node);
  absl::Status ImportGradient(ImportScope& scope, const ParsedNode& node);  // importer_gradient.cc
  absl::Status ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function);
  absl::Status ImportOperator(ImportScope& scope, const ParsedNode& node, const OnnxOp& op);
  void Bind(ImportScope& scope, const ParsedNode& node, const std::vector<ImportValue>& results);
  // The value of a name; creates initializers' values when they are first read. Nothing: its node failed.
  std::optional<ImportValue> LookupAny(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // The same of a tensor. A sequence or optional is reported, and then nothing.
  std::optional<Val> Lookup(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // What the node's inputs stand for. All of them have been looked up before.
  std::vector<ImportValue> InputsOf(ImportScope& scope, const ParsedNode& node);
  void Report(const ParsedNode& node, const absl::Status& status);
  absl::Status Collected() const;
  absl::Status BindOutputs();
  absl::Status BindOutput(const std::string& name, const ImportValue& value);

  // importer_control.cc
  using ResultsOr = absl::StatusOr<std::vector<ImportValue>>;
  // Null where the node is none of these.
  using ControlFn = ResultsOr (Importer::*)(ImportScope&, const ParsedNode&, std::vector<ImportValue> inputs);
  static ControlFn FindControl(const ParsedNode& node);
  ResultsOr ImportIf(ImportScope& scope, const ParsedNode& node, std::vector<ImportValue> inputs);
  ResultsOr ImportLoop(ImportScope& scope, const ParsedNode& node, std::vector<ImportValue> inputs);
  ResultsOr ImportScan(ImportScope& scope, const ParsedNode& node, std::vector<ImportValue> inputs);
  ResultsOr RunScan(ImportScope& scope, const ParsedNode& node, std::string_view label, const std::vector<ImportValue>& inputs,
                    bool version8);
  ResultsOr ImportScan8(ImportScope& scope, const ParsedNode& node, std::vector<ImportValue> inputs);
  ResultsOr ImportSequenceMap(ImportScope& scope, const ParsedNode& node, std::vector<ImportValue> inputs);
  ResultsOr ImportBothBranches(ImportScope& scope, const ParsedNode& node, Val condition);
  // Runs a body of the node with these values as its inputs; a failure within is reported there and stops the caller
  // with AlreadyReported.
  ResultsOr ImportBody(ImportScope& scope, const ParsedNode& node, std::string_view attribute, std::string_view label,
                       std::vector<ImportValue> inputs);
  absl::StatusOr<const ParsedGraph*> BodyOf(const ParsedNode& node, std::string_view attribute) const;
  bool IsRead(const ImportScope& scope, const std::string& output) const;
  // A value of one element that must be known at import; `what` says in messages what it is.
  absl::StatusOr<int64_t> KnownNumber(const ImportValue& value, std::string_view what);

  // importer_sequence.cc
  static bool IsListOperator(const ParsedNode& node);
  ResultsOr ImportListOperator(const ParsedNode& node, const Attrs& attrs, const std::vector<ImportValue>& inputs);

  // importer_feeds.cc
  absl::Status CreateFeeds();
  absl::Status CreateListFeed(const ParsedValue& input);
  absl::StatusOr<Shape> FeedShape(const ParsedValue& input);
  absl::StatusOr<int64_t> FreeDim(const ParsedValue& input, size_t axis) const;
  HostTensor ForBatch(const HostTensor& fixed) const;
  void FindFrozenBatch();
  void CollectDimNames();

  // importer_weights.cc
  DType MappedType(DType dtype) const;
  HostTensor Mapped(const HostTensor& tensor) const;
  void MapTypes(const ParsedNode& node, Attrs* attrs) const;
  bool IsConstant(const ParsedGraph& graph, const std::string& name, const HostTensor& tensor) const;
  Val AddWeight(const std::string& name, HostTensor tensor, const ParsedNode& reader);
  Val AttributeWeight(const ParsedNode& node, std::string_view attribute, HostTensor tensor);
  Val InitializerValue(ImportScope& scope, const std::string& name, const HostTensor& tensor, const ParsedNode& reader);
  absl::Status ImportConstant(ImportScope& scope, const ParsedNode& node);
  bool ImportSharedIdentity(ImportScope& scope, const ParsedNode& node);
  Val FloatWeight(Val integers, const HostTensor& value, const ParsedNode& reader);
  Weight* FindWeight(Val v);

  // importer_forms.cc
  bool IsFilledWeight(const ImportScope& scope, const ParsedNode& node) const;
  bool OnlyFeedsWeightSlots(const std::string& name, int depth) const;
  absl::StatusOr<bool> ImportFilledWeight(ImportScope& scope, const ParsedNode& node);
  bool RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead) const;
  void NoteWeightForms();
  void NoteTies();

  // importer_node.cc
  absl::StatusOr<Attrs> ResolveAttrs(const ImportScope& scope, const ParsedNode& node) const;
  const HostTensor* KnownValue(ValueId value);
  absl::Status ThawBatch(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs);
  absl::StatusOr<bool> ThawShape(const ParsedNode& node, Val data, std::vector<int64_t>* target);
  void ThawConcat(std::vector<Val>* inputs, const Attrs& attrs);
  void ExtendFed();
  bool IsFed(Val v) const { return v.valid() && fed_[v.id()]; }

  // importer_finish.cc
  absl::Status CheckThawedOutputs() const;
  void DecideKinds();
  bool NormIsFrozen(const ParsedNode& node) const;
  int CountFrozenNorms() const;
  void MakeNotes();
  std::map<std::string, std::string> ExposeLogits();
  ImportedModel Finish();

  const OnnxModel& file_;
  const OnnxModel::Parsed& model_;
  const ImportOptions& options_;
  Graph graph_;
  Builder builder_;
  ImportScope root_;
  std::vector<std::string> outputs_;              // as asked for
  std::vector<std::string> output_names_;         // of the graph: lists become their elements
  std::unordered_set<const ParsedNode*> needed_nodes_;
  std::unordered_set<std::string> needed_names_;                                        // of the top graph
  std::unordered_map<std::string, std::vector<const ParsedNode*>> readers_;             // needed nodes, by name read
  std::unordered_map<std::string, const ParsedNode*> producers_;                        // needed nodes, by output name
  std::map<std::string, int64_t> dims_;                                                 // by dim name
  int64_t batch_ = 1;
  int64_t frozen_batch_ = 0;                      // the fixed leading extent that batch_ replaces, or 0
  std::vector<Weight> weights_;
  std::map<ValueId, size_t> weight_of_;
  std::map<ValueId, std::optional<HostTensor>> known_;
  std::map<ValueId, ValueId> logits_;             // prediction → what it is the softmax of
  std::vector<bool> fed_;                         // by value id: depends on a feed
  size_t constant_bytes_ = 0;                     // of Constant nodes so far
  std::vector<StateUpdate> state_updates_;
  std::vector<std::pair<ValueId, ValueId>> update_values_;  // state, new value
  std::vector<std::string> errors_;
  absl::StatusCode error_code_ = absl::StatusCode::kOk;
  int copies_ = 0;                                // initializers that the exporter had merged
  int filled_ = 0;                                // weights that ConstantOfShape nodes fill
  int64_t filled_bytes_ = 0;
  int64_t nodes_expanded_ = 0;                    // of functions and bodies
  int body_weights_ = 0;                          // float tensors that bodies hold themselves
  int conditional_ = 0;                           // how many branches that may not be taken we are in
  std::map<std::pair<const ParsedGraph*, std::string>, Val> body_constants_;  // initializers of bodies, shared by runs
  Val random_key_;
  std::vector<std::string> notes_;
};

}  // namespace onnxtrain
