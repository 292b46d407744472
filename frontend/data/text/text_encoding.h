// Converts text in other encodings to UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Fails if ICU does not know the encoding ("latin1", "cp1251", "Shift_JIS"). Accepts "".
absl::Status CheckEncoding(const std::string& name);

// Returns a reader of the same text in UTF-8. If `encoding` is "", converts text with a byte order mark of UTF-16, as
// spreadsheets on Windows save "Unicode text", and passes other bytes unchanged. Invalid bytes become U+FFFD. The first
// read fails on an unknown encoding.
ReadFn DecodeText(ReadFn read, const std::string& encoding);

// Returns true if the text has a well-formed UTF-8 sequence above ASCII.
bool HasUtf8AboveAscii(std::string_view text);

// Converts invalid UTF-8 to valid. Text without any well-formed sequence above ASCII is taken for Windows-1252, which
// Excel writes in Western Europe; in other text, invalid bytes become U+FFFD.
std::string RepairUtf8(std::string_view text);

}  // namespace onnxtrain
