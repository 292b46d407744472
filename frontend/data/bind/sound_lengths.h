// Columns that say how long sounds are, for models of speech that take lengths or a mask besides the sounds.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/graph/model_input.h"

namespace onnxtrain {

// Returns a view of `source`, whose column `sound` holds sounds, with a column for each input that is not among `fed`
// and not the name of a column: of a mask [batch, frames], by its name, or of lengths in frames [batch] ("…len…").
// Appends a line for the user about each. Returns `source` if there is no such input.
std::shared_ptr<const Dataset> WithSoundLengths(const std::shared_ptr<const Dataset>& source, int sound,
                                                const std::vector<ModelInput>& inputs, const std::set<std::string>& fed,
                                                std::vector<std::string>* notes);

}  // namespace onnxtrain
