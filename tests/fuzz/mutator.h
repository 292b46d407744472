// Mutations of files for tests of readers.
#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace onnxtrain {

// Returns the number of mutations that a test reads of each kind of files.
inline int CountMutations() { return std::getenv("ONNXTRAIN_LONG_TESTS") != nullptr ? 10000 : 200; }

// Changes texts in ways that readers are known to miss: sizes at the edges of integers, cut and doubled parts, parts of
// other files, odd numbers in words.
class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, unsigned key) : seeds_(std::move(seeds)), random_(key) {}

  std::string Next() {
    std::string text = seeds_[Draw(seeds_.size())];
    if (Draw(2) == 0) {
      FlipBit(&text);  // of which readers accept the most
    } else {
      for (size_t left = 1 + Draw(4); left > 0; --left) Change(&text);
    }
    return text;
  }

 private:
  size_t Draw(size_t end) { return end == 0 ? 0 : random_() % end; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Draw(from.size())];
  }

  void Change(std::string* text) {
    static const std::vector<void (Mutator::*)(std::string*)> kChanges = {
        &Mutator::FlipBit, &Mutator::SetByte, &Mutator::SetInteger, &Mutator::Erase,
        &Mutator::Repeat,  &Mutator::Splice,  &Mutator::Insert,     &Mutator::Cut};
    (this->*Pick(kChanges))(text);
  }
  void FlipBit(std::string* text) {
    if (!text->empty()) (*text)[Draw(text->size())] ^= static_cast<char>(1 << Draw(8));
  }
  void SetByte(std::string* text) {
    static const std::vector<int> kBytes = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '-', '"', '\n', ',', '{', ']', ' '};
    if (!text->empty()) (*text)[Draw(text->size())] = static_cast<char>(Pick(kBytes));
  }
  // Writes an integer of 2, 4 or 8 bytes in either byte order.
  void SetInteger(std::string* text) {
    static const std::vector<uint64_t> kEdges = {
        0, 1, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~uint64_t{0}, ~uint64_t{0} >> 1, uint64_t{1} << 40};
    const size_t bytes = size_t{2} << Draw(3);
    if (text->size() < bytes) return;
    const uint64_t value = Pick(kEdges);
    const size_t at = Draw(text->size() - bytes + 1);
    const bool big = Draw(2) == 1;
    for (size_t i = 0; i < bytes; ++i) (*text)[at + (big ? bytes - 1 - i : i)] = static_cast<char>(value >> (8 * i));
  }
  void Erase(std::string* text) {
    const size_t at = Draw(text->size());
    text->erase(at, 1 + Draw(16));
  }
  void Repeat(std::string* text) {
    const std::string part = text->substr(Draw(text->size()), 1 + Draw(64));
    for (size_t left = 1 + Draw(8); left > 0; --left) text->insert(Draw(text->size()), part);
  }
  void Splice(std::string* text) {
    const std::string& other = Pick(seeds_);
    text->replace(Draw(text->size()), Draw(64), other.substr(Draw(other.size()), Draw(64)));
  }
  void Insert(std::string* text) {
    static const std::vector<std::string> kWords = {"1e999",    "-1",           "nan",      "18446744073709551616",
                                                    "null",     "[[[[",         "\"\"",     "\xef\xbb\xbf",
                                                    "\xff\xfe", "\xed\xa0\x80", "\r\n\r\n", "../../x"};
    text->insert(Draw(text->size()), Pick(kWords));
  }
  void Cut(std::string* text) { text->resize(Draw(text->size())); }

  std::vector<std::string> seeds_;
  std::mt19937 random_;
};

}  // namespace onnxtrain
