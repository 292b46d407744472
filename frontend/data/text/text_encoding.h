// Text in other encodings than UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Fails where ICU knows no encoding of that name ("latin1", "cp1251", "Shift_JIS"); "" is none and passes.
absl::Status CheckEncoding(const std::string& name);

// Returns a reader of the same text in UTF-8. Without an encoding, text that starts with a byte order mark of UTF-16 is
// in UTF-16, as spreadsheets on Windows save "Unicode text", and other bytes stay. What the encoding does not have
// becomes U+FFFD. The first read fails on an unknown encoding.
ReadFn DecodeText(ReadFn read, const std::string& encoding);

// Whether the text has a well-formed sequence of UTF-8 above ASCII.
bool HasUtf8AboveAscii(std::string_view text);

// Returns text that is not UTF-8 as UTF-8. A text without any well-formed sequence above ASCII is taken for
// Windows-1252, which Western Excel writes; in others, broken bytes become U+FFFD.
std::string RepairUtf8(std::string_view text);

}  // namespace onnxtrain
