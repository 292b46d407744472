// The text form of an imported model, for comparisons.
#pragma once

#include <string>

#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

inline std::string DescribeImport(const ImportedModel& model) {
  std::string text = StrCat(Print(model.graph), "\n", model.batch, " ", model.exported_batch, " ", model.random_key);
  for (const ImportedWeight& w : model.weights)
    StrAppend(&text, "\n", w.name, " ", w.consumer, " ", ToString(w.value.type()));
  for (const StateUpdate& update : model.state_updates) StrAppend(&text, "\n", update.state, " ", update.output);
  for (const std::string& note : model.notes) StrAppend(&text, "\n", note);
  return text;
}

}  // namespace onnxtrain
