// Normalization of pixels within a model: what its first nodes do to them tells what they take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/data/load/loader.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// y = scale[c] · x + shift[c] for channel c of the input, whose channels come out in reverse order if `reversed`.
struct InnerPixels {
  std::vector<double> scale, shift;
  bool reversed = false;
};

// Finds by evaluating the nodes behind the input of `feed` how far they do the same to all pixels. nullopt: they do
// nothing, or different things on several ways.
std::optional<InnerPixels> FindInnerPixels(const OnnxModel& model, ImportOptions options, const FeedSpec& feed);

// The pixels that come out of it as pixels usually do, as `normalize` and `channel_order` take them; "": it does not
// tell. Pixels of one model come out in 0 to 1, around 0 with a span of about 2 to 5, or, less a mean, as 0 to 255.
struct PixelProposal {
  std::string normalize, order;
};
PixelProposal ProposePixels(const InnerPixels& inner);

}  // namespace onnxtrain
