// Folders that hold a file for training and one for evaluation: train.csv and val.csv, train.bin and val.bin.
#pragma once

#include <optional>
#include <string>

namespace onnxtrain {

struct SplitFiles {
  std::string train;  // the one that is called so, else the only table
  std::string eval;   // "": there is none
  std::string test;   // a table of samples without labels, as competitions give it; "": there is none
};

// Finds them by their names and suffixes; folders of classes for training come first. Nullopt where there is
// no file for training. A table for evaluation has all columns of the one for training.
std::optional<SplitFiles> FindSplitFiles(const std::string& folder);

}  // namespace onnxtrain
