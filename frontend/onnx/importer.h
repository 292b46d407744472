// One import of one model. The parts are spread over importer*.cc:
//   importer.cc           the walk: which nodes, in which scope, into which values; errors collected
//   importer_feeds.cc     model inputs → concrete shapes
//   importer_weights.cc   initializers and Constant nodes → graph inputs or constants; element types
//   importer_forms.cc     forms in which exporters hide weights: filled by a node, stored twice, in half precision
//   importer_node.cc      the ImportContext that operators see; known values; frozen batch extents
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

// The names that a list of nodes sees: its own, then those of the enclosing scopes.
struct ImportScope {
  const ParsedGraph* graph = nullptr;
  ImportScope* parent = nullptr;                  // of a subgraph; functions see nothing outside
  const std::map<std::string, int64_t>* opsets = nullptr;
  const Attrs* call = nullptr;                    // in a function: the calling node's attributes
  std::string prefix;                             // of node sources and value names within a function: "call/"
  std::unordered_map<std::string, Val> values;    // an invalid Val: failed, and reported already
};

class Importer {
 public:
  Importer(const OnnxModel& model, const ImportOptions& options);

  absl::StatusOr<ImportedModel> Run();

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
  absl::Status ImportNodes(ImportScope& scope);
  absl::Status ImportNode(ImportScope& scope, const ParsedNode& node);
  absl::Status ImportIf(ImportScope& scope, const ParsedNode& node, Val condition);
  absl::Status ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function);
  absl::Status ImportOperator(ImportScope& scope, const ParsedNode& node, const OnnxOp& op);
  void Bind(ImportScope& scope, const ParsedNode& node, const std::vector<Val>& results);
  // The value of a name; creates initializers' values when they are first read. Nothing: its node failed.
  std::optional<Val> Lookup(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  void Report(const ParsedNode& node, const absl::Status& status);
  absl::Status Collected() const;
  absl::Status BindOutputs();

  // importer_feeds.cc
  absl::Status CreateFeeds();
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
  Val InitializerValue(ImportScope& scope, const std::string& name, const HostTensor& tensor, const ParsedNode& reader);
  absl::Status ImportConstant(ImportScope& scope, const ParsedNode& node);
  bool ImportSharedIdentity(ImportScope& scope, const ParsedNode& node);
  Weight* FindWeight(Val v);

  // importer_forms.cc
  bool IsFilledWeight(const ImportScope& scope, const ParsedNode& node) const;
  bool OnlyFeedsWeightSlots(const std::string& name, int depth) const;
  absl::StatusOr<bool> ImportFilledWeight(ImportScope& scope, const ParsedNode& node);
  void ThawState(const Attrs& attrs, std::vector<Val>* inputs);
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
  void MakeNotes();
  ImportedModel Finish();

  const OnnxModel& file_;
  const OnnxModel::Parsed& model_;
  const ImportOptions& options_;
  Graph graph_;
  Builder builder_;
  ImportScope root_;
  std::vector<std::string> outputs_;
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
  std::vector<bool> fed_;                         // by value id: depends on a feed
  size_t constant_bytes_ = 0;                     // of Constant nodes so far
  std::vector<StateUpdate> state_updates_;
  std::vector<std::pair<ValueId, ValueId>> update_values_;  // state, new value
  std::vector<std::string> errors_;
  absl::StatusCode error_code_ = absl::StatusCode::kOk;
  int copies_ = 0;                                // initializers that the exporter had merged
  int filled_ = 0;                                // weights that ConstantOfShape nodes fill
  int64_t filled_bytes_ = 0;
  int64_t nodes_expanded_ = 0;                    // of functions and branches
  Val random_key_;
  std::vector<std::string> notes_;
};

}  // namespace onnxtrain
