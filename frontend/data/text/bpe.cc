#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

struct Merge {
  uint32_t rank = kNoRank;
  TokenId id = -1;
};

// Maps pairs of tokens to their merges: a hash table with linear probing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t merges) {
    size_t size = 16;
    while (size < 2 * merges) size *= 2;
    entries_.resize(size);
    shift_ = std::countl_zero(size) + 1;
  }

  // Adds a merge unless the pair has one already.
  void Add(TokenId a, TokenId b, Merge merge) {
    Entry& entry = entries_[FindPlace(Key(a, b))];
    if (entry.key == kFree) entry = {Key(a, b), merge};
  }
  Merge Find(TokenId a, TokenId b) const { return entries_[FindPlace(Key(a, b))].merge; }

 private:
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();
  struct Entry {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t Key(TokenId a, TokenId b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  size_t FindPlace(uint64_t key) const {
    size_t at = key * 0x9e3779b97f4a7c15u >> shift_;
    while (entries_[at].key != key && entries_[at].key != kFree) at = (at + 1) % entries_.size();
    return at;
  }
  std::vector<Entry> entries_;
  int shift_;
};

constexpr size_t kShortPiece = 48;

// Merges a short piece by linear searches for the best pair, which is faster than a heap. Returns the number of ids
// left.
size_t MergeShort(const MergeTable& table, std::span<TokenId> ids) {
  std::array<uint32_t, kShortPiece> ranks;
  std::array<TokenId, kShortPiece> merged;
  const auto look_up = [&](size_t i) {
    const Merge merge = table.Find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.id;
  };
  size_t n = ids.size();
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = std::min_element(ranks.begin(), ranks.begin() + (n - 1)) - ranks.begin();
    if (ranks[best] == kNoRank) break;
    ids[best] = merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i - 1] = ranks[i];
      merged[i - 1] = merged[i];
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  return n;
}

// Merges a piece of any length with a heap of pairs, ordered by rank, then position.
class LongMerger {
 public:
  LongMerger(const MergeTable& table, std::vector<TokenId>* ids) : table_(table), ids_(*ids), links_(ids->size()) {
    const auto n = static_cast<int64_t>(ids_.size());
    for (int64_t i = 0; i < n; ++i) links_[i] = {i - 1, i + 1 < n ? i + 1 : -1};
    for (int64_t i = 0; i + 1 < n; ++i) Push(i);
  }

  void Run() {
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      const int64_t right = links_[pair.left].next;
      // One of the two may have been merged with another neighbor.
      if (ids_[pair.left] != pair.a || right < 0 || ids_[right] != pair.b) continue;
      ids_[pair.left] = pair.id;
      ids_[right] = kGone;
      links_[pair.left].next = links_[right].next;
      if (links_[right].next >= 0) links_[links_[right].next].previous = pair.left;
      Push(pair.left);
      if (links_[pair.left].previous >= 0) Push(links_[pair.left].previous);
    }
    std::erase(ids_, kGone);
  }

 private:
  static constexpr TokenId kGone = -1;
  struct Link {
    int64_t previous, next;
  };
  struct Pair {
    uint32_t rank;
    int64_t left;
    TokenId a, b, id;
    bool operator<(const Pair& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
  };
  void Push(int64_t left) {
    const int64_t right = links_[left].next;
    if (right < 0) return;
    const Merge merge = table_.Find(ids_[left], ids_[right]);
    if (merge.rank != kNoRank) queue_.push({merge.rank, left, ids_[left], ids_[right], merge.id});
  }

  const MergeTable& table_;
  std::vector<TokenId>& ids_;
  std::vector<Link> links_;
  std::priority_queue<Pair> queue_;
};

void MergeAll(const MergeTable& table, std::vector<TokenId>* ids) {
  if (ids->size() > kShortPiece) return LongMerger(table, ids).Run();
  ids->resize(MergeShort(table, *ids));
}

class Bpe : public TokenModel {
 public:
  Bpe(BpeSpec spec, MergeTable table) : spec_(std::move(spec)), table_(std::move(table)) {
    unknown_ = spec_.unknown.empty() ? std::nullopt : spec_.vocabulary.Find(spec_.unknown);
    for (int b = 0; b < 256; ++b) {
      const auto byte = static_cast<unsigned char>(b);
      const std::string token = spec_.byte_level ? std::string(1, static_cast<char>(byte)) : ByteToken(byte);
      bytes_[b] = spec_.vocabulary.Find(token).value_or(-1);
    }
    has_all_bytes_ = std::ranges::all_of(bytes_, [](TokenId id) { return id >= 0; });
  }

  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    if (spec_.ignore_merges) {
      if (const auto id = Find(piece)) return ids->push_back(*id);
    }
    if (spec_.byte_level && piece.size() <= kShortPiece && has_all_bytes_) return TokenizeShort(piece, ids);
    std::vector<TokenId> symbols;
    symbols.reserve(piece.size());
    if (spec_.byte_level) {
      AddBytes(piece, &symbols);
    } else {
      AddChars(piece, &symbols);
    }
    MergeAll(table_, &symbols);
    ids->insert(ids->end(), symbols.begin(), symbols.end());
  }
  std::optional<TokenId> Find(std::string_view token) const override { return spec_.vocabulary.Find(token); }
  TokenId max_id() const override { return spec_.vocabulary.max_id(); }

 private:
  void TokenizeShort(std::string_view piece, std::vector<TokenId>* ids) const {
    std::array<TokenId, kShortPiece> symbols;
    std::ranges::transform(piece, symbols.begin(), [&](char c) { return bytes_[static_cast<unsigned char>(c)]; });
    const size_t count = MergeShort(table_, std::span(symbols).first(piece.size()));
    ids->insert(ids->end(), symbols.begin(), symbols.begin() + count);
  }

  void AddBytes(std::string_view piece, std::vector<TokenId>* symbols) const {
    for (const char c : piece) {
      const TokenId id = bytes_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        symbols->push_back(id);
      } else if (unknown_) {
        symbols->push_back(*unknown_);
      }
    }
  }

  bool AddByteTokens(std::string_view character, std::vector<TokenId>* symbols) const {
    const auto known = [&](char c) { return bytes_[static_cast<unsigned char>(c)] >= 0; };
    if (!spec_.byte_fallback || !std::ranges::all_of(character, known)) return false;
    for (const char c : character) symbols->push_back(bytes_[static_cast<unsigned char>(c)]);
    return true;
  }

  void AddChars(std::string_view piece, std::vector<TokenId>* symbols) const {
    bool in_unknown = false;
    for (size_t at = 0, bytes = 0; at < piece.size(); at += bytes) {
      bytes = CharBytes(piece[at]);
      const std::string_view character = piece.substr(at, bytes);
      const bool last = at + bytes == piece.size();
      const auto id = Find(StrCat(at == 0 ? "" : spec_.prefix, character, last ? spec_.suffix : std::string()));
      if (!id && AddByteTokens(character, symbols)) continue;  // byte tokens do not end a run of unknown characters
      const bool unknown = !id && unknown_;
      if (id) symbols->push_back(*id);
      if (unknown && !(in_unknown && spec_.fuse_unknown)) symbols->push_back(*unknown_);
      in_unknown = unknown;
    }
  }

  BpeSpec spec_;
  MergeTable table_;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> bytes_;
  bool has_all_bytes_ = false;
};

// Returns GPT-2's alphabet: printable Latin-1 characters stand for themselves, other bytes for characters from U+0100.
std::array<char32_t, 256> MakeByteAlphabet() {
  std::array<char32_t, 256> alphabet;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    alphabet[b] = printable ? b : next++;
  }
  return alphabet;
}

absl::flat_hash_map<char32_t, char> InvertByteAlphabet() {
  absl::flat_hash_map<char32_t, char> bytes;
  const std::array<char32_t, 256> alphabet = MakeByteAlphabet();
  for (int b = 0; b < 256; ++b) bytes[alphabet[b]] = static_cast<char>(b);
  return bytes;
}

// Maps tokens and merges from the alphabet to bytes. Tokens that are not in the alphabet, such as added ones, stay
// unchanged; no bytes form them.
void SpellInBytes(BpeSpec* spec) {
  Vocabulary bytes;
  for (const auto& [token, id] : spec->vocabulary.ids()) bytes.Add(BytesOfToken(token).value_or(token), id);
  spec->vocabulary = std::move(bytes);
  for (auto& [a, b] : spec->merges) a = BytesOfToken(a).value_or(a), b = BytesOfToken(b).value_or(b);
}

absl::StatusOr<MergeTable> MakeMergeTable(const BpeSpec& spec) {
  MergeTable table(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [a, b] = spec.merges[rank];
    const std::string joined = a + (b.starts_with(spec.prefix) ? b.substr(spec.prefix.size()) : b);
    const auto left = spec.vocabulary.Find(a), right = spec.vocabulary.Find(b), both = spec.vocabulary.Find(joined);
    if (!left || !right || !both)
      return Invalid("merge ", rank + 1, ", '", a, " ", b, "': '",
                     !left    ? a
                     : !right ? b
                              : joined,
                     "' is not in the vocabulary");
    table.Add(*left, *right, {static_cast<uint32_t>(rank), *both});
  }
  return table;
}

}  // namespace

std::optional<std::string> BytesOfToken(std::string_view token) {
  static const auto* const kBytes = new absl::flat_hash_map<char32_t, char>(InvertByteAlphabet());
  if (FindInvalidUtf8(token) != std::string_view::npos) return std::nullopt;
  std::string bytes;
  for (char32_t c; !token.empty();) {
    token.remove_prefix(DecodeChar(token, &c));
    const auto byte = kBytes->find(c);
    if (byte == kBytes->end()) return std::nullopt;
    bytes.push_back(byte->second);
  }
  return bytes;
}

std::string ByteToken(unsigned char byte) { return absl::StrFormat("<0x%02X>", byte); }

absl::StatusOr<TokenModelPtr> MakeBpe(BpeSpec spec) {
  if (!spec.unknown.empty() && !spec.vocabulary.Find(spec.unknown))
    return Invalid("the unknown token '", spec.unknown, "' is not in the vocabulary");
  if (spec.byte_level) SpellInBytes(&spec);
  ASSIGN_OR_RETURN(MergeTable table, MakeMergeTable(spec));
  spec.merges.clear();
  return std::make_unique<Bpe>(std::move(spec), std::move(table));
}

}  // namespace onnxtrain
