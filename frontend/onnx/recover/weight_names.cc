#include "frontend/onnx/recover/weight_index.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/torch_reads.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

Kind OriginKind(SignatureEntry::Kind kind) {
  switch (kind) {
    case SignatureEntry::Kind::kParameter:
      return Kind::kParameter;
    case SignatureEntry::Kind::kBuffer:
      return Kind::kBuffer;
    case SignatureEntry::Kind::kConstant:
      break;
  }
  return Kind::kConstant;
}

std::string WithoutDigits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

// Returns the name before the suffix of ONNX Runtime's MatMulNBitsQuantizer: "val_3" of "val_3_Q4" and "val_3_DQ_Q4".
// "" without a suffix.
std::string NameBeforeQuantization(const std::string& name) {
  const size_t at = name.rfind("_Q");
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (at == std::string::npos || at + 2 == name.size() || !std::all_of(name.begin() + at + 2, name.end(), is_digit))
    return "";
  const std::string stem = name.substr(0, at);
  return stem.ends_with("_DQ") ? stem.substr(0, stem.size() - 3) : stem;
}

// Returns the length of the bias that a product or convolution with this weight takes; 0 for other nodes.
int64_t CountBiasChannels(const ParsedNode& node, const HostTensor& weight) {
  const Shape& shape = weight.shape();
  int64_t channels = 0;
  if (shape.size() < 2 || !node.domain.empty()) return 0;
  const int64_t last = node.op_type == "Gemm" && node.attrs.Int("transB") == 0 ? 1 : 0;
  if (node.op_type == "Gemm" && node.attrs.Float("beta", 1) == 1) channels = shape[last];
  if (node.op_type == "Conv") channels = shape[0];
  if (node.op_type == "ConvTranspose" && node.attrs.Int("group", 1) == 1) channels = shape[1];
  return channels <= weight.size() ? channels : 0;
}

// Returns true for linear(input, weight, bias) and convolutions, whose third argument is a bias of any name.
bool TakesBiasThird(const FxNode& fx) {
  return fx.args.size() == 3 &&
         (fx.target.starts_with("torch.ops.aten.linear.") || fx.target.starts_with("torch.ops.aten.conv"));
}

// Names the initializers after the parameters that they hold, splits those that hold several, and lists what the
// exporter computed of parameters.
class TorchNamer {
 public:
  explicit TorchNamer(const WeightIndex& index)
      : metadata_(index.metadata()), graph_(index.graph()), reads_(MatchTorchReads(index)), splitter_(index) {
    findings_.looked_up = reads_.looked_up;
    for (const std::string& name : reads_.folded_constants) origins_[name].kind = Kind::kConstant;
    for (const auto& [name, parameters] : reads_.folded_from) origins_[name].kind = Kind::kParameter;
  }

  TorchNaming Run() {
    for (const std::string& name : std::vector(graph_.initializer_order)) Decide(name);
    const std::set<std::string> held = HeldParameters();
    RestoreBiases(held);
    ListMissing(held);
    ListFolded();
    NameQuantized();
    ListOrigins();
    return std::move(findings_);
  }

 private:
  // Returns true if two parameters of equal bytes are distinct: both fresh, or of cloned layers. Other pairs are tied
  // in the program, such as the embedding and the head of a language model.
  bool AreApart(const HostTensor& value, const std::string& a, const std::string& b) const {
    return IsSplat(value) || WithoutDigits(reads_.Entry(a).target) == WithoutDigits(reads_.Entry(b).target);
  }

  void Decide(const std::string& name) {
    const auto found = reads_.by_weight.find(name);
    if (found == reads_.by_weight.end()) return;
    const std::vector<TorchRead*>& reads = found->second;
    const std::string main = MainPlaceholder(name, reads);
    SetOrigin(name, main, reads);
    std::map<std::string, std::vector<FileReader>> others;  // by placeholder, "" for derived constants
    for (const TorchRead* read : reads) {
      const bool other = !read->placeholder.empty() && read->placeholder != main &&
                         AreApart(graph_.initializers.at(name), main, read->placeholder);
      const bool derived = read->derived && !main.empty() && reads.size() > 1 && IsSplat(graph_.initializers.at(name));
      if (other || derived) others[read->placeholder].push_back(MakeFileReader(*read->node, read->input));
    }
    for (const auto& [placeholder, readers] : others) Split(name, placeholder, readers);
    if (reads_.IsMadeOfSeveral(name) || IsFreshPart(name)) SplitExpressions(name, reads);
  }

  // Returns true if it is a part of one parameter, such as a row, that equals the other parts.
  bool IsFreshPart(const std::string& name) const {
    return reads_.folded_from.contains(name) && IsPart(name) && IsSplat(graph_.initializers.at(name));
  }

  // Splits expressions of several parameters each, such as the joined biases of an attention, and parts of one
  // parameter, that were equal in a fresh model.
  void SplitExpressions(const std::string& name, const std::vector<TorchRead*>& reads) {
    const WeightOrigin origin = origins_[name];
    std::map<std::string, std::vector<FileReader>> others;  // by the argument
    for (const TorchRead* read : reads) {
      const std::string arg = read->placeholder.empty() ? OtherExpression(*read) : "";
      if (!arg.empty()) others[arg].push_back(MakeFileReader(*read->node, read->input));
    }
    for (const auto& [arg, readers] : others)
      origins_[splitter_.Plan({.name = arg, .merged = name, .readers = readers})] = origin;
  }

  // Returns another argument of the reader's fx node that the same operator computed: "cat_4" for "cat_1"; "" if there
  // is none.
  std::string OtherExpression(const TorchRead& read) const {
    if (read.node->fx == nullptr || std::ranges::count(read.node->fx->args, read.weight) > 0) return "";
    std::set<std::string> args;
    for (const std::string& arg : read.node->fx->args) {
      if (StripNumber(arg) == StripNumber(read.weight) && !reads_.known.contains(arg)) args.insert(arg);
    }
    return args.size() == 1 ? *args.begin() : "";
  }

  std::set<std::string> HeldParameters() const {
    std::set<std::string> held;
    for (const auto& [name, origin] : origins_) held.insert(origin.module_name);
    return held;
  }

  // Restores zero biases that the exporter removed from a fresh model. The fx nodes of their readers still name them.
  void RestoreBiases(const std::set<std::string>& held) {
    std::map<std::string, std::vector<FileReader>> removed;  // by the name of the bias
    for (const ParsedNode& node : graph_.nodes) {
      const std::string bias = RemovedBias(node);
      if (!bias.empty() && !held.contains(bias)) removed[bias].push_back(MakeFileReader(node, 2));
    }
    for (const auto& [bias, readers] : removed) {
      const std::string name = splitter_.Plan({.name = bias, .merged = "", .readers = readers});
      origins_[name] = {.kind = Kind::kParameter, .module_name = bias};
      restored_.insert(bias);
    }
  }

  // Returns the bias among the arguments of the fx node, if the node lacks one that it can have; else "".
  std::string RemovedBias(const ParsedNode& node) const {
    if (node.fx == nullptr || node.inputs.size() != 2) return "";
    const auto weight = graph_.initializers.find(node.inputs[1]);
    if (weight == graph_.initializers.end() || CountBiasChannels(node, weight->second) == 0) return "";
    std::set<std::string> biases;
    const std::vector<std::string>& args = node.fx->args;
    for (size_t i = 0; i < args.size(); ++i) {
      const auto entry = metadata_.signature.find(args[i]);
      if (entry == metadata_.signature.end() || entry->second.kind != SignatureEntry::Kind::kParameter) continue;
      const bool third = i == 2 && TakesBiasThird(*node.fx);
      if (third || LastPart(entry->second.target).ends_with("bias")) biases.insert(entry->second.target);
    }
    return biases.size() == 1 ? *biases.begin() : "";
  }

  void ListMissing(const std::set<std::string>& held) {
    std::set<std::string> read;  // the program may have parameters that it does not use
    for (const ParsedNode& node : graph_.nodes) {
      if (node.fx != nullptr) read.insert(node.fx->args.begin(), node.fx->args.end());
    }
    for (const auto& [placeholder, entry] : metadata_.signature) {
      if (entry.kind != SignatureEntry::Kind::kParameter || held.contains(entry.target) ||
          restored_.contains(entry.target))
        continue;
      // A weight or bias that nothing reads is unused or tied; single factors and terms may have been removed.
      const std::string_view part = LastPart(entry.target);
      if (read.contains(placeholder)) {
        findings_.missing.push_back(entry.target);
      } else if (!part.ends_with("weight") && !part.ends_with("bias")) {
        findings_.unread.push_back(entry.target);
      }
    }
  }

  // Returns true if another initializer holds the parameter that `name` was folded from, with other values.
  bool IsStoredBeside(const std::string& name, const std::string& placeholder) const {
    const HostTensor& value = graph_.initializers.at(name);
    return std::ranges::any_of(reads_.identity, [&](const auto& other) {
      if (other.first == name || other.second != placeholder || !graph_.initializers.contains(other.first))
        return false;
      const HostTensor& stored = graph_.initializers.at(other.first);
      return !(stored.type() == value.type() && stored.SameBytes(value)) && !IsTransposeOf(stored, value);
    });
  }

  // Returns true if the initializer, folded from one parameter, trains differently from it: its numbers differ, or its
  // gathered rows cannot be distinguished. Buffers that a product reads with the parameter are operands; those of
  // lookups are indices.
  bool IsExpression(const std::string& name) const {
    const std::vector<std::string>& sources = metadata_.weights.at(name).folded_from;
    const bool reads_buffer = std::ranges::any_of(sources, [&](const std::string& source) {
      const auto it = reads_.placeholder_of.find(source);
      return it != reads_.placeholder_of.end() && reads_.Entry(it->second).kind == SignatureEntry::Kind::kBuffer;
    });
    if (IsArithmetic(name, sources)) return true;
    if (IsLookedUp(name, sources)) return IsSplat(graph_.initializers.at(name));
    return reads_buffer && IsExporterName(name);
  }

  // Lists the initializer if it is exp(p), −exp(p) or the like. It remains an expression where p cannot be trained.
  void ListFunction(const std::string& name) {
    static constexpr std::pair<std::string_view, ParameterFunction> kFunctions[] = {
        {"exp", ParameterFunction::kExp}, {"sigmoid", ParameterFunction::kSigmoid}, {"tanh", ParameterFunction::kTanh}};
    if (splitter_.IsSplit(name)) return;  // others would be expressions, too
    const std::vector<std::string> sources = reads_.WithoutParameters(metadata_.weights.at(name).folded_from);
    const std::vector<std::string_view> steps = ListSteps(name, sources);
    if (steps == std::vector<std::string_view>{"exp", "neg"})  // −exp(p) if the values are negative
      findings_.functions.emplace_back(name, ParameterFunction::kNegatedExp);
    if (IsSoftplus(steps)) findings_.functions.emplace_back(name, ParameterFunction::kSoftplus);
    for (const auto& [known, function] : kFunctions) {
      if (steps == std::vector<std::string_view>{known}) findings_.functions.emplace_back(name, function);
    }
  }

  void ListFolded() {
    for (const auto& [name, parameters] : reads_.folded_from) {
      if (!reads_.by_weight.contains(name)) continue;
      const bool alone = parameters.size() == 1 && !IsStoredBeside(name, parameters[0]);
      if (alone && !IsExpression(name)) continue;
      if (alone) ListFunction(name);
      FoldedWeight folded{.name = name};
      for (const std::string& placeholder : parameters) folded.parameters.push_back(reads_.Entry(placeholder).target);
      findings_.folded.push_back(std::move(folded));
    }
    for (const TorchRead* read : reads_.computed)
      findings_.folded.push_back({.name = read->weight, .parameters = {reads_.Entry(read->placeholder).target}});
  }

  void Split(const std::string& merged, const std::string& placeholder, const std::vector<FileReader>& readers) {
    const bool derived = placeholder.empty();
    const std::string target = derived ? merged + ".constant" : reads_.Entry(placeholder).target;
    const std::string name = splitter_.Plan({.name = target, .merged = merged, .readers = readers});
    if (!derived && std::ranges::count(findings_.looked_up, merged) > 0) findings_.looked_up.push_back(name);
    origins_[name] = {.kind = derived ? Kind::kConstant : OriginKind(reads_.Entry(placeholder).kind),
                      .module_name = derived ? "" : target};
  }

  // Returns the parameter that keeps the initializer's name; "" if none is known.
  std::string MainPlaceholder(const std::string& name, const std::vector<TorchRead*>& reads) const {
    const std::string* own = reads_.Identity(name);
    const auto is_own = [&](const TorchRead* r) {
      return !r->derived && (r->placeholder.empty() || r->placeholder == *own);
    };
    if (own != nullptr && std::ranges::any_of(reads, is_own)) return *own;
    const auto first = std::ranges::find_if(reads, [](const TorchRead* r) { return !r->placeholder.empty(); });
    return first != reads.end() ? (*first)->placeholder : own != nullptr ? *own : "";
  }

  void SetOrigin(const std::string& name, const std::string& placeholder, const std::vector<TorchRead*>& reads) {
    WeightOrigin& origin = origins_[name];
    if (!placeholder.empty()) {
      origin = {.kind = OriginKind(reads_.Entry(placeholder).kind), .module_name = reads_.Entry(placeholder).target};
    } else if (origin.kind == Kind::kUnknown) {
      const bool weight =
          std::ranges::any_of(reads, [](const TorchRead* r) { return TakesWeight(*r->node, r->input); });
      const bool traced = std::ranges::all_of(reads, [](const TorchRead* r) { return r->node->fx != nullptr; });
      if (traced && !weight) origin.kind = Kind::kConstant;
    }
  }

  // Names the numbers of quantized weights, whose nodes have no metadata, after the parameters that the quantizer read.
  void NameQuantized() {
    for (const std::string& name : graph_.initializer_order) {
      const auto weight = metadata_.weights.find(NameBeforeQuantization(name));
      if (IsFloat(graph_.initializers.at(name).dtype()) || weight == metadata_.weights.end()) continue;
      const std::vector<std::string>& sources = weight->second.folded_from;
      if (sources.size() == 1 && reads_.IsParameter(sources[0])) origins_[name].module_name = sources[0];
    }
  }

  void ListOrigins() {
    for (const std::string& name : graph_.initializer_order) {
      const auto origin = origins_.find(name);
      if (origin == origins_.end()) continue;
      const std::string& module_name = origin->second.module_name;
      const std::string why = module_name.empty() ? "the metadata of torch.export names no parameter for it"
                                                  : StrCat("it is '", module_name, "' in the exported module");
      findings_.origins.push_back({.weight = name, .why = why, .form = origin->second});
    }
    for (SplitWeight split : splitter_.TakeSplits()) {
      split.origin = origins_[split.name];
      const bool restored = split.merged.empty();
      const std::string why = restored
                                  ? "the exporter removed a bias of zeros"
                                  : StrCat("the exporter stored it in '", split.merged, "', which had equal bytes");
      (restored ? findings_.restored : findings_.splits).push_back({.weight = split.name, .why = why, .form = split});
    }
  }

  const TorchMetadata& metadata_;
  const ParsedGraph& graph_;
  const TorchReads reads_;
  WeightOrigins origins_;
  SplitPlanner splitter_;
  TorchNaming findings_;
  std::set<std::string> restored_;  // biases
};

}  // namespace

bool TakesWeight(const ParsedNode& node, size_t input) {
  const OnnxTraits& traits = GetOnnxTraits(node);
  const bool elementwise = (traits.weight_inputs & 1) != 0 && !traits.classifier;
  return !elementwise && input < 32 && (traits.weight_inputs >> input & 1) != 0;
}

bool ReadsShapeOnly(const ParsedNode& node) {
  return node.domain.empty() && (node.op_type == "Shape" || node.op_type == "Size");
}

FileReader MakeFileReader(const ParsedNode& node, size_t input) {
  const auto output = std::ranges::find_if(node.outputs, [](const std::string& o) { return !o.empty(); });
  return {.node = output == node.outputs.end() ? "" : *output, .input = input};
}

std::string SplitPlanner::Plan(SplitWeight split) {
  const std::string name = split.name;
  for (int i = 1; index_.IsNameTaken(split.name) || !names_.insert(split.name).second; ++i)
    split.name = StrCat(name, "_", i);
  splits_.push_back(std::move(split));
  return splits_.back().name;
}

bool SplitPlanner::IsSplit(const std::string& merged) const {
  return std::ranges::count(splits_, merged, &SplitWeight::merged) > 0;
}

absl::StatusOr<WeightRecords> MatchOrigins(WeightIndex* index) {
  if (!index->metadata().signature.empty()) index->naming = TorchNamer(*index).Run();
  return index->naming.origins;
}

absl::StatusOr<WeightRecords> MatchMergedWeights(WeightIndex* index) { return index->naming.splits; }

absl::StatusOr<WeightRecords> MatchRemovedBiases(WeightIndex* index) { return index->naming.restored; }

void BuildOrigin(const WeightRecord& record, WeightIndex* index) {
  index->mutable_graph().origins[record.weight] = std::get<WeightOrigin>(record.form);
}

void BuildSplit(const WeightRecord& record, WeightIndex* index) {
  const auto& split = std::get<SplitWeight>(record.form);
  ParsedGraph& graph = index->mutable_graph();
  HostTensor value;
  if (split.merged.empty()) {
    const ParsedNode& product = *index->Producer(split.readers[0].node);
    const HostTensor& weight = graph.initializers.at(product.inputs[1]);
    value = HostTensor({weight.dtype(), {CountBiasChannels(product, weight)}});
  } else {
    value = graph.initializers.at(split.merged);
  }
  for (const FileReader& reader : split.readers) {
    ParsedNode* node = index->Producer(reader.node);
    if (node == nullptr) continue;  // its outputs have no readers
    std::vector<std::string>& inputs = node->inputs;
    inputs.resize(std::max(inputs.size(), reader.input + 1));
    inputs[reader.input] = split.name;
  }
  graph.initializers.emplace(split.name, std::move(value));
  graph.initializer_order.push_back(split.name);
  graph.origins[split.name] = split.origin;
}

// An untrained weight has the bytes of the initializer that it was merged into, or is zero.
absl::Status WriteSplit(const WeightRecord& record, StoredWeights* weights) {
  const auto& split = std::get<SplitWeight>(record.form);
  StoredWeights::Split stored{.split = &split};
  if (const auto trained = weights->tensors.extract(split.name); !trained.empty()) stored.value = trained.mapped();
  weights->splits.insert(weights->splits.begin(), std::move(stored));
  return absl::OkStatus();
}

}  // namespace onnxtrain
