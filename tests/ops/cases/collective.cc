#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

// Of one rank: tests/optim/parallel has more of them.
std::vector<Case> CollectiveCases() {
  const Input token = IntValues({1}, {0}, DType::kUInt8);
  const Attrs one = {{"ranks", int64_t{1}}};
  const Attrs axis = {{"ranks", int64_t{1}}, {"axis", int64_t{1}}};
  return {
      {"AllReduce", "AllReduce", {Normal({3, 5})}, one},
      {"AllReduce_after", "AllReduce", {Normal({3, 5}), token}, one},
      {"AllReduce_in_order", "AllReduce", {Normal({3, 5})}, {{"ranks", int64_t{1}}, {"deterministic", int64_t{1}}}},
      {"AllReduce_partial", "AllReduce", {Normal({7})}, {{"ranks", int64_t{1}}, {"gradient", std::string("identity")}}},
      {"AllReduce_i64", "AllReduce", {Ints({4}, -5, 5)}, one},
      {"SumGradient", "SumGradient", {Normal({3, 5})}, one},
      {"AllGather", "AllGather", {Normal({3, 5})}, axis},
      {"AllGather_bool", "AllGather", {Bools({3, 5})}, axis},
      {"AwaitGather", "AwaitGather", {Normal({3, 5})}, one},
      {"ReduceScatter", "ReduceScatter", {Normal({3, 5, 2})}, axis},
  };
}

}  // namespace onnxtrain::cases
