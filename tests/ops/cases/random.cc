#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

std::vector<Case> RandomCases() {
  std::vector<Case> cases;
  for (int64_t stream : {0, 1, 123456789}) {
    const std::string suffix = StrCat("_stream", stream);
    cases.push_back({"Dropout" + suffix, "Dropout", {Normal({3, 31}), Key()}, {{"ratio", 0.3}, {"stream", stream}}});
    cases.push_back({"RandomUniform" + suffix,
                     "RandomUniform",
                     {Key()},
                     {{"shape", std::vector<int64_t>{5, 7}}, {"low", -2.0}, {"high", 3.0}, {"stream", stream}}});
    cases.push_back({"RandomNormal" + suffix,
                     "RandomNormal",
                     {Key()},
                     {{"shape", std::vector<int64_t>{5, 7}}, {"mean", 1.0}, {"scale", 0.5}, {"stream", stream}}});
  }
  for (const int64_t n : {7, 1000})
    cases.push_back({StrCat("RoundStochastic_", n),
                     "RoundStochastic",
                     {Fixed(Normal({n})), IntValues({}, {123456789012})},
                     {{"seed", int64_t{42}}, {"stream", n}}});
  cases.push_back({"Dropout_nothing", "Dropout", {Normal({9}), Key()}, {{"ratio", 0.0}, {"stream", int64_t{3}}}});
  cases.push_back({"Dropout_large", "Dropout", {Normal({70001}), Key()}, {{"ratio", 0.1}, {"stream", int64_t{4}}}});
  return cases;
}

}  // namespace onnxtrain::cases
