#include "optim/parallel/gradient_share.h"

#include <cmath>
#include <limits>

#include "frontend/base/small_float.h"
#include "tests/optim/parallel/gloo_ranks.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

class RoundedSums : public Scratch {};

float ValueOf(int rank, size_t i) { return std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(rank)) * 3; }

// Sizes that no number of ranks divides, and one value.
TEST_F(RoundedSums, AreTheSumsOfRoundedValues) {
  for (const int size : {2, 3, 4}) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{4097}}) {
      RunRanks(Path("meet"), size, [&](Collectives& ranks) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) values[i] = ValueOf(ranks.rank(), i);
        RoundedSum sum(&ranks);
        ASSERT_TRUE(sum.Sum("sum", values).ok());
        for (size_t i = 0; i < count; ++i) {
          float expected = 0;
          for (int r = 0; r < size; ++r) expected += BFloat16ToFloat(FloatToBFloat16(ValueOf(r, i)));
          EXPECT_EQ(values[i], BFloat16ToFloat(FloatToBFloat16(expected))) << i << " of " << count;
        }
      });
    }
  }
}

TEST_F(RoundedSums, KeepWhatIsNotFinite) {
  RunRanks(Path("meet"), 2, [&](Collectives& ranks) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::vector<float> values = {ranks.rank() == 0 ? kInf : 1, ranks.rank() == 1 ? std::nanf("") : 1, 3e38f, 1};
    RoundedSum sum(&ranks);
    ASSERT_TRUE(sum.Sum("sum", values).ok());
    EXPECT_EQ(values[0], kInf);
    EXPECT_TRUE(std::isnan(values[1]));
    EXPECT_EQ(values[2], kInf) << "an overflow is found as one";
    EXPECT_EQ(values[3], 2);
  });
}

}  // namespace
}  // namespace onnxtrain
