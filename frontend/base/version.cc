#include "frontend/base/version.h"

namespace onnxtrain {

const char kVersion[] = ONNXTRAIN_VERSION;

}  // namespace onnxtrain
