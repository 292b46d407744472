// Turns pictures and parts of them.
#pragma once

#include "frontend/data/image/image.h"

namespace onnxtrain {

// Turns a picture in place; `spare` lends its memory.
void TurnImage(const Turn& turn, Image* image, Image* spare);

// Returns the turn that does what `first` does and then mirrors and flips as `then` does, which does not transpose.
Turn Compose(const Turn& first, const Turn& then);

// Returns the part of the stored picture (width × height) that `upright` is a part of once the picture is turned.
Box StoredBox(const Turn& turn, int width, int height, const Box& upright);

}  // namespace onnxtrain
