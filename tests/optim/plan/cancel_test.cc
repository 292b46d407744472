// A signal that comes while an update runs: what is pending is discarded, and the run ends where it last was whole.
#include <gtest/gtest.h>

#include "frontend/base/cancellation.h"
#include "frontend/data/sources/numpy.h"
#include "optim/plan/training_run.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class Cancel : public Scratch {
 protected:
  Cancel() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(70)).ok());  // updates of 32, 32 and 6 samples
    config_.model = Path("m.onnx");
    config_.data = Path("d.npz");
    config_.epochs = 1;
    config_.micro_batch_size = 8;
  }
  ~Cancel() override { SetCancelFlag(nullptr); }

  struct Ended {
    TrainResult result;
    std::vector<int64_t> saved;
    std::map<std::string, HostTensor> weights;
  };
  class Signaller : public TrainObserver {
   public:
    Signaller(int64_t update, std::atomic<bool>* signal, std::vector<int64_t>* saved)
        : update_(update), signal_(*signal), saved_(*saved) {}
    absl::Status OnBatch(int64_t update, const Batch&) override {
      signal_ = update == update_;
      return absl::OkStatus();
    }
    bool saves() const override { return true; }
    void Save(const LoopPosition& at, SaveReason) override { saved_.push_back(at.result.steps); }

   private:
    const int64_t update_;
    std::atomic<bool>& signal_;
    std::vector<int64_t>& saved_;
  };
  // A signal arrives when the batch of update `cancelled` is ready; 0: never.
  Ended Train(int64_t cancelled) {
    auto run = PrepareTraining(config_);
    EXPECT_TRUE(run.ok()) << run.status();
    std::atomic<bool> signal = false;
    SetCancelFlag(&signal);
    Ended ended;
    Signaller signaller(cancelled, &signal, &ended.saved);
    auto result = onnxtrain::Train(*run->session, run->train, run->eval, run->options, signaller);
    EXPECT_TRUE(result.ok()) << result.status();
    SetCancelFlag(nullptr);
    if (result.ok()) ended.result = *result;
    ended.weights = run->session->Weights().value();
    return ended;
  }

  TrainConfig config_;
};

TEST_F(Cancel, DiscardsWhatIsPending) {
  config_.max_steps = 1;
  const Ended one = Train(0);
  config_.max_steps = 0;
  const Ended cut = Train(2);  // of programs that the first update has compiled
  EXPECT_EQ(cut.result.stop_reason, "signal");
  EXPECT_EQ(cut.result.steps, 1);
  EXPECT_EQ(cut.saved, std::vector<int64_t>{1});
  ASSERT_FALSE(cut.weights.empty());
  for (const auto& [name, value] : cut.weights) EXPECT_TRUE(value.SameBytes(one.weights.at(name))) << name;
}

TEST_F(Cancel, SavesWhereACompilationIsCutOff) {
  const Ended cut = Train(3);  // of programs for six samples
  EXPECT_EQ(cut.result.stop_reason, "signal");
  EXPECT_EQ(cut.result.steps, 2);
  EXPECT_EQ(cut.saved, std::vector<int64_t>{2});
}

}  // namespace
}  // namespace onnxtrain
