// Recognizes filters that programs compute once and exporters write as if they were weights: no initializer draws such
// numbers, and training would not keep them.
#pragma once

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Is it the basis of a transform into frequencies: windowed cosines and sines of equally spaced frequencies, by rows or
// by columns, cosines and sines in two halves, in turn, or alone (Fourier, DCT)?
bool IsFrequencyBasis(const HostTensor& tensor);

// Is it a bank of overlapping band filters, by rows or by columns: no negative numbers, half of them zeros, each band
// in one piece and none before the last one (mel scale)?
bool IsBandFilterBank(const HostTensor& tensor);

// Of a convolution. Are they small multiples of one number, not zeros and ones alone (Sobel, Laplace, Haar, binomial)?
bool HasIntegerKernels(const HostTensor& tensor);

// Of a convolution. Does each of several channels have the same kernel for itself, as in filters that blur?
bool RepeatsOneKernel(const HostTensor& tensor);

}  // namespace onnxtrain
