// Every test verifies the result of every pass.
#include "frontend/passes/pass.h"

namespace onnxtrain {
namespace {

[[maybe_unused]] const bool kVerify = (SetVerifyPasses(true), true);

}  // namespace
}  // namespace onnxtrain
