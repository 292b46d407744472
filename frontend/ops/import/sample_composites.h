// Composite sampling operators. import/sample.cc lists their imports.
#pragma once

#include "frontend/ops/import/import_util.h"
#include "frontend/ops/sample.h"

namespace onnxtrain {

// MaxRoiPool of any float type: regions [R,5] of images [N,C,H,W] (which image, x1, y1, x2, y2), Girshick (2015). The
// bins' ends are whole elements, as onnxruntime rounds them; a bin without elements gives 0. No gradient for regions.
ImportOr ImportMaxRoiPool(ImportContext& c);

// GridSample's cubic mode over three spatial axes: x [N,C,D,H,W] and grid [N,D',H',W',3] → [N,C,D',H',W'].
absl::StatusOr<Val> SampleCubicVolume(Val x, Val grid, const SampleSpec& spec);

}  // namespace onnxtrain
