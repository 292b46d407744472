#include <limits>

#include "frontend/base/status.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

// Finds all tokens that are prefixes of a text.
class ByteTrie {
 public:
  ByteTrie() : nodes_(1) {}

  void Add(std::string_view token, TokenId id) {
    uint32_t node = 0;
    for (const char c : token) {
      const auto [child, added] = children_.try_emplace(Key(node, c), static_cast<uint32_t>(nodes_.size()));
      if (added) nodes_.push_back(-1);
      node = child->second;
    }
    nodes_[node] = id;
  }

  // Calls visit(bytes, id) for each, shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto child = children_.find(Key(node, text[i]));
      if (child == children_.end()) return;
      node = child->second;
      if (nodes_[node] >= 0) visit(i + 1, nodes_[node]);
    }
  }

 private:
  static uint64_t Key(uint32_t node, char c) { return uint64_t{node} << 8 | static_cast<unsigned char>(c); }
  std::vector<TokenId> nodes_;  // -1: no token ends here
  absl::flat_hash_map<uint64_t, uint32_t> children_;
};

class Unigram : public TokenModel {
 public:
  explicit Unigram(const UnigramSpec& spec) : unknown_(spec.unknown), byte_fallback_(spec.byte_fallback) {
    double least = std::numeric_limits<double>::max();
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const auto& [token, score] = spec.tokens[i];
      const auto id = static_cast<TokenId>(i);
      if (!token.empty()) trie_.Add(token, id);
      vocabulary_.Add(token, id);
      scores_.push_back(score);
      least = std::min(least, score);
    }
    constexpr double kUnknownPenalty = 10;
    unknown_score_ = least - kUnknownPenalty;
    for (int b = 0; b < 256; ++b) bytes_[b] = Find(ByteToken(static_cast<unsigned char>(b))).value_or(-1);
  }

  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    const std::vector<Node> best = FindBestPath(piece);
    std::vector<Token> path;  // in reverse order; runs of unknown characters are joined
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      const Node& node = best[end];
      const bool unknown = node.id == kUnknown;
      if (unknown && !path.empty() && path.back().id == kUnknown) {
        path.back().begin = node.begin;
      } else {
        path.push_back({node.begin, end, node.id});
      }
    }
    for (auto token = path.rbegin(); token != path.rend(); ++token) {
      if (token->id != kUnknown) {
        ids->push_back(token->id);
      } else {
        AddUnknown(piece.substr(token->begin, token->end - token->begin), ids);
      }
    }
  }
  std::optional<TokenId> Find(std::string_view token) const override { return vocabulary_.Find(token); }
  TokenId max_id() const override { return vocabulary_.max_id(); }

 private:
  static constexpr TokenId kUnknown = -1;
  struct Node {  // the best path that ends at a byte
    bool reached = false;
    double score = 0;
    size_t begin = 0;
    TokenId id = kUnknown;
  };
  struct Token {
    size_t begin, end;
    TokenId id;
  };

  std::vector<Node> FindBestPath(std::string_view piece) const {
    std::vector<Node> best(piece.size() + 1);
    for (size_t begin = 0; begin < piece.size();) {
      const size_t bytes = CharBytes(piece[begin]);
      const double before = best[begin].score;
      bool single = false;
      const auto reach = [&](size_t end, double score, TokenId id) {
        if (!best[end].reached || score > best[end].score) best[end] = {true, score, begin, id};
      };
      trie_.ForEachPrefix(piece.substr(begin), [&](size_t length, TokenId id) {
        reach(begin + length, before + scores_[id], unknown_ == id ? kUnknown : id);
        single |= length == bytes;
      });
      if (!single) reach(begin + bytes, before + unknown_score_, kUnknown);
      begin += bytes;
    }
    return best;
  }

  void AddUnknown(std::string_view text, std::vector<TokenId>* ids) const {
    const auto known = [&](char c) { return bytes_[static_cast<unsigned char>(c)] >= 0; };
    if (const auto id = Find(text)) return ids->push_back(*id);
    if (byte_fallback_ && std::ranges::all_of(text, known)) {
      for (const char c : text) ids->push_back(bytes_[static_cast<unsigned char>(c)]);
    } else if (unknown_) {
      ids->push_back(*unknown_);
    }
  }

  std::optional<TokenId> unknown_;
  bool byte_fallback_;
  ByteTrie trie_;
  Vocabulary vocabulary_;
  std::vector<double> scores_;
  double unknown_score_;
  std::array<TokenId, 256> bytes_;
};

}  // namespace

absl::StatusOr<TokenModelPtr> MakeUnigram(UnigramSpec spec) {
  const auto size = static_cast<TokenId>(spec.tokens.size());
  if (spec.tokens.empty()) return Invalid("the vocabulary is empty");
  if (spec.unknown && (*spec.unknown < 0 || *spec.unknown >= size))
    return Invalid("the unknown token has id ", *spec.unknown, ", but there are ", size, " tokens");
  if (!spec.unknown && !spec.byte_fallback) return Invalid("there is no unknown token (unk_id)");
  return std::make_unique<Unigram>(std::move(spec));
}

}  // namespace onnxtrain
