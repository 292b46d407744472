#include <signal.h>

#include "frontend/base/cancellation.h"
#include "gtest/gtest.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM};

class Signals : public testing::Test {
 protected:
  Signals() { cli::CatchSignals(); }
  ~Signals() override {
    for (int number : kSignals) signal(number, SIG_DFL);
    SetCancelFlag(nullptr);
  }
};

// Products that are interrupted use the stack pointer for memory on the heap.
TEST_F(Signals, AreHandledOnAStackOfTheirOwn) {
  for (int number : kSignals) {
    struct sigaction action = {};
    ASSERT_EQ(sigaction(number, nullptr, &action), 0);
    if (action.sa_handler == SIG_IGN) continue;  // as behind nohup
    EXPECT_NE(action.sa_handler, SIG_DFL) << number;
    EXPECT_NE(action.sa_flags & SA_ONSTACK, 0) << number;
  }
  stack_t stack = {};
  ASSERT_EQ(sigaltstack(nullptr, &stack), 0);
  EXPECT_EQ(stack.ss_flags & SS_DISABLE, 0);
  EXPECT_GE(stack.ss_size, size_t{32} * 1024);  // room for the state of the widest vector units
}

}  // namespace
}  // namespace onnxtrain
