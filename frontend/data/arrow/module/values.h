// Converts arrays of Arrow to chunks of plain values.
#pragma once

#include <arrow/api.h>

#include <string>
#include <vector>

#include "frontend/data/arrow/arrow_library.h"

namespace onnxtrain {

// Sets kind, element type and rank of a column from its type.
void DescribeType(const arrow::DataType& type, ArrowColumn* column);

// The buffers of a chunk, reused for each one.
class ChunkValues {
 public:
  // Converts an array as DescribeType describes its type; `as_text` as in ArrowFile::Read. The array must be valid.
  arrow::Status Set(const arrow::Array& array, const ArrowColumn& column, bool as_text);
  // Returns the values, whose spans refer to this object and to the array.
  const ArrowChunk& chunk() const { return chunk_; }

 private:
  arrow::Status SetLists(const arrow::Array& array, int rank);
  arrow::Status SetDictionary(const arrow::DictionaryArray& array, const ArrowColumn& column, bool as_text);
  void SetTexts(const arrow::Array& array);
  void SetJson(const arrow::Array& array);
  void Gather(const ArrowChunk& from, const arrow::DictionaryArray& array);
  void EndText() { offsets_.push_back(static_cast<int64_t>(texts_.size())); }
  void ShowTexts();

  ArrowChunk chunk_;
  std::vector<uint8_t> missing_;
  std::vector<std::byte> numbers_;
  std::vector<int64_t> offsets_, extents_;
  std::string texts_;
  std::shared_ptr<arrow::Array> elements_;  // elements of lists
};

// Appends element `i` as JSON: numbers, true, false, null, strings, lists and objects; dates and times as ISO 8601,
// bytes as base64, maps with string keys as objects and others as lists of pairs.
void AppendJson(const arrow::Array& array, int64_t i, std::string* out);

}  // namespace onnxtrain
