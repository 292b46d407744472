// Archives that hold training and evaluation samples: x_train and x_test as Keras names them, or train_images and
// val_images as MedMNIST does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace onnxtrain {

// Which arrays make one part, and the names of their columns: {"x_train": "x"}.
using NpzPart = std::map<std::string, std::string>;

// The arrays to train on, or with `eval_split` those to evaluate on (of validation rather than of test). Nothing where
// the names do not divide into such parts with equal columns.
std::optional<NpzPart> FindNpzPart(const std::vector<std::string>& arrays, bool eval_split);

}  // namespace onnxtrain
