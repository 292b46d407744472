// A bounded cache of the token ids of words, for one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

// Short words with few ids, which is nearly all, are in entries of half a cache line; the others in a hash map. A new
// short word replaces the one in its entry; the map is emptied when it is full.
class TokenCache {
 public:
  TokenCache() : entries_(kEntries) {}

  // Appends the ids of the word and returns true where it is known.
  bool Append(std::string_view word, std::vector<TokenId>* ids) const {
    if (word.size() <= kShortBytes) {
      const ShortWord key(word);
      const Entry& entry = entries_[key.Hash()];
      if (entry.low != key.low || entry.high != key.high || entry.bytes != word.size() || entry.count == kManyIds)
        return entry.count == kManyIds && AppendLong(word, ids);
      ids->insert(ids->end(), entry.ids, entry.ids + entry.count);
      return true;
    }
    return AppendLong(word, ids);
  }

  void Add(std::string_view word, std::span<const TokenId> ids) {
    if (word.empty() || word.size() > kLongBytes) return;
    if (word.size() > kShortBytes) return AddLong(word, ids);
    const ShortWord key(word);
    Entry& entry = entries_[key.Hash()];
    entry = {key.low, key.high, {}, static_cast<uint8_t>(word.size()), kManyIds};
    if (ids.size() > kEntryIds) return AddLong(word, ids);
    entry.count = static_cast<uint8_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry.ids);
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 16, kShortBytes = 16, kEntryIds = 3, kLongBytes = 256;
  static constexpr size_t kLongWords = size_t{1} << 16;
  static constexpr uint8_t kManyIds = 255;  // they are in the map

  struct Entry {
    uint64_t low = 0, high = 0;
    TokenId ids[kEntryIds] = {};
    uint8_t bytes = 0, count = 0;
  };

  // The bytes of a word, which determine it together with its length.
  struct ShortWord {
    explicit ShortWord(std::string_view word) : size(word.size()) {
      const char* p = word.data();
      if (size >= 8) {
        low = Load<uint64_t>(p);
        high = Load<uint64_t>(p + size - 8);
      } else if (size >= 4) {
        low = Load<uint32_t>(p) | uint64_t{Load<uint32_t>(p + size - 4)} << 32;
      } else if (size > 0) {
        const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(p[i])}; };
        low = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
      }
    }
    size_t Hash() const {
      const unsigned __int128 product =
          static_cast<unsigned __int128>(low ^ 0x9e3779b97f4a7c15u) * ((high + size) ^ 0xc2b2ae3d27d4eb4fu);
      return static_cast<size_t>(static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) % kEntries;
    }
    template <typename T>
    static T Load(const char* p) {
      T value;
      std::memcpy(&value, p, sizeof value);
      return value;
    }
    uint64_t low = 0, high = 0;
    size_t size;
  };

  bool AppendLong(std::string_view word, std::vector<TokenId>* ids) const {
    const auto found = long_.find(ToAbsl(word));
    if (found == long_.end()) return false;
    ids->insert(ids->end(), found->second.begin(), found->second.end());
    return true;
  }
  void AddLong(std::string_view word, std::span<const TokenId> ids) {
    if (long_.size() >= kLongWords) long_.clear();
    long_.emplace(std::string(word), std::vector<TokenId>(ids.begin(), ids.end()));
  }

  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, std::vector<TokenId>> long_;
};

}  // namespace onnxtrain
