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
    kSame,     // as it is
    kWhole,    // as it is, where "3.0" is 3
    kShare,    // as it is, below 1
    kFormat,   // `form`, with the value for its "$"
    kSwitch,   // it is a switch: `form` is "ON|OFF", the values for true and false
    kWords,    // `form` is "theirs=ours|…"; other values are refused with the advice
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

// Returns "the Trainer's `optim` is …", the reason why the name is refused.
std::string Explain(const Synonym& synonym);

// Returns the value of the field for a value of the synonym, "true" or "false" for a switch. Fails with advice.
absl::StatusOr<std::string> TranslateValue(const Synonym& synonym, std::string_view value);

}  // namespace onnxtrain
