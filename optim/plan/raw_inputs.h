// Inputs that take data as it is in a file, because the model encodes it: strings, which encoders of categories read,
// and missing values, which an imputer fills in.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/transform.h"
#include "frontend/graph/model_input.h"

namespace onnxtrain {

struct RawInput {
  std::string name;
  std::vector<std::string> columns;  // that feed it, by name or 0-based index; empty: those of its name
  std::shared_ptr<const std::vector<std::string>> texts;  // as ModelInput has them; null: it takes missing values
  bool alone = false;                                     // the model has no other input: all columns feed it
};

// `columns` has the columns that are chosen already, by input.
std::vector<RawInput> ListRawInputs(const std::vector<ModelInput>& inputs,
                                    const std::map<std::string, std::vector<std::string>>& columns);

// Lets the reader of the file keep their categories and missing values, as far as the names of the columns are known
// before it is open.
void AllowRawInputs(const std::vector<RawInput>& inputs, DatasetOptions* options);

// Returns the transforms of the columns that feed inputs of strings, without those of `untouched` where all columns do.
// Adds the columns to `options`; returns in *reopen whether they were not all there.
std::vector<ColumnTransform> PlaceTexts(const std::vector<RawInput>& inputs, const std::vector<Column>& columns,
                                        const std::set<std::string>& untouched, DatasetOptions* options, bool* reopen);

}  // namespace onnxtrain
