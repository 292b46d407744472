#include <algorithm>
#include <array>
#include <limits>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/data/text/models.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

struct Merge {
  uint32_t rank = kNoRank;
  TokenId id = -1;
};

class MergeTable {
 public:
  void Add(TokenId a, TokenId b, Merge merge) { merges_.try_emplace(Key(a, b), merge); }
  Merge Find(TokenId a, TokenId b) const {
    const auto it = merges_.find(Key(a, b));
    return it == merges_.end() ? Merge() : it->second;
  }

 private:
  static uint64_t Key(TokenId a, TokenId b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }
  absl::flat_hash_map<uint64_t, Merge> merges_;
};

// Merges a short piece by searching the best pair each time: faster than a heap.
void MergeShort(const MergeTable& table, std::vector<TokenId>* ids) {
  std::array<Merge, 64> merges;
  size_t n = ids->size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = table.Find((*ids)[i], (*ids)[i + 1]);
  while (n > 1) {
    const auto best = std::min_element(merges.begin(), merges.begin() + static_cast<std::ptrdiff_t>(n) - 1,
                                       [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const size_t i = best - merges.begin();
    (*ids)[i] = best->id;
    ids->erase(ids->begin() + static_cast<std::ptrdiff_t>(i) + 1);
    std::move(merges.begin() + static_cast<std::ptrdiff_t>(i) + 1, merges.begin() + static_cast<std::ptrdiff_t>(n) - 1,
              merges.begin() + static_cast<std::ptrdiff_t>(i));
    --n;
    if (i > 0) merges[i - 1] = table.Find((*ids)[i - 1], (*ids)[i]);
    if (i + 1 < n) merges[i] = table.Find((*ids)[i], (*ids)[i + 1]);
  }
}

// Merges a piece of any length with a heap of pairs, the best and leftmost first.
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
      // The pair may have been merged with a neighbor since.
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
  constexpr size_t kShort = 48;
  if (ids->size() <= kShort) return MergeShort(table, ids);
  LongMerger(table, ids).Run();
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
  }

  void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const override {
    if (spec_.ignore_merges) {
      if (const auto id = Find(piece)) return ids->push_back(*id);
    }
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
      if (!id && AddByteTokens(character, symbols)) continue;  // an unknown run goes on across byte tokens
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
};

// GPT-2 spells bytes that are no printable characters of Latin-1 by characters from U+0100 on.
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

// Tokens that are not spelled in the alphabet, as added ones may be, are never made of bytes.
void SpellInBytes(BpeSpec* spec) {
  Vocabulary bytes;
  for (const auto& [token, id] : spec->vocabulary.ids()) bytes.Add(BytesOfToken(token).value_or(token), id);
  spec->vocabulary = std::move(bytes);
  for (auto& [a, b] : spec->merges) a = BytesOfToken(a).value_or(a), b = BytesOfToken(b).value_or(b);
}

absl::StatusOr<MergeTable> MakeMergeTable(const BpeSpec& spec) {
  MergeTable table;
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
