// Finds the rows of embedding tables that stand for padding, which PyTorch does not train.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Sets the attribute kPaddingRow (frontend/ops/import/index.h) of each Gather that was an embedding with padding_idx,
// and notes which rows are not trained. torch.export writes the row into the metadata. In other files of PyTorch it is
// the only row of zeros among the first and last ones of the table, where padding tokens are: PyTorch initializes it
// to zeros.
void MarkPaddingRows(OnnxModel::Parsed* model);

}  // namespace onnxtrain
