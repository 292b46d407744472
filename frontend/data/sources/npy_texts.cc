#include "frontend/data/sources/npy_texts.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/sources/csv_columns.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

uint32_t CodePoint(std::span<const std::byte> four, bool big_endian) {
  uint32_t value = 0;
  for (int b = 0; b < 4; ++b) value |= std::to_integer<uint32_t>(four[big_endian ? 3 - b : b]) << 8 * b;
  return value;
}

// False: not Unicode.
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

}  // namespace onnxtrain
