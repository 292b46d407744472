#include <limits>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

std::vector<Case> LossCases() {
  std::vector<Case> cases;
  struct Row {
    std::string_view name;
    Shape logits, labels;
  };
  for (const Row& row :
       {Row{"", {6, 5}, {6}}, Row{"_pixels", {2, 4, 3, 5}, {2, 3, 5}}, Row{"_one_class", {3, 1}, {3}}}) {
    for (double smoothing : {0.0, 0.1}) {
      const std::string suffix = std::string(row.name) + (smoothing > 0 ? "_smooth" : "");
      const Attrs attrs = {{"ignore_index", int64_t{-100}}, {"label_smoothing", smoothing}};
      const Input labels = Ints(row.labels, 0, row.logits[1] - 1);
      cases.push_back({"CrossEntropy" + suffix, "CrossEntropy", {Uniform(row.logits, -3, 3), labels}, attrs, {0, 1}});
      cases.push_back({"CrossEntropyGrad" + suffix,
                       "CrossEntropyGrad",
                       {Normal(row.labels), Uniform(row.logits, -3, 0), labels},
                       attrs});
      Attrs ignoring = attrs;
      ignoring.Set("ignore_index", int64_t{0});
      cases.push_back({"CrossEntropy_ignore" + suffix, "CrossEntropy", {Uniform(row.logits, -3, 3), labels}, ignoring});
      cases.push_back({"CrossEntropyGrad_ignore" + suffix,
                       "CrossEntropyGrad",
                       {Normal(row.labels), Uniform(row.logits, -3, 0), labels},
                       ignoring});
    }
  }
  const Input ignored = IntValues({4}, {1, -100, 0, -100});
  cases.push_back({"CrossEntropy_ignored_outside", "CrossEntropy", {Uniform({4, 3}, -3, 3), ignored}, {}});
  cases.push_back(
      {"CrossEntropyGrad_ignored_outside", "CrossEntropyGrad", {Normal({4}), Uniform({4, 3}, -3, 0), ignored}, {}});
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const Input hostile = IntValues({4}, {3, -1, most, least});
  cases.push_back({"CrossEntropy_hostile", "CrossEntropy", {Uniform({4, 3}, -3, 3), hostile}, {}});
  cases.push_back({"CrossEntropyGrad_hostile", "CrossEntropyGrad", {Normal({4}), Uniform({4, 3}, -3, 0), hostile}, {}});
  cases.push_back({"BinaryCrossEntropyWithLogits",
                   "BinaryCrossEntropyWithLogits",
                   {WellSeparated({4, 9}), Uniform({4, 9}, 0, 1)},
                   {}});
  const double inf = std::numeric_limits<double>::infinity();
  cases.push_back({"BinaryCrossEntropyWithLogits_large",
                   "BinaryCrossEntropyWithLogits",
                   {Fixed(Values({5}, {-1000, 1000, -80, 80, inf})), Fixed(Values({5}, {0, 1, 1, 0, 0.5}))},
                   {}});
  return cases;
}

}  // namespace onnxtrain::cases
