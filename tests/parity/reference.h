// What PyTorch computed: reference.py is run once per process, its files are read here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "gtest/gtest.h"
#include "optim/step/session.h"

namespace onnxtrain::parity {

using Arrays = std::map<std::string, HostTensor>;

inline constexpr int kSteps = 50, kBatch = 16;

// Runs /usr/bin/python3 tests/parity/reference.py into build/…/parity. False, with a test failure, if that fails:
// python3-torch is a requirement of the tests.
bool HaveReference();

std::string ReferencePath(const std::string& file);
// The arrays of NAME.KIND.npz.
const Arrays& Reference(const std::string& name, const std::string& kind);
// Those whose names begin with prefix, without it.
Arrays WithPrefix(const Arrays& arrays, const std::string& prefix);

// Samples [begin, begin + count) of the arrays x and y, floats as `dtype`.
GlobalBatch MakeGlobalBatch(const Arrays& data, DType dtype, int64_t begin, int64_t count);

// ‖a − b‖ / ‖b‖ over all elements of tensors of equal shape.
double RelativeDistance(const HostTensor& a, const HostTensor& b);
// The same for whole sets of tensors; every name of b must be in a.
double RelativeDistance(const Arrays& a, const Arrays& b);
// max |a − b| / max(1, |b|)
double LargestDifference(const HostTensor& a, const HostTensor& b);
double LargestValue(const HostTensor& a);  // max |a|

}  // namespace onnxtrain::parity
