#include "frontend/data/arrow/module/values.h"

#include <arrow/array/array_run_end.h>
#include <arrow/util/bit_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

namespace onnxtrain {
namespace {

using Kind = ArrowColumn::Kind;
using Id = arrow::Type;
using Bytes = std::span<const std::byte>;

// Returns the values of a fixed-width array without copying them.
template <int kWidth>
Bytes ViewValues(const arrow::Array& array, std::vector<std::byte>*) {
  const auto& buffer = array.data()->buffers[1];
  if (array.length() == 0 || buffer == nullptr) return {};
  return {reinterpret_cast<const std::byte*>(buffer->data()) + array.offset() * kWidth,
          static_cast<size_t>(array.length() * kWidth)};
}

Bytes ExpandBits(const arrow::Array& array, std::vector<std::byte>* out) {
  const auto& flags = static_cast<const arrow::BooleanArray&>(array);
  out->resize(array.length());
  for (int64_t i = 0; i < array.length(); ++i) (*out)[i] = std::byte{flags.Value(i)};
  return *out;
}

Bytes MakeZeros(const arrow::Array& array, std::vector<std::byte>* out) {
  out->assign(array.length() * sizeof(double), std::byte{0});
  return *out;
}

// Returns the double nearest to the decimal text.
double ParseDecimal(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

template <typename ArrayType>
Bytes ConvertDecimals(const arrow::Array& array, std::vector<std::byte>* out) {
  const auto& decimals = static_cast<const ArrayType&>(array);
  out->assign(array.length() * sizeof(double), std::byte{0});
  auto* values = reinterpret_cast<double*>(out->data());
  for (int64_t i = 0; i < array.length(); ++i) {
    if (!array.IsNull(i)) values[i] = ParseDecimal(decimals.FormatValue(i));
  }
  return *out;
}

struct NumberType {
  Id::type id;
  DType dtype;
  Bytes (*values)(const arrow::Array& array, std::vector<std::byte>* buffer);
};

// Dates and times keep their unit: days for date32, milliseconds for date64, otherwise the unit of the type.
constexpr NumberType kNumberTypes[] = {
    {Id::BOOL, DType::kBool, ExpandBits},
    {Id::INT8, DType::kInt8, ViewValues<1>},
    {Id::INT16, DType::kInt16, ViewValues<2>},
    {Id::INT32, DType::kInt32, ViewValues<4>},
    {Id::INT64, DType::kInt64, ViewValues<8>},
    {Id::UINT8, DType::kUInt8, ViewValues<1>},
    {Id::UINT16, DType::kUInt16, ViewValues<2>},
    {Id::UINT32, DType::kUInt32, ViewValues<4>},
    {Id::UINT64, DType::kUInt64, ViewValues<8>},
    {Id::HALF_FLOAT, DType::kFloat16, ViewValues<2>},
    {Id::FLOAT, DType::kFloat32, ViewValues<4>},
    {Id::DOUBLE, DType::kFloat64, ViewValues<8>},
    {Id::DECIMAL32, DType::kFloat64, ConvertDecimals<arrow::Decimal32Array>},
    {Id::DECIMAL64, DType::kFloat64, ConvertDecimals<arrow::Decimal64Array>},
    {Id::DECIMAL128, DType::kFloat64, ConvertDecimals<arrow::Decimal128Array>},
    {Id::DECIMAL256, DType::kFloat64, ConvertDecimals<arrow::Decimal256Array>},
    {Id::DATE32, DType::kInt32, ViewValues<4>},
    {Id::DATE64, DType::kInt64, ViewValues<8>},
    {Id::TIME32, DType::kInt32, ViewValues<4>},
    {Id::TIME64, DType::kInt64, ViewValues<8>},
    {Id::TIMESTAMP, DType::kInt64, ViewValues<8>},
    {Id::DURATION, DType::kInt64, ViewValues<8>},
    {Id::NA, DType::kFloat64, MakeZeros},
};

const NumberType* FindNumberType(Id::type id) {
  const auto* found = std::ranges::find(kNumberTypes, id, &NumberType::id);
  return found == std::end(kNumberTypes) ? nullptr : found;
}

template <typename ArrayType>
std::string_view GetText(const arrow::Array& array, int64_t i) {
  return static_cast<const ArrayType&>(array).GetView(i);
}

struct TextType {
  Id::type id;
  Kind kind;
  std::string_view (*text)(const arrow::Array& array, int64_t i);
};

constexpr TextType kTextTypes[] = {
    {Id::STRING, Kind::kTexts, GetText<arrow::BinaryArray>},
    {Id::LARGE_STRING, Kind::kTexts, GetText<arrow::LargeBinaryArray>},
    {Id::STRING_VIEW, Kind::kTexts, GetText<arrow::BinaryViewArray>},
    {Id::BINARY, Kind::kBytes, GetText<arrow::BinaryArray>},
    {Id::LARGE_BINARY, Kind::kBytes, GetText<arrow::LargeBinaryArray>},
    {Id::BINARY_VIEW, Kind::kBytes, GetText<arrow::BinaryViewArray>},
    {Id::FIXED_SIZE_BINARY, Kind::kBytes, GetText<arrow::FixedSizeBinaryArray>},
};

const TextType* FindTextType(Id::type id) {
  const auto* found = std::ranges::find(kTextTypes, id, &TextType::id);
  return found == std::end(kTextTypes) ? nullptr : found;
}

// Returns true for lists whose elements Flatten returns in order.
bool IsList(const arrow::DataType& type) {
  constexpr Id::type kLists[] = {Id::LIST, Id::LARGE_LIST, Id::FIXED_SIZE_LIST};
  return std::ranges::find(kLists, type.id()) != std::end(kLists);
}

// Returns true for types other than numbers and texts that AppendJson writes.
bool IsNested(const arrow::DataType& type) {
  constexpr Id::type kNested[] = {Id::LIST, Id::LARGE_LIST, Id::FIXED_SIZE_LIST, Id::STRUCT, Id::MAP, Id::DICTIONARY};
  return std::ranges::find(kNested, type.id()) != std::end(kNested);
}

const arrow::DataType& StorageOf(const arrow::DataType& type) {
  return type.id() == Id::EXTENSION ? *static_cast<const arrow::ExtensionType&>(type).storage_type() : type;
}

// Returns true if all parts of a type are numbers, texts or nested types of them.
bool IsReadable(const arrow::DataType& type) {
  if (FindNumberType(type.id()) != nullptr || FindTextType(type.id()) != nullptr) return true;
  if (type.id() == Id::EXTENSION) return IsReadable(StorageOf(type));
  if (type.id() == Id::DICTIONARY) return IsReadable(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return IsNested(type) &&
         std::ranges::all_of(type.fields(), [](const auto& field) { return IsReadable(*field->type()); });
}

int64_t CountElements(const arrow::Array& list, int64_t i) {
  if (list.IsNull(i)) return 0;
  if (list.type_id() == Id::LIST) return static_cast<const arrow::ListArray&>(list).value_length(i);
  if (list.type_id() == Id::LARGE_LIST) return static_cast<const arrow::LargeListArray&>(list).value_length(i);
  return static_cast<const arrow::FixedSizeListArray&>(list).value_length(i);
}

arrow::Result<std::shared_ptr<arrow::Array>> Flatten(const arrow::Array& list) {
  if (list.type_id() == Id::LIST) return static_cast<const arrow::ListArray&>(list).Flatten();
  if (list.type_id() == Id::LARGE_LIST) return static_cast<const arrow::LargeListArray&>(list).Flatten();
  return static_cast<const arrow::FixedSizeListArray&>(list).Flatten();
}

// Returns the common length of the lists [begin, end) and adds their lengths to *total.
int64_t FindExtent(const arrow::Array& lists, int64_t begin, int64_t end, bool outermost, int64_t* total) {
  int64_t extent = begin == end ? 0 : CountElements(lists, begin);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t length = CountElements(lists, i);
    *total += length;
    if (!outermost && lists.IsNull(i)) extent = ArrowChunk::kHoldsNull;
    if (extent >= 0 && length != extent) extent = ArrowChunk::kRagged;
  }
  return extent;
}

// Marks the rows whose elements are not all numbers.
void MarkNulls(const arrow::Array& elements, const std::vector<int64_t>& counts, int rank,
               std::vector<int64_t>* extents) {
  if (elements.null_count() == 0) return;
  int64_t at = 0;
  for (size_t row = 0; row < counts.size(); ++row) {
    for (const int64_t end = at + counts[row]; at < end; ++at) {
      if (elements.IsNull(at)) (*extents)[row * rank] = ArrowChunk::kHoldsNull;
    }
  }
}

// Returns the contiguous values of an array of strings or bytes.
template <typename ArrayType>
std::string_view ViewTexts(const arrow::Array& array, std::vector<int64_t>* offsets) {
  const auto& texts = static_cast<const ArrayType&>(array);
  if (array.length() == 0) return {};
  const int64_t begin = texts.value_offset(0);
  for (int64_t i = 1; i <= array.length(); ++i) offsets->push_back(texts.value_offset(i) - begin);
  if (offsets->back() == 0) return {};
  return {reinterpret_cast<const char*>(texts.raw_data()) + begin, static_cast<size_t>(offsets->back())};
}

}  // namespace

void DescribeType(const arrow::DataType& type, ArrowColumn* column) {
  if (const NumberType* number = FindNumberType(type.id())) {
    column->kind = Kind::kNumbers;
    column->dtype = number->dtype;
  } else if (const TextType* text = FindTextType(type.id())) {
    column->kind = text->kind;
  } else if (type.id() == Id::EXTENSION) {
    DescribeType(StorageOf(type), column);
  } else if (type.id() == Id::DICTIONARY) {
    DescribeType(*static_cast<const arrow::DictionaryType&>(type).value_type(), column);
  } else if (IsList(type)) {
    DescribeType(*type.field(0)->type(), column);
    const Id::type element = type.field(0)->type()->id();
    const bool plain = element != Id::DICTIONARY && element != Id::EXTENSION;
    const bool numbers = plain && (column->kind == Kind::kNumbers || column->kind == Kind::kLists);
    ++column->rank;
    if (column->kind != Kind::kUnreadable) column->kind = numbers ? Kind::kLists : Kind::kNested;
  } else {
    column->kind = IsReadable(type) ? Kind::kNested : Kind::kUnreadable;
  }
}

arrow::Status ChunkValues::Set(const arrow::Array& array, const ArrowColumn& column, bool as_text) {
  if (array.type_id() == Id::EXTENSION)
    return Set(*static_cast<const arrow::ExtensionArray&>(array).storage(), column, as_text);
  chunk_ = {.rows = array.length()};
  missing_.clear();
  offsets_.assign(1, 0);
  texts_.clear();
  if (array.null_count() > 0) {
    missing_.resize(array.length());
    for (int64_t i = 0; i < array.length(); ++i) missing_[i] = array.IsNull(i) ? 1 : 0;
  }
  chunk_.missing = missing_;
  if (array.type_id() == Id::DICTIONARY)
    return SetDictionary(static_cast<const arrow::DictionaryArray&>(array), column, as_text);
  if (FindTextType(array.type_id()) != nullptr) return SetTexts(array), arrow::Status::OK();
  if (as_text || column.kind == Kind::kNested) return SetJson(array), arrow::Status::OK();
  if (column.kind == Kind::kLists) return SetLists(array, column.rank);
  chunk_.numbers = FindNumberType(array.type_id())->values(array, &numbers_);
  return arrow::Status::OK();
}

arrow::Status ChunkValues::SetLists(const arrow::Array& array, int rank) {
  extents_.assign(array.length() * rank, 0);
  std::vector<int64_t> counts(array.length(), 1);  // lists of each row at the current level
  const arrow::Array* lists = &array;
  for (int level = 0; level < rank; ++level) {
    int64_t at = 0;
    for (size_t row = 0; row < counts.size(); ++row) {
      const int64_t begin = at;
      at += std::exchange(counts[row], 0);
      extents_[row * rank + level] = FindExtent(*lists, begin, at, level == 0, &counts[row]);
    }
    ARROW_ASSIGN_OR_RAISE(elements_, Flatten(*lists));
    lists = elements_.get();
  }
  MarkNulls(*lists, counts, rank, &extents_);
  chunk_.extents = extents_;
  chunk_.numbers = FindNumberType(lists->type_id())->values(*lists, &numbers_);
  return arrow::Status::OK();
}

void ChunkValues::ShowTexts() {
  chunk_.texts = texts_;
  chunk_.offsets = offsets_;
}

void ChunkValues::SetTexts(const arrow::Array& array) {
  offsets_.reserve(array.length() + 1);
  const bool is_small = array.type_id() == Id::STRING || array.type_id() == Id::BINARY;
  if (is_small && missing_.empty()) {
    chunk_.texts = ViewTexts<arrow::BinaryArray>(array, &offsets_);
    chunk_.offsets = offsets_;
    return;
  }
  const auto text = FindTextType(array.type_id())->text;
  for (int64_t i = 0; i < array.length(); ++i) {
    if (!array.IsNull(i)) texts_ += text(array, i);
    EndText();
  }
  ShowTexts();
}

// Writes dates and times, which are JSON strings, without quotes.
void ChunkValues::SetJson(const arrow::Array& array) {
  for (int64_t i = 0; i < array.length(); ++i) {
    const size_t begin = texts_.size();
    if (!array.IsNull(i)) AppendJson(array, i, &texts_);
    if (texts_.size() > begin && texts_[begin] == '"') {
      texts_.pop_back();
      texts_.erase(begin, 1);
    }
    EndText();
  }
  ShowTexts();
}

// Looks up the values of the dictionary.
arrow::Status ChunkValues::SetDictionary(const arrow::DictionaryArray& array, const ArrowColumn& column, bool as_text) {
  ChunkValues values;
  ARROW_RETURN_NOT_OK(values.Set(*array.dictionary(), column, as_text));
  missing_.assign(array.length(), 0);
  const auto& nulls = values.missing_;
  for (int64_t i = 0; i < array.length(); ++i) {
    if (array.IsNull(i) || (!nulls.empty() && nulls[array.GetValueIndex(i)] != 0)) missing_[i] = 1;
  }
  if (std::ranges::find(missing_, 1) != missing_.end()) chunk_.missing = missing_;
  if (column.kind == Kind::kLists) return arrow::Status::NotImplemented("a dictionary of lists");
  Gather(values.chunk(), array);
  return arrow::Status::OK();
}

void ChunkValues::Gather(const ArrowChunk& from, const arrow::DictionaryArray& array) {
  if (!from.offsets.empty()) {
    for (int64_t i = 0; i < array.length(); ++i) {
      const int64_t at = missing_[i] != 0 ? -1 : array.GetValueIndex(i);
      if (at >= 0) texts_ += from.texts.substr(from.offsets[at], from.offsets[at + 1] - from.offsets[at]);
      EndText();
    }
    return ShowTexts();
  }
  const size_t width = from.rows == 0 ? 8 : from.numbers.size() / from.rows;
  numbers_.assign(array.length() * width, std::byte{0});
  for (int64_t i = 0; i < array.length(); ++i) {
    if (missing_[i] == 0)
      std::memcpy(&numbers_[i * width], from.numbers.data() + array.GetValueIndex(i) * width, width);
  }
  chunk_.numbers = numbers_;
}

}  // namespace onnxtrain
