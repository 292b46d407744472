// Writes values of Arrow as JSON.
#include <arrow/util/base64.h>
#include <arrow/util/float16.h>

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "frontend/data/arrow/module/values.h"

namespace onnxtrain {
namespace {

using Id = arrow::Type;

void AppendEscaped(unsigned char c, std::string* out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::string_view kControls = "\b\f\n\r\t", kLetters = "bfnrt";
  *out += '\\';
  if (c == '"' || c == '\\') {
    *out += static_cast<char>(c);
  } else if (const size_t at = kControls.find(static_cast<char>(c)); at != std::string_view::npos) {
    *out += kLetters[at];
  } else {
    *out += "u00";
    *out += kDigits[c >> 4];
    *out += kDigits[c & 15];
  }
}

void AppendString(std::string_view text, std::string* out) {
  *out += '"';
  for (const unsigned char c : text) {
    if (c < 0x20 || c == '"' || c == '\\') {
      AppendEscaped(c, out);
    } else {
      *out += static_cast<char>(c);
    }
  }
  *out += '"';
}

// Writes the shortest text that parses to the number; null for numbers that are not finite.
template <typename Number>
void AppendNumber(Number value, std::string* out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return out->append("null"), void();
  }
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  const std::string_view written(text, end - text);
  *out += written;
  if (std::is_floating_point_v<Number> && written.find_first_of(".e") == std::string_view::npos) *out += ".0";
}

template <typename Type>
void WriteNumber(const arrow::Array& array, int64_t i, std::string* out) {
  AppendNumber(static_cast<const arrow::NumericArray<Type>&>(array).Value(i), out);
}

void WriteHalf(const arrow::Array& array, int64_t i, std::string* out) {
  const uint16_t bits = static_cast<const arrow::HalfFloatArray&>(array).Value(i);
  AppendNumber(arrow::util::Float16::FromBits(bits).ToFloat(), out);
}

void WriteBool(const arrow::Array& array, int64_t i, std::string* out) {
  *out += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
}

template <typename ArrayType>
void WriteDecimal(const arrow::Array& array, int64_t i, std::string* out) {
  *out += static_cast<const ArrayType&>(array).FormatValue(i);
}

// Writes a date, a time or a duration as Arrow prints it.
void WriteTime(const arrow::Array& array, int64_t i, std::string* out) {
  const auto scalar = array.GetScalar(i);
  std::string text = scalar.ok() ? (*scalar)->ToString() : "";
  const size_t blank = text.find(' ');
  if (array.type_id() == Id::TIMESTAMP && blank != std::string::npos) text[blank] = 'T';
  AppendString(text, out);
}

template <typename ArrayType>
void WriteString(const arrow::Array& array, int64_t i, std::string* out) {
  AppendString(static_cast<const ArrayType&>(array).GetView(i), out);
}

template <typename ArrayType>
void WriteBytes(const arrow::Array& array, int64_t i, std::string* out) {
  AppendString(arrow::util::base64_encode(static_cast<const ArrayType&>(array).GetView(i)), out);
}

template <typename ArrayType>
void WriteList(const arrow::Array& array, int64_t i, std::string* out) {
  const auto& list = static_cast<const ArrayType&>(array);
  const int64_t begin = list.value_offset(i), end = begin + list.value_length(i);
  *out += '[';
  for (int64_t at = begin; at < end; ++at) {
    if (at > begin) *out += ',';
    AppendJson(*list.values(), at, out);
  }
  *out += ']';
}

void WriteStruct(const arrow::Array& array, int64_t i, std::string* out) {
  const auto& row = static_cast<const arrow::StructArray&>(array);
  *out += '{';
  for (int f = 0; f < row.num_fields(); ++f) {
    if (f > 0) *out += ',';
    AppendString(row.struct_type()->field(f)->name(), out);
    *out += ':';
    AppendJson(*row.field(f), i, out);
  }
  *out += '}';
}

void WriteMap(const arrow::Array& array, int64_t i, std::string* out) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  const int64_t begin = map.value_offset(i), end = begin + map.value_length(i);
  const bool is_object = map.keys()->type_id() == Id::STRING || map.keys()->type_id() == Id::LARGE_STRING;
  *out += is_object ? '{' : '[';
  for (int64_t at = begin; at < end; ++at) {
    if (at > begin) *out += ',';
    if (!is_object) *out += '[';
    AppendJson(*map.keys(), at, out);
    *out += is_object ? ':' : ',';
    AppendJson(*map.items(), at, out);
    if (!is_object) *out += ']';
  }
  *out += is_object ? '}' : ']';
}

void WriteDictionary(const arrow::Array& array, int64_t i, std::string* out) {
  const auto& indices = static_cast<const arrow::DictionaryArray&>(array);
  AppendJson(*indices.dictionary(), indices.GetValueIndex(i), out);
}

void WriteStorage(const arrow::Array& array, int64_t i, std::string* out) {
  AppendJson(*static_cast<const arrow::ExtensionArray&>(array).storage(), i, out);
}

struct JsonWriter {
  Id::type id;
  void (*write)(const arrow::Array& array, int64_t i, std::string* out);
};

constexpr JsonWriter kWriters[] = {
    {Id::BOOL, WriteBool},
    {Id::INT8, WriteNumber<arrow::Int8Type>},
    {Id::INT16, WriteNumber<arrow::Int16Type>},
    {Id::INT32, WriteNumber<arrow::Int32Type>},
    {Id::INT64, WriteNumber<arrow::Int64Type>},
    {Id::UINT8, WriteNumber<arrow::UInt8Type>},
    {Id::UINT16, WriteNumber<arrow::UInt16Type>},
    {Id::UINT32, WriteNumber<arrow::UInt32Type>},
    {Id::UINT64, WriteNumber<arrow::UInt64Type>},
    {Id::HALF_FLOAT, WriteHalf},
    {Id::FLOAT, WriteNumber<arrow::FloatType>},
    {Id::DOUBLE, WriteNumber<arrow::DoubleType>},
    {Id::DECIMAL32, WriteDecimal<arrow::Decimal32Array>},
    {Id::DECIMAL64, WriteDecimal<arrow::Decimal64Array>},
    {Id::DECIMAL128, WriteDecimal<arrow::Decimal128Array>},
    {Id::DECIMAL256, WriteDecimal<arrow::Decimal256Array>},
    {Id::DATE32, WriteTime},
    {Id::DATE64, WriteTime},
    {Id::TIME32, WriteTime},
    {Id::TIME64, WriteTime},
    {Id::TIMESTAMP, WriteTime},
    {Id::DURATION, WriteTime},
    {Id::STRING, WriteString<arrow::StringArray>},
    {Id::LARGE_STRING, WriteString<arrow::LargeStringArray>},
    {Id::STRING_VIEW, WriteString<arrow::StringViewArray>},
    {Id::BINARY, WriteBytes<arrow::BinaryArray>},
    {Id::LARGE_BINARY, WriteBytes<arrow::LargeBinaryArray>},
    {Id::BINARY_VIEW, WriteBytes<arrow::BinaryViewArray>},
    {Id::FIXED_SIZE_BINARY, WriteBytes<arrow::FixedSizeBinaryArray>},
    {Id::LIST, WriteList<arrow::ListArray>},
    {Id::LARGE_LIST, WriteList<arrow::LargeListArray>},
    {Id::FIXED_SIZE_LIST, WriteList<arrow::FixedSizeListArray>},
    {Id::STRUCT, WriteStruct},
    {Id::MAP, WriteMap},
    {Id::DICTIONARY, WriteDictionary},
    {Id::EXTENSION, WriteStorage},
};

}  // namespace

void AppendJson(const arrow::Array& array, int64_t i, std::string* out) {
  const auto* writer = std::ranges::find(kWriters, array.type_id(), &JsonWriter::id);
  if (array.IsNull(i) || writer == std::end(kWriters)) return out->append("null"), void();
  writer->write(array, i, out);
}

}  // namespace onnxtrain
