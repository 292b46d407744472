// Moves the channels of pictures in arrays to the axis where a model has them.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

enum class ChannelMove : uint8_t { kToFirst, kToLast };

// How samples [h, w, c] or [c, h, w] of at most 4 channels fit an input with extents `fixed` (-1: free, no batch axis),
// which they do not fit as they are; nullopt: neither way, or they are no array of numbers.
std::optional<ChannelMove> FindChannelMove(const Column& column, const Shape& fixed);

// The shape [h, w, c] or [c, h, w] after the move.
Shape MoveChannels(const Shape& sample, ChannelMove move);

// `source` with the samples of those columns, by index, transposed.
std::shared_ptr<const Dataset> WithMovedChannels(std::shared_ptr<const Dataset> source,
                                                 std::map<int, ChannelMove> moves);

}  // namespace onnxtrain
