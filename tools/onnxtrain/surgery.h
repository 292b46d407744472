// --num-classes, --head and --reinit: the model that is trained in place of the one that was given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"
#include "tools/onnxtrain/bind.h"

namespace onnxtrain::cli {

// Is any of the three flags given?
bool WantsSurgery();
// Does the model get other outputs, so that what was written beside it about classes and loss is void?
bool ChangesClasses();

struct Surgery {
  std::shared_ptr<const OnnxModel> model;
  std::vector<std::string> fresh;  // weights of a new head or classifier
  std::vector<std::string> lines;  // what was done, for the start page
  std::string logits;              // the value to train on where a head was appended, else ""
};

// What the flags ask for. `data` is null where there is none: then shapes are made up, and --num-classes auto has nothing to
// count. `value` is --logits.
absl::StatusOr<Surgery> Operate(std::shared_ptr<const OnnxModel> model, const BoundData* data, const std::string& value);

}  // namespace onnxtrain::cli
