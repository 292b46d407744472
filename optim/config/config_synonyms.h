// What other libraries call the fields of TrainConfig: a table beside ConfigFields().
//
// A name with the meaning of a field stands for it. A name with another meaning, or of something that has no field, is
// refused with advice that names the field to use.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onnxtrain {

struct Synonym {
  const char* name;     // with underscores
  const char* library;  // whose name it is, as a possessive: "the Trainer's"
  // How the value is said in ours.
  enum class Value : uint8_t {
    kSame,    // as it is
    kWhole,   // as it is, where "3.0" is 3
    kShare,   // as it is, below 1
    kFormat,  // `form`, with the value for its "$"
    kSwitch,  // it is a switch: `form` is "ON|OFF", the values for true and false
    // `form` is "theirs=ours|…"; other values are refused with the advice, or kept as they are where it ends in "$".
    // "theirs=" leaves the field as it is, "theirs=*" leaves its value to another flag of the field, without which the
    // word is refused, and "theirs=!" is refused.
    kWords,
    kRefused,  // there is no such field: the advice says what to do
  } kind = Value::kSame;
  const char* field = "";  // of TrainConfig; "" where the name is refused
  const char* form = "";
  const char* advice = "";  // completes "LIBRARY `NAME` …"; names fields in backquotes
  bool per_device = false;  // counts the samples of one device, where the field counts those of the process
};

// Every synonym, by library.
std::span<const Synonym> Synonyms();
// Returns the synonym of that name, with underscores; null where there is none.
const Synonym* FindSynonym(std::string_view name);

// Returns what other libraries mean by values of a field that has the same name there; null where nothing is known.
const Synonym* FindForeignValues(std::string_view field);

// Returns "the Trainer's `optim` is …", the reason why the name is refused.
std::string Explain(const Synonym& synonym);

// The translation of words that leave the value to another flag.
inline constexpr char kOfOtherFlag[] = "*";

// Returns the value of the field for a value of the synonym, "true" or "false" for a switch; "" leaves the field as it
// is. Fails with advice.
absl::StatusOr<std::string> TranslateValue(const Synonym& synonym, std::string_view value);

}  // namespace onnxtrain
