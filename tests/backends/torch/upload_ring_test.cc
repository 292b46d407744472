// The order of transfers and runs, by a device that queues work and executes its two queues in any order that the
// events allow.
#include "backends/torch/upload_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

using ::testing::ElementsAre;
using Bytes = std::vector<std::byte>;

class FakeDevice : public UploadDevice {
 public:
  // Which queue goes on where both could: negative: at random.
  explicit FakeDevice(int eager = -1, uint32_t seed = 0) : eager_(eager), random_(seed) {}

  void Resize(size_t stage, size_t bytes) override {
    Note("resize", stage, StrCat(" ", bytes));
    stages_[stage].pinned.assign(bytes, {});
    stages_[stage].device.assign(bytes, {});
  }
  void Fill(size_t stage, std::span<const std::byte> bytes) override {
    Note("fill", stage);
    std::copy(bytes.begin(), bytes.end(), stages_[stage].pinned.begin());
  }
  void Upload(size_t stage, size_t bytes) override {
    Note("upload", stage);
    Push(Queue::kTransfers,
         [this, stage, bytes] { std::copy_n(stages_[stage].pinned.begin(), bytes, stages_[stage].device.begin()); });
  }
  void Place(size_t stage, std::byte* to, size_t bytes) override {
    Note("place", stage);
    Push(Queue::kRuns, [this, stage, to, bytes] { std::copy_n(stages_[stage].device.begin(), bytes, to); });
  }
  void Record(size_t stage, Queue queue) override {
    Note("record", stage, Name(queue));
    const int ticket = ++recorded_[{stage, queue}];
    Push(queue, [this, stage, queue, ticket] { happened_[{stage, queue}] = ticket; });
  }
  void Await(size_t stage, Queue event_of) override {
    Note("await", stage, Name(event_of));
    const int ticket = recorded_[{stage, event_of}];
    const Queue waits = event_of == Queue::kRuns ? Queue::kTransfers : Queue::kRuns;
    queues_[static_cast<size_t>(waits)].push_back({.ready = Happened(stage, event_of, ticket), .execute = [] {}});
  }
  void Finish(size_t stage, Queue event_of) override {
    Note("finish", stage, Name(event_of));
    const auto ready = Happened(stage, event_of, recorded_[{stage, event_of}]);
    while (!ready()) ASSERT_TRUE(Step()) << "nothing can go on";
  }

  // Queues work of a run.
  void Run(std::function<void()> work) { Push(Queue::kRuns, std::move(work)); }
  void FinishAll() {
    while (Step()) {
    }
    EXPECT_TRUE(queues_[0].empty() && queues_[1].empty()) << "queues wait for each other";
  }
  // How much of the queue has not been executed.
  size_t Pending(Queue queue) const { return queues_[static_cast<size_t>(queue)].size(); }
  // As much as the queue can do by itself.
  void Drain(Queue queue) {
    while (CanStep(queue)) Pop(queue);
  }

  std::vector<std::string> events;

 private:
  struct Work {
    std::function<bool()> ready;
    std::function<void()> execute;
  };
  struct Staging {
    Bytes pinned, device;
  };

  static std::string Name(Queue queue) { return queue == Queue::kRuns ? " runs" : " transfers"; }
  void Note(const char* what, size_t stage, const std::string& more = "") {
    events.push_back(StrCat(what, " ", stage, more));
  }
  std::function<bool()> Happened(size_t stage, Queue queue, int ticket) {
    return [this, stage, queue, ticket] { return happened_[{stage, queue}] >= ticket; };
  }
  void Push(Queue queue, std::function<void()> execute) {
    queues_[static_cast<size_t>(queue)].push_back({.ready = [] { return true; }, .execute = std::move(execute)});
  }
  bool CanStep(Queue queue) const {
    const auto& work = queues_[static_cast<size_t>(queue)];
    return !work.empty() && work.front().ready();
  }
  void Pop(Queue queue) {
    auto& work = queues_[static_cast<size_t>(queue)];
    work.front().execute();
    work.pop_front();
  }
  bool Step() {
    const int first = eager_ >= 0 ? eager_ : static_cast<int>(random_() % 2);
    for (const int q : {first, 1 - first}) {
      if (!CanStep(static_cast<Queue>(q))) continue;
      Pop(static_cast<Queue>(q));
      return true;
    }
    return false;
  }

  const int eager_;
  std::mt19937 random_;
  std::map<size_t, Staging> stages_;
  std::map<std::pair<size_t, Queue>, int> recorded_, happened_;
  std::array<std::deque<Work>, 2> queues_;
};

Bytes MakeBytes(size_t size, int value) { return Bytes(size, static_cast<std::byte>(value)); }

TEST(UploadRing, FillsOneStageWhileTheOtherIsCopied) {
  FakeDevice device;
  UploadRing ring(&device);
  Bytes to(100);
  ring.Write(to.data(), MakeBytes(100, 1));
  EXPECT_THAT(
      std::exchange(device.events, {}),
      ElementsAre("finish 0 transfers", "finish 0 runs", "resize 0 128", "record 0 runs", "fill 0", "await 0 runs",
                  "upload 0", "record 0 transfers", "await 0 transfers", "place 0", "record 0 runs"));
  ring.Write(to.data(), MakeBytes(90, 2));
  device.events.clear();
  ring.Write(to.data(), MakeBytes(100, 3));
  EXPECT_THAT(device.events, ElementsAre("finish 0 transfers", "fill 0", "await 0 runs", "upload 0",
                                         "record 0 transfers", "await 0 transfers", "place 0", "record 0 runs"));
}

// The feed of the next step is on the device before this step has run.
TEST(UploadRing, TransfersDoNotWaitForRuns) {
  FakeDevice device;
  UploadRing ring(&device);
  Bytes to(64);
  for (size_t stage = 0; stage < UploadRing::kStages; ++stage) ring.Write(to.data(), to);  // which allocates
  for (int step = 0; step < 3; ++step) {
    ring.Write(to.data(), MakeBytes(64, step));
    device.FinishAll();
    device.Run([] {});
    ring.Write(to.data(), MakeBytes(64, step + 10));
    device.Drain(UploadDevice::Queue::kTransfers);
    EXPECT_EQ(device.Pending(UploadDevice::Queue::kTransfers), 0u) << "waits for a run";
    EXPECT_EQ(to, MakeBytes(64, step)) << "the run has not read it yet";
    device.FinishAll();
  }
}

// Whatever queue is ahead, every run reads what was written last before it, of feeds of changing sizes.
void CheckRuns(FakeDevice& device, uint32_t seed) {
  UploadRing ring(&device);
  std::mt19937 random(seed);
  std::array<Bytes, 3> to;
  to.fill(Bytes(4096));
  std::vector<std::string> wrong;
  for (int step = 1; step < 40; ++step) {
    for (size_t feed = 0; feed < to.size(); ++feed) {
      const size_t size = 1 + random() % to[feed].size();
      Bytes host = MakeBytes(size, step);
      ring.Write(to[feed].data(), host);
      host.assign(size, std::byte{255});  // the caller may reuse it at once
      device.Run([&, feed, size, step] {
        if (to[feed][0] != std::byte(step) || to[feed][size - 1] != std::byte(step)) wrong.push_back(StrCat(step));
      });
    }
  }
  device.FinishAll();
  EXPECT_THAT(wrong, ElementsAre());
}

TEST(UploadRing, RunsReadWhatWasWrittenBeforeThem) {
  for (const int eager : {0, 1}) {
    FakeDevice device(eager);
    CheckRuns(device, 5);
  }
  for (uint32_t seed = 0; seed < 50; ++seed) {
    FakeDevice device(-1, seed);
    CheckRuns(device, seed);
  }
}

TEST(UploadRing, WritesMoreThanAStageInPieces) {
  FakeDevice device;
  UploadRing ring(&device);
  Bytes to(2 * UploadRing::kMostBytes + 5), from = MakeBytes(to.size(), 7);
  from.back() = std::byte{9};
  ring.Write(to.data(), from);
  device.FinishAll();
  EXPECT_EQ(to, from);
  EXPECT_EQ(std::ranges::count(device.events, "fill 0") + std::ranges::count(device.events, "fill 1"), 3);
}

}  // namespace
}  // namespace onnxtrain::aten
