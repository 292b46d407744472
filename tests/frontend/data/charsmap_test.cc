#include "frontend/data/text/pipeline.h"

#include <cstring>

#include "gtest/gtest.h"

namespace onnxtrain {
namespace {

// A trie whose nodes have 256 units each, and the texts behind it.
class Writer {
 public:
  Writer() : units_(256 * 64) { units_[0] = MakeOffset(1); }

  void Add(std::string_view key, std::string_view text) {
    uint32_t at = 0;
    for (const char c : key) {
      at ^= OffsetOf(at) ^ static_cast<unsigned char>(c);
      if (units_[at] == 0) units_[at] = MakeOffset(++nodes_) | static_cast<unsigned char>(c);
    }
    units_[at] |= 1u << 8;
    units_[at ^ OffsetOf(at)] = 0x80000000u | static_cast<uint32_t>(texts_.size());
    texts_.append(text).push_back('\0');
  }
  std::string Finish() const {
    const auto size = static_cast<uint32_t>(units_.size() * sizeof(uint32_t));
    std::string bytes(sizeof(size) + size, '\0');
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::memcpy(bytes.data() + sizeof(size), units_.data(), size);
    return bytes + texts_;
  }

 private:
  static uint32_t MakeOffset(uint32_t block) { return block << 8 << 10; }
  uint32_t OffsetOf(uint32_t at) const { return units_[at] >> 10; }

  std::vector<uint32_t> units_;
  std::string texts_;
  uint32_t nodes_ = 1;
};

std::string Normalize(const std::string& bytes, std::string_view text) {
  auto charsmap = Charsmap::Parse(bytes);
  EXPECT_TRUE(charsmap.ok()) << charsmap.status();
  std::string out;
  MakeCharsmapNormalizer(*std::move(charsmap))->Run(text, &out);
  return out;
}

TEST(Charsmap, ReplacesClustersAndCharacters) {
  Writer writer;
  writer.Add("A", "a");
  writer.Add("\u00bd", "1/2");
  writer.Add("e\u0301", "\u00e9");
  writer.Add("\u200b", "");
  const std::string bytes = writer.Finish();
  EXPECT_EQ(Normalize(bytes, "AbA"), "aba");
  EXPECT_EQ(Normalize(bytes, "x\u00bd\u200by"), "x1/2y");
  EXPECT_EQ(Normalize(bytes, "he\u0301"), "h\u00e9");
  EXPECT_EQ(Normalize(bytes, ""), "");
  // A cluster of 6 bytes and more is read by character: the accent stays.
  EXPECT_EQ(Normalize(bytes, "A\u0302\u0302\u0302"), "a\u0302\u0302\u0302");
  // The shortest entry that a cluster begins with stands for all of it.
  EXPECT_EQ(Normalize(bytes, "A\u0302"), "a");
}

TEST(Charsmap, RefusesBrokenTables) {
  Writer writer;
  writer.Add("A", "a");
  const std::string bytes = writer.Finish();
  EXPECT_FALSE(Charsmap::Parse("").ok());
  EXPECT_FALSE(Charsmap::Parse(bytes.substr(0, 100)).ok());
  EXPECT_FALSE(Charsmap::Parse(std::string(4, '\0')).ok());
  // Units that point anywhere lead nowhere.
  for (const char filler : {'\x01', '\x41', '\x7f', '\xff'}) {
    std::string wild = bytes;
    std::fill(wild.begin() + 4, wild.end() - 2, filler);
    EXPECT_LE(Normalize(wild, "ABC").size(), 8u);
  }
}

}  // namespace
}  // namespace onnxtrain
