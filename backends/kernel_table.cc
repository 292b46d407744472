#include "backends/kernel_table.h"

#include "frontend/base/log.h"

namespace onnxtrain {

void DieOnBadKernelTable(std::string_view what, std::string_view op) { LOG(FATAL) << what << ": " << op; }

}  // namespace onnxtrain
