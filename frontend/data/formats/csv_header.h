// Tells whether the first row of a table names its columns.
#pragma once

#include <string>
#include <vector>

namespace onnxtrain {

enum class FirstRow {
  kSample,
  kNames,
  kNumbers,  // names of which some are numbers, as NumPy's matrices have them in pandas and tables of counts in R
};

// `first` and `next` are the first two rows; `next` is empty where there is one row.
//
// Names are no numbers. They differ and none is missing, unless the next row shows by a number that this one has names.
// Numbers are names
// - behind a corner without a name, above a row that names itself: from 0 on, or three and more in order (years);
// - beside names that stand above numbers: three and more, from 0 or 1 on;
// - alone: from 0 on, where the next row does not go on with them and shows by a number with a fraction that it is of
//   another kind; above whole numbers 16 and more.
FirstRow ClassifyFirstRow(const std::vector<std::string>& first, const std::vector<std::string>& next,
                          bool decimal_comma);

}  // namespace onnxtrain
