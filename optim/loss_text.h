// The grammar of --loss: TERM[+TERM…], a term being [FACTOR*]LOSS[:OPTION=X[,…]][@OUTPUT].
//
//   cross_entropy                            huber:delta=0.5
//   ce@digit+0.5*l1:label=angle@angle        output:NAME
//   onnx:own.onnx+0.1*mse@aux                onnx:FILE (see onnx_loss.h)
//
// A FILE that another term follows ends in .onnx; else it is all of the rest. LOSS is a name or alias of the
// tables in losses/. The option label=COLUMN[/COLUMN…] gives the term labels of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/losses/loss_function.h"

namespace onnxtrain {

struct LossTermSpec {
  const LossFunction* function = nullptr;  // null: auto
  double factor = 1;
  Options options;
  std::string output;                      // after @, or the NAME of output:NAME; "": found
  std::string file;                        // the FILE of onnx:FILE, else ""
  std::vector<std::string> label;          // columns of its own; empty: the common label

  // Names its labels: "" for the common ones, else the columns as they were given.
  std::string label_key() const;
};

// An error names the term and what is wrong with it.
absl::StatusOr<std::vector<LossTermSpec>> ParseLoss(const std::string& text);

}  // namespace onnxtrain
