// When runs are recorded and replayed, by a recorder that writes down what a device would do.
#include "backends/torch/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

using ::testing::ElementsAre;

using Events = std::vector<std::string>;

class FakeRecording : public Recording {
 public:
  explicit FakeRecording(Events* events) : events_(events) {}
  ~FakeRecording() override { events_->push_back("free"); }
  void Start() override { events_->push_back("start"); }

 private:
  Events* events_;
};

class FakeRecorder : public Recorder {
 public:
  FakeRecorder(Events* events, bool refuses) : events_(events), refuses_(refuses) {}
  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<void()>& run) override {
    events_->push_back("record");
    run();
    if (refuses_) return absl::UnimplementedError("a kernel waits for the device");
    return std::make_unique<FakeRecording>(events_);
  }

 private:
  Events* events_;
  bool refuses_;
};

// The events of `runs` runs.
Events Repeat(Replay& replay, Events* events, int runs) {
  for (int i = 0; i < runs; ++i) replay.Run([&] { events->push_back("kernels"); });
  return std::exchange(*events, {});
}

TEST(Replay, RecordsAfterWarmUpsAndStartsTheRecordingFromThenOn) {
  Events events;
  FakeRecorder recorder(&events, false);
  Replay replay(&recorder);
  EXPECT_EQ(Repeat(replay, &events, Replay::kWarmUps), Events(Replay::kWarmUps, "kernels"));
  EXPECT_THAT(Repeat(replay, &events, 3), ElementsAre("record", "kernels", "start", "start", "start"));
}

TEST(Replay, WarmsUpAndRecordsAnewWhenAddressesChange) {
  Events events;
  FakeRecorder recorder(&events, false);
  Replay replay(&recorder);
  Repeat(replay, &events, Replay::kWarmUps + 1);
  replay.Reset();
  EXPECT_THAT(std::exchange(events, {}), ElementsAre("free"));
  EXPECT_EQ(Repeat(replay, &events, Replay::kWarmUps), Events(Replay::kWarmUps, "kernels"));
  EXPECT_THAT(Repeat(replay, &events, 1), ElementsAre("record", "kernels", "start"));
}

TEST(Replay, RunsKernelsOneByOneWhereRecordingFails) {
  Events events;
  FakeRecorder recorder(&events, true);
  Replay replay(&recorder);
  Repeat(replay, &events, Replay::kWarmUps);
  EXPECT_THAT(Repeat(replay, &events, 2), ElementsAre("record", "kernels", "kernels", "kernels"))
      << "the run that could not be recorded runs, and no later one is tried";
  replay.Reset();
  EXPECT_EQ(Repeat(replay, &events, 6), Events(6, "kernels"));
}

TEST(Replay, NeverRecordsWithoutARecorder) {
  Events events;
  Replay replay(nullptr);
  EXPECT_EQ(Repeat(replay, &events, 9), Events(9, "kernels"));
}

TEST(Replay, AFailedRunIsNoWarmUp) {
  Events events;
  FakeRecorder recorder(&events, false);
  Replay replay(&recorder);
  for (int i = 0; i < 9; ++i) EXPECT_ANY_THROW(replay.Run([] { throw std::runtime_error("no memory"); }));
  EXPECT_EQ(Repeat(replay, &events, Replay::kWarmUps), Events(Replay::kWarmUps, "kernels"));
}

}  // namespace
}  // namespace onnxtrain::aten
