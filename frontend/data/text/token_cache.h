// A bounded cache of the token ids of words. Used by one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

// Appends ids to a vector, which it enlarges in steps; the destructor shrinks it to the appended ids. Until then
// nothing else may change the vector.
class TokenWriter {
 public:
  // `bytes`: size of the text to encode, with about four bytes per id.
  TokenWriter(std::vector<TokenId>* ids, size_t bytes)
      : ids_(*ids), used_(ids->size()), step_(std::min(kMaxStep, bytes / 4 + 8)) {}
  ~TokenWriter() { ids_.resize(used_); }
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Returns space for `count` ids. Advance(n) then appends the first n of them.
  TokenId* Reserve(size_t count) {
    if (ids_.size() - used_ < count) ids_.resize(used_ + count + step_);
    return ids_.data() + used_;
  }
  void Advance(size_t count) { used_ += count; }
  void Append(std::span<const TokenId> ids) {
    std::ranges::copy(ids, Reserve(ids.size()));
    Advance(ids.size());
  }

 private:
  static constexpr size_t kMaxStep = 4096;
  std::vector<TokenId>& ids_;
  size_t used_, step_;
};

// The bytes of a short word, zero-padded, and their number.
struct WordKey {
  static constexpr size_t kMaxBytes = 16;

  WordKey() = default;
  // Makes the key of text.substr(begin, size), where size ≤ kMaxBytes.
  WordKey(std::string_view text, size_t begin, size_t size) : bytes(size) {
    char copy[kMaxBytes] = {};
    if (text.size() - begin >= kMaxBytes) {
      std::memcpy(copy, text.data() + begin, kMaxBytes);
    } else {
      std::memcpy(copy, text.data() + begin, size);
    }
    std::memcpy(&low, copy, sizeof low);
    std::memcpy(&high, copy + sizeof low, sizeof high);
    low &= kMasks[size].low;
    high &= kMasks[size].high;
  }
  size_t Hash() const {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(low ^ 0x9e3779b97f4a7c15u) * ((high + bytes) ^ 0xc2b2ae3d27d4eb4fu);
    return static_cast<size_t>(static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64));
  }

  uint64_t low = 0, high = 0;
  size_t bytes = 0;

 private:
  struct Mask {
    uint64_t low, high;
  };
  // Masks of the bytes that belong to a word of each size, little endian.
  static constexpr std::array<Mask, kMaxBytes + 1> kMasks = [] {
    std::array<Mask, kMaxBytes + 1> masks{};
    for (size_t size = 1; size <= kMaxBytes; ++size) {
      masks[size] = masks[size - 1];
      (size <= 8 ? masks[size].low : masks[size].high) |= uint64_t{0xff} << (size - 1) % 8 * 8;
    }
    return masks;
  }();
};

// Stores short words in buckets of two entries, one cache line; other words in a hash map. A new short word replaces
// the older one in its bucket. The cache is cleared when the memory for words with many ids is full.
class TokenCache {
 public:
  TokenCache() : buckets_(kBuckets), many_(kEntryIds) {}

  // The bucket that may hold the ids of a short word.
  struct Place {
    WordKey key;
    const void* bucket = nullptr;  // null for long words
  };

  // Prefetches the bucket of text.substr(begin, size).
  Place Fetch(std::string_view text, size_t begin, size_t size) const {
    if (size > WordKey::kMaxBytes) return {};
    const WordKey key(text, begin, size);
    const Bucket* bucket = &buckets_[key.Hash() % kBuckets];
    __builtin_prefetch(bucket);
    return {key, bucket};
  }

  // Appends the ids of text.substr(begin, size) and returns true if the word is cached.
  bool Append(std::string_view text, size_t begin, size_t size, TokenWriter* ids) const {
    if (size > WordKey::kMaxBytes) return AppendLong(text.substr(begin, size), ids);
    return Append(Fetch(text, begin, size), ids);
  }
  bool Append(const Place& place, TokenWriter* ids) const {
    if (place.bucket == nullptr) return false;
    const WordKey& key = place.key;
    for (const Entry& entry : static_cast<const Bucket*>(place.bucket)->entries) {
      if (!entry.Is(key)) continue;
      const TokenId* from = entry.count <= kEntryIds ? entry.ids : many_.data() + entry.ids[0];
      TokenId* to = ids->Reserve(std::max<size_t>(kEntryIds, entry.count));
      std::copy_n(from, kEntryIds, to);
      if (entry.count > kEntryIds) std::copy(from + kEntryIds, from + entry.count, to + kEntryIds);
      ids->Advance(entry.count);
      return true;
    }
    return false;
  }

  void Add(std::string_view word, std::span<const TokenId> ids) {
    if (word.empty()) return;
    if (word.size() > WordKey::kMaxBytes || ids.size() > kMaxIds) return AddLong(word, ids);
    const WordKey key(word, 0, word.size());
    Entry entry = {key.low, key.high, {}, static_cast<uint8_t>(key.bytes), static_cast<uint8_t>(ids.size())};
    if (ids.size() > kEntryIds) {
      if (many_.size() + ids.size() > kManyIds) Clear();
      entry.ids[0] = static_cast<TokenId>(many_.size());
      many_.insert(many_.end(), ids.begin(), ids.end());
    } else {
      std::ranges::copy(ids, entry.ids);
    }
    Bucket& bucket = buckets_[key.Hash() % kBuckets];
    bucket.entries[1] = bucket.entries[0];
    bucket.entries[0] = entry;
  }

 private:
  static constexpr size_t kBuckets = size_t{1} << 15, kEntryIds = 3, kMaxIds = 255;
  static constexpr size_t kManyIds = size_t{1} << 20, kLongBytes = 256, kLongWords = size_t{1} << 16;

  struct Entry {
    uint64_t low = 0, high = 0;
    TokenId ids[kEntryIds] = {};  // if count > kEntryIds: ids[0] is an index into many_
    uint8_t bytes = 0, count = 0;

    bool Is(const WordKey& key) const { return ((low ^ key.low) | (high ^ key.high) | (bytes ^ key.bytes)) == 0; }
  };
  struct alignas(64) Bucket {
    Entry entries[2];
  };

  void Clear() {
    std::ranges::fill(buckets_, Bucket());
    many_.resize(kEntryIds);
  }

  bool AppendLong(std::string_view word, TokenWriter* ids) const {
    const auto found = long_.find(ToAbsl(word));
    if (found == long_.end()) return false;
    ids->Append(found->second);
    return true;
  }
  void AddLong(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() > kLongBytes) return;
    if (long_.size() >= kLongWords) long_.clear();
    long_.emplace(std::string(word), std::vector<TokenId>(ids.begin(), ids.end()));
  }

  std::vector<Bucket> buckets_;
  std::vector<TokenId> many_;
  absl::flat_hash_map<std::string, std::vector<TokenId>> long_;
};

}  // namespace onnxtrain
