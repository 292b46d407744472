#include "frontend/onnx/read/input_texts.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace onnxtrain {
namespace {

class TextNumberer {
 public:
  explicit TextNumberer(ParsedGraph* graph) : graph_(*graph) {}

  // Returns the texts by place; null where nothing changed.
  std::shared_ptr<const std::vector<std::string>> Run() {
    for (const ParsedValue& input : graph_.inputs) {
      if (IsTextInput(input)) values_.insert(input.name);
    }
    if (values_.empty() || !std::ranges::all_of(graph_.nodes, [this](const auto& node) { return Follow(node); }))
      return nullptr;
    for (ParsedNode& node : graph_.nodes) {
      if (ReadsTexts(node)) Rewrite(&node);
    }
    for (ParsedValue& input : graph_.inputs) {
      if (IsTextInput(input)) input.dtype = DType::kInt64;
    }
    return std::make_shared<const std::vector<std::string>>(std::move(texts_));
  }

 private:
  static bool IsTextInput(const ParsedValue& input) { return !input.dtype && input.kind == kTextKind; }

  bool ReadsTexts(const ParsedNode& node) const {
    const auto is_text = [this](const std::string& name) { return values_.contains(name); };
    return std::ranges::any_of(node.inputs, is_text) || std::ranges::any_of(node.captured, is_text);
  }

  // Follows the texts through a node. False: it does something else with them.
  bool Follow(const ParsedNode& node) {
    if (!ReadsTexts(node)) return true;
    const OnnxTraits& traits = GetOnnxTraits(node);
    const bool looks_up = Has(node, traits.text_keys), moves = traits.view || (traits.moves && MovesTextsOnly(node));
    if (!node.graphs.empty() || (!looks_up && !moves)) return false;
    if (moves || Has(node, traits.text_values)) values_.insert(node.outputs.begin(), node.outputs.end());
    values_.erase("");
    return true;
  }

  static bool Has(const ParsedNode& node, const TextAttr& attr) {
    return !attr.texts.empty() && node.strings.contains(std::string(attr.texts));
  }

  // Strings of the file beside those of the input have no numbers.
  bool MovesTextsOnly(const ParsedNode& node) const {
    return std::ranges::none_of(node.inputs, [this](const auto& name) { return graph_.opaque.contains(name); });
  }

  void Rewrite(ParsedNode* node) {
    const OnnxTraits& traits = GetOnnxTraits(*node);
    if (Has(*node, traits.text_keys)) Number(traits.text_keys, node);
    if (!Has(*node, traits.text_values)) return;
    Number(traits.text_values, node);
    node->attrs.Set("default_int64", FindPlace(node->attrs.String("default_string", "_Unused")));
  }

  void Number(const TextAttr& attr, ParsedNode* node) {
    const std::string texts(attr.texts);
    std::vector<int64_t> places;
    for (const std::string& text : node->strings.at(texts)) places.push_back(FindPlace(text));
    node->attrs.Erase(texts);
    node->strings.erase(texts);
    node->opaque.erase(texts);
    node->attrs.Set(std::string(attr.places), std::move(places));
  }

  int64_t FindPlace(const std::string& text) {
    const auto [it, added] = places_.emplace(text, std::ssize(texts_));
    if (added) texts_.push_back(text);
    return it->second;
  }

  ParsedGraph& graph_;
  std::vector<std::string> texts_;
  std::set<std::string> values_;  // that hold texts
  std::unordered_map<std::string, int64_t> places_;
};

}  // namespace

void NumberInputTexts(OnnxModel::Parsed* model) { model->texts = TextNumberer(&model->graph).Run(); }

}  // namespace onnxtrain
