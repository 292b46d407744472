#include "frontend/base/shared.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace onnxtrain {
namespace {

using Ints = std::vector<int>;

TEST(Shared, CopiesHoldOneObjectUntilOneIsChanged) {
  Shared<Ints> a = Ints{1};
  Shared<Ints> b = a;
  EXPECT_TRUE(a.HoldsSameObject(b));
  b.Mutable().push_back(2);
  EXPECT_EQ(*a, Ints{1});
  EXPECT_EQ(*b, (Ints{1, 2}));
  EXPECT_FALSE(a == b);
}

TEST(Shared, ChangesTheOnlyHoldersObjectInPlace) {
  Shared<Ints> a = Ints{1};
  const Ints* object = &*a;
  a.Mutable().push_back(2);
  EXPECT_EQ(&*a, object);
  std::optional<Shared<Ints>> other = a;
  other.reset();
  a.Mutable().push_back(3);
  EXPECT_EQ(&*a, object);
}

TEST(Shared, ComparesValues) {
  EXPECT_TRUE(Shared<std::string>("x") == Shared<std::string>("x"));
  EXPECT_TRUE(Shared<std::string>() == Shared<std::string>(""));
  EXPECT_FALSE(Shared<std::string>("x") == Shared<std::string>());
}

TEST(Shared, DefaultIsEmptyAndCanBeChanged) {
  Shared<Ints> a;
  const Shared<Ints> b = a;
  EXPECT_TRUE(a->empty());
  a.Mutable().push_back(1);
  EXPECT_EQ(*a, Ints{1});
  EXPECT_TRUE(b->empty());
}

// The thread sanitizer sees a change that does not wait for another holder's last read.
TEST(Shared, HoldersOfOneObjectMayBeUsedByThreads) {
  for (int repetition = 0; repetition < 200; ++repetition) {
    Shared<Ints> a = Ints{1};
    Ints read;
    std::thread reader([&read, other = a]() mutable {
      read = *other;
      other = Shared<Ints>();
    });
    a.Mutable().push_back(2);
    EXPECT_EQ(*a, (Ints{1, 2}));
    reader.join();
    EXPECT_EQ(read, Ints{1});
  }
}

}  // namespace
}  // namespace onnxtrain
