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
// - behind a corner without a name, above a row that names itself: from 0 on, or three and more in order;
// - beside names that stand above numbers: three and more, from 0 or 1 on;
// - beside other names: five and more in steps of one, above others;
// - alone: three and more from 0 on, above a number with a fraction, which is of another kind; sixteen and more in
//   steps of one, above others;
// - where they are three and more years at equal distances, above numbers that are none.
FirstRow ClassifyFirstRow(const std::vector<std::string>& first, const std::vector<std::string>& next,
                          bool decimal_comma);

}  // namespace onnxtrain
