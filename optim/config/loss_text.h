// Parses loss expressions: TERM[+TERM…], where TERM is [FACTOR*]LOSS[:OPTION=X[,…]][@OUTPUT].
//
//   cross_entropy                            huber:delta=0.5
//   ce@digit+0.5*l1:label=angle@angle        output:NAME
//   onnx:own.onnx+0.1*mse@aux                onnx:FILE (see onnx_functions.h)
//
// A FILE followed by another term must end in .onnx. LOSS is a name or alias from the tables in losses/. The option
// label=COLUMN[/COLUMN…] selects the term's labels.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

struct LossTermSpec {
  const LossFunction* function = nullptr;  // null: auto
  double factor = 1;
  Options options;
  std::string output;              // after @, or the NAME of output:NAME; "": inferred
  std::string file;                // the FILE of onnx:FILE, else ""
  std::vector<std::string> label;  // label columns; empty: the default label

  // Key of LossSpec::own_labels: "" for the default label, else the columns as written.
  std::string label_key() const;
};

// Parses `text` into its terms. Errors name the term.
absl::StatusOr<std::vector<LossTermSpec>> ParseLoss(const std::string& text);

}  // namespace onnxtrain
