#include "frontend/data/sources/numpy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

uint32_t CodePoint(std::span<const std::byte> four, bool big_endian) {
  uint32_t value = 0;
  for (int b = 0; b < 4; ++b) value |= std::to_integer<uint32_t>(four[big_endian ? 3 - b : b]) << 8 * b;
  return value;
}

// Returns false if the element is not valid Unicode.
bool DecodeText(const NpyHeader& header, std::span<const std::byte> element, std::string* text) {
  text->clear();
  if (header.text == NpyText::kBytes) {
    text->assign(reinterpret_cast<const char*>(element.data()), element.size());
  } else {
    for (size_t at = 0; at + 4 <= element.size(); at += 4) {
      const uint32_t c = CodePoint(element.subspan(at, 4), header.big_endian);
      if (c > kMaxCodePoint) return false;
      AppendChar(static_cast<char32_t>(c), text);
    }
  }
  text->resize(text->find_last_not_of('\0') + 1);
  return FindInvalidUtf8(*text) == std::string::npos;
}

bool IsLabel(const std::string& name, const DatasetOptions& options) {
  if (!options.label.empty()) return std::ranges::count(options.label, name) > 0;
  const auto label = LabelByName({Column{.name = name}});
  return label.ok() && label->has_value();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DecodeTexts(const NpyHeader& header, std::span<const std::byte> elements) {
  const Shape shape(header.type.shape.begin(), header.type.shape.end() - 1);
  const int64_t width = header.type.shape.back();
  const int64_t count = NumElements(shape);
  if (!shape.empty() && count != shape[0]) return Invalid("has more than one text for a sample");
  std::vector<std::string> texts(count);
  for (int64_t i = 0; i < count; ++i) {
    if (!DecodeText(header, elements.subspan(i * width, width), &texts[i]))
      return Invalid("text ", i, " is not Unicode");
  }
  return texts;
}

absl::StatusOr<NamedTensor> MakeArrayColumn(const std::string& path, const std::string& name, NpyArray array,
                                            const DatasetOptions& options) {
  if (!array.texts.has_value()) return NamedTensor{name, std::move(array.tensor)};
  const auto column = MakeCsvColumn({.path = path, .name = name, .unit = "sample"}, IsLabel(name, options), options);
  for (int64_t i = 0; i < std::ssize(*array.texts); ++i) RETURN_IF_ERROR(column->Add(i, (*array.texts)[i]));
  return column->Finish();
}

namespace {

constexpr size_t kMagicSize = 8;          // "\x93NUMPY", major, minor
constexpr int64_t kMaxText = 1 << 24;     // limit in characters
constexpr uint32_t kMaxHeader = 1 << 16;  // limit in bytes; NumPy refuses more than 10000
constexpr std::string_view kMagic = "\x93NUMPY";

constexpr std::pair<std::string_view, DType> kDescrs[] = {
    {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"f2", DType::kFloat16}, {"i1", DType::kInt8},
    {"i2", DType::kInt16},   {"i4", DType::kInt32},   {"i8", DType::kInt64},   {"u1", DType::kUInt8},
    {"u2", DType::kUInt16},  {"u4", DType::kUInt32},  {"u8", DType::kUInt64},  {"b1", DType::kBool},
};

// Parses "U7", texts of 7 characters of 4 bytes, and "S7", texts of 7 bytes.
bool ParseTextDescr(std::string_view descr, NpyHeader* header, int64_t* width) {
  if (descr.size() < 2 || (descr[0] != 'U' && descr[0] != 'S')) return false;
  const auto [end, error] = std::from_chars(descr.data() + 1, descr.data() + descr.size(), *width);
  if (error != std::errc() || end != descr.data() + descr.size() || *width < 0 || *width > kMaxText) return false;
  header->text = descr[0] == 'U' ? NpyText::kUtf32 : NpyText::kBytes;
  if (descr[0] == 'U') *width *= 4;
  header->type.dtype = DType::kUInt8;
  return true;
}

absl::Status ParseDescr(std::string_view descr, NpyHeader* header, int64_t* text_width) {
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos) {
    header->big_endian = descr[0] == '>';
    if (ParseTextDescr(descr.substr(1), header, text_width)) return absl::OkStatus();
    if (descr.substr(1) == "O")
      return Invalid("Python objects (pickles) are not read: store numbers, or texts as a.astype(str)");
    for (const auto& [name, dtype] : kDescrs) {
      if (descr.substr(1) != name) continue;
      header->type.dtype = dtype;
      return absl::OkStatus();
    }
  }
  return Invalid("element type '", Printable(descr.substr(0, 40)),
                 "' is not a number (records and complex numbers cannot be fed)");
}

// Parses the Python literals that occur in headers.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool Take(char c) {
    SkipSpace();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  // Consumes a quoted string without escapes.
  std::optional<std::string_view> String() {
    const char quote = Take('\'') ? '\'' : Take('"') ? '"' : '\0';
    const size_t end = quote == '\0' ? std::string_view::npos : rest_.find(quote);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<int64_t> Int() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(end - rest_.data());
    TakeWord("L");  // suffix of Python 2's long integers
    return value;
  }
  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  std::string_view rest() const { return rest_; }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

absl::Status ParseShape(Cursor* in, Shape* shape) {
  if (!in->Take('(')) return Invalid("the shape is not a tuple");
  while (!in->Take(')')) {
    const std::optional<int64_t> extent = in->Int();
    if (!extent) return Invalid("the shape holds something that is not a number");
    shape->push_back(*extent);
    if (shape->size() > 32) return Invalid("the shape has more than 32 axes");
    if (in->Take(',')) continue;
    if (in->Take(')')) break;
    return Invalid("the shape is not closed");
  }
  return CheckShape(*shape);
}

enum Key { kDescr, kFortran, kShape, kKeys };

absl::Status ParseValue(Key key, Cursor* in, NpyHeader* header, int64_t* text_width) {
  if (key == kShape) return ParseShape(in, &header->type.shape);
  if (key == kDescr) {
    const auto descr = in->String();
    return descr ? ParseDescr(*descr, header, text_width) : Invalid("records cannot be fed (descr is not a string)");
  }
  header->fortran = in->TakeWord("True");
  if (!header->fortran && !in->TakeWord("False")) return Invalid("fortran_order is neither True nor False");
  return absl::OkStatus();
}

std::optional<Key> ParseKey(std::string_view name) {
  constexpr std::string_view kNames[] = {"descr", "fortran_order", "shape"};
  for (int key = 0; key < kKeys; ++key) {
    if (name == kNames[key]) return static_cast<Key>(key);
  }
  return std::nullopt;
}

// Copies column-major elements to row-major order. `from` has the logical shape.
HostTensor ToRowMajor(const HostTensor& from) {
  HostTensor to(from.type());
  const Shape& shape = from.shape();
  const size_t width = DTypeSize(from.dtype());
  std::vector<int64_t> at(shape.size(), 0), stride(shape.size(), 1);
  for (size_t a = 1; a < shape.size(); ++a) stride[a] = stride[a - 1] * shape[a - 1];
  int64_t source = 0;
  for (int64_t i = 0, n = from.size(); i < n; ++i) {
    std::memcpy(to.mutable_bytes().data() + i * width, from.bytes().data() + source * width, width);
    for (size_t a = shape.size(); a-- > 0;) {  // increments the row-major index
      source += stride[a];
      if (++at[a] < shape[a]) break;
      source -= stride[a] * shape[a];
      at[a] = 0;
    }
  }
  return to;
}

// Maps bools, which may be any byte in a malformed file, to 0 and 1.
void NormalizeBools(std::span<std::byte> data) {
  for (std::byte& b : data) b = static_cast<std::byte>(b != std::byte{0});
}

absl::Status CheckSize(const NpyHeader& header, int64_t size) {
  const int64_t want = header.offset + static_cast<int64_t>(header.type.bytes());
  if (want == size) return absl::OkStatus();
  return Invalid("the header declares ", ToString(header.type), " = ", want, " bytes, but there are ", size);
}

absl::StatusOr<HostTensor> ReadElements(const NpyHeader& header, const ReadFn& read, int64_t max_bytes) {
  if (header.text != NpyText::kNone) return Invalid("holds texts where numbers are needed");
  RETURN_IF_ERROR(CheckMemory(static_cast<int64_t>(header.type.bytes()), max_bytes));
  HostTensor tensor(header.type);
  RETURN_IF_ERROR(ReadExactly(read, tensor.mutable_bytes()));
  if (header.big_endian) SwapBytes(tensor.mutable_bytes(), DTypeSize(tensor.dtype()));
  if (tensor.dtype() == DType::kBool) NormalizeBools(tensor.mutable_bytes());
  return header.fortran && header.type.rank() > 1 ? ToRowMajor(tensor) : tensor;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyDict(std::string_view text) {
  NpyHeader header;
  int64_t text_width = 0;
  Cursor in(text);
  bool seen[kKeys] = {};
  if (!in.Take('{')) return Invalid("the header is not a dictionary");
  while (!in.Take('}')) {
    const auto name = in.String();
    const auto key = name ? ParseKey(*name) : std::nullopt;
    if (!key || !in.Take(':')) return Invalid("bad header at '", Printable(in.rest().substr(0, 20)), "'");
    if (std::exchange(seen[*key], true)) return Invalid("the header has '", *name, "' twice");
    RETURN_IF_ERROR(ParseValue(*key, &in, &header, &text_width));
    if (in.Take(',')) continue;
    if (in.Take('}')) break;
    return Invalid("bad header at '", Printable(in.rest().substr(0, 20)), "'");
  }
  if (!in.AtEnd()) return Invalid("text after the header's dictionary");
  if (!seen[kDescr] || !seen[kFortran] || !seen[kShape])
    return Invalid("the header lacks descr, fortran_order or shape");
  if (header.text == NpyText::kNone) return header;
  if (header.fortran) return Invalid("texts in column-major order are not read");
  header.type.shape.push_back(text_width);
  RETURN_IF_ERROR(CheckShape(header.type.shape));
  return header;
}

absl::StatusOr<NpyHeader> ReadNpyHeader(const ReadFn& read) {
  std::array<unsigned char, kMagicSize + 4> start;
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(start.data(), kMagicSize))));
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) return Invalid("not a .npy array (bad magic)");
  const int version = start[6];
  if (version < 1 || version > 3) return Invalid(".npy format version ", version, " is unknown");
  const size_t width = version == 1 ? 2 : 4;
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(&start[kMagicSize], width))));
  uint32_t length = 0;
  for (size_t i = width; i-- > 0;) length = length << 8 | start[kMagicSize + i];
  if (length > kMaxHeader) return Invalid("a header of ", length, " bytes is refused");
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(text))));
  ASSIGN_OR_RETURN(NpyHeader header, ParseNpyDict(text));
  header.offset = static_cast<int64_t>(kMagicSize + width + length);
  return header;
}

absl::StatusOr<HostTensor> ReadNpy(const ReadFn& read, int64_t size, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(read));
  RETURN_IF_ERROR(CheckSize(header, size));
  return ReadElements(header, read, max_bytes);
}

absl::StatusOr<NpyArray> ReadNpyArray(const ReadFn& read, int64_t size, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(read));
  RETURN_IF_ERROR(CheckSize(header, size));
  NpyArray array;
  if (header.text == NpyText::kNone) {
    ASSIGN_OR_RETURN(array.tensor, ReadElements(header, read, max_bytes));
    return array;
  }
  const int64_t texts = NumElements(Shape(header.type.shape.begin(), header.type.shape.end() - 1));
  const int64_t bytes = static_cast<int64_t>(header.type.bytes() + texts * sizeof(std::string));
  RETURN_IF_ERROR(CheckMemory(bytes, max_bytes));
  std::vector<std::byte> elements(header.type.bytes());
  RETURN_IF_ERROR(ReadExactly(read, elements));
  ASSIGN_OR_RETURN(array.texts, DecodeTexts(header, elements));
  return array;
}

absl::StatusOr<HostTensor> ReadNpyStream(const ReadFn& read, int64_t max_size, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(read));
  const int64_t want = header.offset + static_cast<int64_t>(header.type.bytes());
  if (want > max_size) return Invalid("the header declares ", ToString(header.type), ", more than the file can hold");
  ASSIGN_OR_RETURN(HostTensor tensor, ReadElements(header, read, max_bytes));
  std::byte more;
  ASSIGN_OR_RETURN(const size_t rest, read({&more, 1}));  // reading to the end also checks the checksum
  if (rest != 0) return Invalid("there is more than the ", ToString(header.type), " that the header declares");
  return tensor;
}

absl::StatusOr<std::string> NpyPreamble(const Type& type) {
  for (const auto& [name, dtype] : kDescrs) {
    if (dtype != type.dtype) continue;
    std::string dict =
        StrCat("{'descr': '", DTypeSize(dtype) == 1 ? "|" : "<", name, "', 'fortran_order': False, 'shape': (");
    for (int64_t extent : type.shape) StrAppend(&dict, extent, ", ");
    dict += "), }";
    dict.append((64 - (kMagicSize + 2 + dict.size() + 1) % 64) % 64, ' ');
    dict += '\n';
    std::string out = StrCat(kMagic, std::string_view("\1\0", 2));
    out += static_cast<char>(dict.size() & 0xFF);
    out += static_cast<char>(dict.size() >> 8);
    return out + dict;
  }
  return Invalid("a .npy array cannot hold ", ToString(type.dtype));
}

absl::StatusOr<HostTensor> ReadNextNpy(const ReadFn& read, int64_t* rest) {
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(read));
  *rest -= header.offset + static_cast<int64_t>(header.type.bytes());
  if (*rest < 0) return Invalid("the header declares ", ToString(header.type), ", but ", -*rest, " bytes are missing");
  return ReadElements(header, read, static_cast<int64_t>(header.type.bytes()));
}

absl::StatusOr<HostTensor> ReadNpyBytes(std::span<const uint8_t> bytes) {
  const ReadFn read = [rest = std::as_bytes(bytes)](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    const size_t size = std::min(out.size(), rest.size());
    std::copy_n(rest.begin(), size, out.begin());
    rest = rest.subspan(size);
    return size;
  };
  return ReadNpy(read, static_cast<int64_t>(bytes.size()), static_cast<int64_t>(bytes.size()));
}

absl::StatusOr<HostTensor> ReadNpyFile(const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  auto array = ReadNpy(file.reader(), size, DefaultMemoryLimit());
  if (!array.ok()) return Annotate(array.status(), StrCat(path, ": "));
  return array;
}

}  // namespace onnxtrain
