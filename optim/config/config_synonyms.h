// Maps the names that other libraries use to fields of TrainConfig.
//
// A name with the meaning of a field is accepted in its place. A name with another meaning, or without a counterpart,
// is rejected with advice that names the field to use.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onnxtrain {

struct Synonym {
  const char* name;     // with underscores
  const char* library;  // the possessive of the library: "the Trainer's"
  // How a value is translated.
  enum class Value : uint8_t {
    kSame,    // unchanged
    kWhole,   // unchanged, but accepts "3.0" for 3
    kShare,   // unchanged, must be below 1
    kFormat,  // `form`, with the value in place of "$"
    kSwitch,  // for switches: `form` is "ON|OFF", the values for true and false
    // `form` is "theirs=ours|…"; other values are rejected with the advice, or kept unchanged if `form` ends in "$".
    // "theirs=" keeps the field; "theirs=*" leaves the value to another flag of the field, and is rejected without it;
    // "theirs=!" is rejected.
    kWords,
    kRefused,  // there is no such field: the advice says what to do
  } kind = Value::kSame;
  const char* field = "";  // field of TrainConfig; "" if the name is rejected
  const char* form = "";
  const char* advice = "";  // completes "LIBRARY `NAME` …"; names fields in backquotes
  bool per_device = false;  // counts samples per device, while the field counts those of the process
};

// Returns every synonym, by library.
std::span<const Synonym> Synonyms();
// Returns the synonym of that name, with underscores; null if there is none.
const Synonym* FindSynonym(std::string_view name);

// Returns the meaning that other libraries give to values of a field with the same name; null if unknown.
const Synonym* FindForeignValues(std::string_view field);

// Returns "the Trainer's `optim` is …", the reason why the name is rejected.
std::string Explain(const Synonym& synonym);

// The translation of words that leave the value to another flag.
inline constexpr char kOfOtherFlag[] = "*";

// Translates a value of the synonym, "true" or "false" for a switch, to a value of the field; "" keeps the field. Fails
// with advice.
absl::StatusOr<std::string> TranslateValue(const Synonym& synonym, std::string_view value);

}  // namespace onnxtrain
