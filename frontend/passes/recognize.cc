#include "frontend/passes/recognize.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "frontend/passes/match.h"
#include "frontend/passes/prove.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

// Limits the proofs of one graph. Real models have some hundred different regions, files made to be slow any number.
constexpr size_t kMaxRefuted = 4000;

class Recognizer {
 public:
  explicit Recognizer(const Graph& graph) : pattern_(graph) {
    for (auto patterns : {NormPatterns(), FunctionPatterns()}) {
      for (const RegionPattern& p : patterns) searches_.emplace_back(p, graph);
    }
  }

  // Visits nodes from the end of the graph, so that a larger pattern precedes a smaller one inside it.
  std::map<ValueId, Match> Run() {
    const auto& nodes = pattern_.graph().nodes();
    for (size_t n = nodes.size(); n-- > 0;) {
      const Node& node = nodes[n];
      if (node.outputs.size() != 1 || covered_.contains(node.outputs[0]) || pattern_.IsWeight(node.outputs[0]))
        continue;
      Visit(node);
    }
    return std::move(matches_);
  }

 private:
  struct Search {
    Search(const RegionPattern& p, const Graph& graph) : pattern(p) {
      std::ranges::transform(graph.nodes(), std::back_inserter(allowed), p.allows);
    }

    const RegionPattern& pattern;
    std::vector<bool> allowed;               // by node
    std::set<std::vector<int32_t>> refuted;  // signatures of regions without a match
  };

  void Visit(const Node& node) {
    for (auto propose : {ProposeAttention, ProposeCrossEntropy}) {
      if (Take(propose(pattern_, node))) return;
    }
    for (Search& search : searches_) {
      if (Grow(&search, node.outputs[0])) return;
    }
  }

  bool Grow(Search* search, ValueId root) {
    const RegionPattern& p = search->pattern;
    MatchedRegion region(pattern_, root);
    while (region.CanEndWithin(p.most_nodes) && region.Grow(search->allowed)) {
      if (!region.only_leaf().has_value()) continue;
      std::vector<int32_t> signature = region.signature();
      if (search->refuted.contains(signature)) continue;
      if (search->refuted.size() >= kMaxRefuted) return false;
      if (Take(p.propose(region))) return true;
      search->refuted.insert(std::move(signature));
    }
    return false;
  }

  bool Take(Proposals proposals) {
    for (Match& match : proposals) {
      if (!IsMatchProven(pattern_.graph(), match)) continue;
      covered_.insert(match.covers.begin(), match.covers.end());
      matches_.emplace(match.root, std::move(match));
      return true;
    }
    return false;
  }

  Pattern pattern_;
  std::map<ValueId, Match> matches_;  // by root
  std::set<ValueId> covered_;
  std::vector<Search> searches_;
};

}  // namespace

absl::StatusOr<Graph> Recognize(const Graph& graph, std::map<std::string, int>* found) {
  const std::map<ValueId, Match> matches = Recognizer(graph).Run();
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    auto it = node.outputs.size() == 1 ? matches.find(node.outputs[0]) : matches.end();
    if (it == matches.end()) return std::nullopt;
    if (found != nullptr) ++(*found)[std::string(it->second.op)];
    std::vector<Val> leaves;
    for (const auto& leaf : it->second.leaves) leaves.push_back(r.Map(leaf.value));
    return std::vector<Val>{it->second.form(r.b(), leaves)};
  });
}

}  // namespace onnxtrain
