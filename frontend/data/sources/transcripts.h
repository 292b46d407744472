// Texts that belong to pictures or sounds: word.txt beside word.png, or a table of all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Removes the names of texts from `others`, of files in a folder that are no samples: those whose name without .txt,
// .gt.txt or .lab is that of a sample without its suffix.
void RemoveTranscripts(const std::vector<std::string>& samples, std::vector<std::string>* others);

// Returns the data of the table that names the samples of a folder and their texts: metadata.csv or metadata.jsonl,
// else the only table in the folder (.csv, .tsv, .jsonl), else "tsv:" and PP-OCR's rec_gt_train.txt or rec_gt.txt; ""
// if there is none.
std::string FindTextTable(const std::string& folder);

// Makes a data set with a column "label" of the text of each sample. `names` are relative to the folder. Fails, naming
// it, at a sample without a text.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTranscripts(const std::string& folder,
                                                               const std::vector<std::string>& names);

}  // namespace onnxtrain
