// Defines the interface of libonnxtrain_arrow.so, which reads Parquet and Arrow files with Apache Arrow, in types of
// the standard library: no other file of the core includes Arrow. The optional library is loaded when the first such
// file is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain {

// A column of a file, or a field of its structs, whose name has the names of the structs as prefix: "meta.label".
struct ArrowColumn {
  enum class Kind : uint8_t {
    kNumbers,     // single values of `dtype`, also dates, times and decimals
    kTexts,       // strings
    kBytes,       // binary values, which may be texts or pictures
    kLists,       // lists of numbers, nested `rank` deep
    kNested,      // other lists, structs and maps, which are read as JSON
    kUnreadable,  // a type that has no values for training
  };
  std::string name;
  std::string type;  // the type as Arrow spells it, for messages
  Kind kind = Kind::kUnreadable;
  DType dtype = DType::kFloat64;  // element type of numbers and lists
  int rank = 0;
  bool is_struct = false;                 // its fields follow as columns
  int64_t missing = -1;                   // number of nulls; -1: not known without reading
  std::vector<std::string> classes = {};  // names of a label's values, from the metadata of files of the Hub
};

// Consecutive values of a column. The spans are valid during the call that receives them.
struct ArrowChunk {
  int64_t rows = 0;
  std::span<const uint8_t> missing;    // 1 for a null, one byte per row; empty: there are none
  std::span<const std::byte> numbers;  // the numbers, or the elements of all lists that are not null
  std::span<const int64_t> offsets;    // texts: begin of each text and end of the last one, in `texts`
  std::string_view texts;
  // Lists have `rank` extents per row; kRagged or kHoldsNull if the row is no array of numbers.
  std::span<const int64_t> extents;
  static constexpr int64_t kRagged = -1, kHoldsNull = -2;
};

// An open file. Not thread-safe.
class ArrowFile {
 public:
  virtual ~ArrowFile() = default;
  virtual const std::vector<ArrowColumn>& columns() const = 0;
  // Returns the rows of each row group of Parquet or record batch of Arrow.
  virtual const std::vector<int64_t>& groups() const = 0;
  // Returns the name of a group for messages: "row group" or "batch".
  virtual const char* group_unit() const = 0;
  // Decodes a column of a group, a bounded number of rows at a time, and passes the chunks to `take` in order until it
  // returns false. If `as_text`, other values than texts and bytes become JSON. Returns "" or why the rest is
  // unreadable.
  virtual std::string Read(int group, int column, bool as_text, const std::function<bool(const ArrowChunk&)>& take) = 0;
};

// The function that the library exports as "OnnxtrainOpenArrow". It recognizes the format by content. `max_bytes`
// limits the memory that decoding allocates. It returns null and sets *error on failure; the caller owns the file.
using OpenArrowFn = ArrowFile* (*)(const std::string& path, int64_t max_bytes, std::string* error);

}  // namespace onnxtrain
