#include "frontend/base/version.h"

namespace onnxtrain {

const char kVersion[] = ONNXTRAIN_VERSION;
const char kCommit[] = ONNXTRAIN_COMMIT;

}  // namespace onnxtrain
