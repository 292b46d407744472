// What the importer tells recurrent operators about their weights.
#pragma once

namespace onnxtrain {

// The attribute that marks an LSTM, GRU or RNN whose recurrent biases are zeros because the framework that wrote it has
// one bias. They are not trained. Files do not hold it.
inline constexpr char kSingleBias[] = "importer.single_bias";

}  // namespace onnxtrain
