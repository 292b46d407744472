// A window's way into a program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "optim/programs.h"
#include "optim/slots.h"
#include "optim/window.h"

namespace onnxtrain {

// What random operators draw by.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0, micro = 0;
};

// The feeds of one program. What goes where is found once, so filling them allocates nothing.
class WindowFeeds {
 public:
  // `program` must outlive it. `random_key`: the feed of that name gets the RandomKey; "" for none.
  WindowFeeds(const CompiledProgram& program, const std::string& random_key);

  // Samples [begin, begin + count) of the window. Fails, naming the feed, on a tensor that is missing or of another type.
  absl::Status Fill(const Window& window, int64_t begin, int64_t count, const RandomKey& key);
  // What the gradient of each term is seeded with, for a window of these weights.
  absl::Status FillWeights(const LossChoice& loss, const std::vector<double>& weights);

 private:
  struct Feed {
    const std::string* name;
    const Region* region;
  };
  std::vector<Feed> inputs_;  // from Window::feeds, in the order of names
  const Region* label_ = nullptr;
  const Region* key_ = nullptr;
  HostTensor key_on_host_;
  std::vector<std::pair<size_t, Slot>> inverse_weights_;  // by term
};

}  // namespace onnxtrain
