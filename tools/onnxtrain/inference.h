// What eval, predict, grad and compare share: a model, data bound to it, a session.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/prepare.h"
#include "tools/onnxtrain/common.h"

namespace onnxtrain::cli {

struct DataSetup {
  std::shared_ptr<const OnnxModel> model;
  std::optional<Preprocess> before;
  OpenedData data;
  LossSpec loss;
};

// --model and --data (both must be given) as the subcommand wants them. A folder with evaluation files gives those
// where `eval_split` is true.
absl::StatusOr<DataSetup> OpenModelAndData(bool eval_split, bool want_label);

// --out, which must be given and must not be an input.
absl::StatusOr<std::string> OutputFile(const char* example);

}  // namespace onnxtrain::cli
