// Inputs of strings as numbers.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Makes inputs of strings inputs of int64 where the graph only moves their strings and looks them up in lists of the
// file, as encoders of categories do. Each string is its place in OnnxModel::Parsed::texts, which lists all that the
// model compares with, and -1 if it is not there; the operators become those on integers. Where another operator reads
// the strings, nothing changes. The file keeps its own form.
void NumberInputTexts(OnnxModel::Parsed* model);

}  // namespace onnxtrain
