#include "frontend/data/dataset.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::string> Dataset::ReadText(int64_t i, int c) const {
  return Invalid(Describe(i), ", column '", columns()[c].name, "': no text");
}

}  // namespace onnxtrain
