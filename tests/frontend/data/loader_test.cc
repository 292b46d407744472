// GCC 12 takes what a designated initializer leaves to its default for uninitialized, where a temporary is optimized
// away.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "frontend/data/load/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "frontend/base/status.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/sources/dataset.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 103;

// Sample i is (i, -i); fails at `bad`.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t bad = -1) : bad_(bad) {
    columns_.push_back({.name = "x", .sample = {DType::kInt32, {2}}, .classes = {}});
  }
  int64_t size() const override { return kSamples; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat("numbers: sample ", i); }
  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    ++reads_;
    if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));  // workers overtake each other
    if (i == bad_) return Invalid(Describe(i), ": broken");
    const int32_t values[2] = {static_cast<int32_t>(i), static_cast<int32_t>(-i)};
    std::memcpy(out.data(), values, sizeof(values));
    return absl::OkStatus();
  }
  int64_t reads() const { return reads_; }

 private:
  int64_t bad_;
  std::vector<Column> columns_;
  mutable std::atomic<int64_t> reads_ = 0;
};

const FeedSpec kSpec{.feed = "x", .columns = {0}, .sample = {DType::kFloat32, {1, 2}}};

struct Delivered {
  std::vector<int64_t> epochs, samples;
  std::vector<size_t> sizes;
  std::vector<double> values;
  bool operator==(const Delivered&) const = default;
};

absl::StatusOr<Delivered> Drain(std::shared_ptr<const Dataset> data, const LoaderOptions& options) {
  ASSIGN_OR_RETURN(auto loader, Loader::Create(std::move(data), {kSpec}, options));
  Delivered out;
  while (true) {
    ASSIGN_OR_RETURN(auto batch, loader->Next());
    if (batch == nullptr) break;
    out.epochs.push_back(batch->epoch);
    out.sizes.push_back(batch->samples.size());
    out.samples.insert(out.samples.end(), batch->samples.begin(), batch->samples.end());
    EXPECT_EQ(batch->tensors[0].type(), (Type{DType::kFloat32, {static_cast<int64_t>(batch->samples.size()), 1, 2}}));
    for (double v : batch->tensors[0].ToDoubles()) out.values.push_back(v);
  }
  ASSIGN_OR_RETURN(const auto after, loader->Next());
  EXPECT_EQ(after, nullptr);
  EXPECT_GE(loader->waited_seconds(), 0);
  return out;
}

Delivered MustDrain(const LoaderOptions& options) {
  const auto out = Drain(std::make_shared<Numbers>(), options);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : Delivered();
}

TEST(Loader, DeliversEpochsInTheirOrder) {
  for (bool shuffle : {false, true}) {
    const Delivered got = MustDrain({.batch_size = 10, .shuffle = shuffle, .seed = 5, .num_workers = 3, .epochs = 2});
    std::vector<int64_t> want = EpochOrder(kSamples, 5, 0, shuffle);
    for (int64_t i : EpochOrder(kSamples, 5, 1, shuffle)) want.push_back(i);
    EXPECT_EQ(got.samples, want);
    ASSERT_EQ(got.sizes.size(), 22u);
    EXPECT_EQ(got.sizes[10], 3u);  // the short last one
    EXPECT_EQ(got.epochs[10], 0);
    EXPECT_EQ(got.epochs[11], 1);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got.values[2 * k], want[k]);
      EXPECT_EQ(got.values[2 * k + 1], -want[k]);
    }
  }
}

TEST(Loader, WorkersChangeNothing) {
  for (bool drop_last : {false, true}) {
    LoaderOptions options{.batch_size = 8, .drop_last = drop_last, .shuffle = true, .num_workers = 0, .epochs = 3};
    const Delivered want = MustDrain(options);
    EXPECT_EQ(want.samples.size(), drop_last ? 3u * 96 : 3u * kSamples);
    for (int workers : {1, 2, 5, 16}) {
      for (int ahead : {0, 1, 4}) {
        options.num_workers = workers;
        options.prefetch_factor = ahead;
        EXPECT_TRUE(MustDrain(options) == want) << workers << " workers, " << ahead << " ahead";
      }
    }
  }
}

// Beginning where another loader was stopped gives the rest of what it would have given.
TEST(Loader, Resumes) {
  for (bool drop_last : {false, true}) {
    const LoaderOptions whole{.batch_size = 8, .drop_last = drop_last, .shuffle = true, .num_workers = 2, .epochs = 3};
    const Delivered all = MustDrain(whole);
    const int64_t per_epoch = drop_last ? 12 : 13;
    for (int64_t done = 0; done <= 2 * per_epoch; ++done) {
      LoaderOptions rest = whole;
      rest.first_epoch = done / per_epoch;
      rest.first_sample = done % per_epoch * 8;
      rest.epochs = 3 - rest.first_epoch;
      const Delivered got = MustDrain(rest);
      EXPECT_EQ(got.epochs, std::vector<int64_t>(all.epochs.begin() + done, all.epochs.end())) << done;
      EXPECT_EQ(got.sizes, std::vector<size_t>(all.sizes.begin() + done, all.sizes.end())) << done;
      EXPECT_TRUE(std::equal(got.samples.rbegin(), got.samples.rend(), all.samples.rbegin())) << done;
    }
  }
}

TEST(Loader, ResumesWithAnotherBatchSizeAndAtTheVeryEnd) {
  const Delivered got =
      MustDrain({.batch_size = 50, .shuffle = true, .first_epoch = 4, .first_sample = 13, .epochs = 1});
  const std::vector<int64_t> order = EpochOrder(kSamples, 42, 4, true);
  EXPECT_EQ(got.samples, std::vector<int64_t>(order.begin() + 13, order.end()));
  EXPECT_EQ(got.sizes, (std::vector<size_t>{50, 40}));
  const Delivered end = MustDrain({.batch_size = 50, .first_epoch = 0, .first_sample = kSamples, .epochs = 2});
  EXPECT_EQ(end.epochs, (std::vector<int64_t>{1, 1, 1}));
  EXPECT_TRUE(MustDrain({.batch_size = 50, .epochs = 0}).sizes.empty());
}

TEST(Loader, ForEver) {
  auto loader =
      Loader::Create(std::make_shared<Numbers>(), {kSpec}, {.batch_size = 100, .num_workers = 2, .epochs = -1});
  ASSERT_TRUE(loader.ok());
  for (int i = 0; i < 50; ++i) {
    const auto batch = (*loader)->Next();
    ASSERT_TRUE(batch.ok() && *batch != nullptr);
    EXPECT_EQ((*batch)->epoch, i / 2);
  }
}

TEST(Loader, ErrorsComeInOrderAndStay) {
  for (int workers : {0, 1, 4}) {
    auto loader = Loader::Create(std::make_shared<Numbers>(57), {kSpec}, {.batch_size = 10, .num_workers = workers});
    ASSERT_TRUE(loader.ok());
    for (int i = 0; i < 5; ++i) {
      const auto batch = (*loader)->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ((*batch)->samples[0], 10 * i);
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Message((*loader)->Next().status()), "numbers: sample 57: broken");
  }
}

// Batches are views of num_workers · prefetch_factor + 1 buffers, also the short last ones.
TEST(Loader, ReusesItsBuffers) {
  for (const int workers : {0, 2}) {
    const LoaderOptions options{.batch_size = 10, .num_workers = workers, .prefetch_factor = 2, .epochs = 3};
    auto loader = Loader::Create(std::make_shared<Numbers>(), {kSpec}, options);
    ASSERT_TRUE(loader.ok());
    std::set<const std::byte*> buffers;
    HostTensor last;
    for (int i = 0; i < 33; ++i) {
      const auto batch = (*loader)->Next();
      ASSERT_TRUE(batch.ok() && *batch != nullptr);
      last = (*batch)->tensors[0];
      buffers.insert(last.bytes().data());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(last.bytes().data()) % 64, 0u);
    }
    EXPECT_LE(buffers.size(), workers * 2u + 1);
    loader->reset();
    EXPECT_EQ(last.ToDoubles(), (std::vector<double>{100, -100, 101, -101, 102, -102})) << "outlives the loader";
  }
}

// Workers read at most num_workers · prefetch_factor batches ahead; destroying the loader stops them at any point.
TEST(Loader, IsBoundedAndStops) {
  for (int taken : {0, 1, 3}) {
    auto data = std::make_shared<Numbers>();
    {
      auto loader =
          Loader::Create(data, {kSpec}, {.batch_size = 2, .num_workers = 3, .prefetch_factor = 2, .epochs = -1});
      ASSERT_TRUE(loader.ok());
      for (int i = 0; i < taken; ++i) ASSERT_TRUE((*loader)->Next().ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_LE(data->reads(), (taken + 6) * 2);
    }
    EXPECT_EQ(data.use_count(), 1);
  }
}

TEST(Loader, SeveralFeeds) {
  const auto data = *InMemoryDataset("mem", {"image", "label"},
                                     {HostTensor({DType::kUInt8, {5, 2, 2}}), HostTensor::FromInts({4, 3, 2, 1, 0})});
  auto loader = Loader::Create(
      data,
      {{.feed = "input", .columns = {0}, .sample = {DType::kFloat32, {1, 2, 2}}, .scale = 1, .mean = {1}},
       {.feed = "label", .columns = {1}, .sample = {DType::kInt32, {1}}}},
      {.batch_size = 3});
  ASSERT_TRUE(loader.ok()) << loader.status();
  const auto batch = (*loader)->Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ((*batch)->tensors[0].shape(), (Shape{3, 1, 2, 2}));
  EXPECT_EQ((*batch)->tensors[0].At(11), -1);
  EXPECT_EQ((*batch)->tensors[1].type(), (Type{DType::kInt32, {3, 1}}));
  EXPECT_EQ((*batch)->tensors[1].ToInts(), (std::vector<int64_t>{4, 3, 2}));
}

TEST(Loader, OptionsThatCannotBe) {
  const auto message = [](const LoaderOptions& options) {
    return Message(Loader::Create(std::make_shared<Numbers>(), {kSpec}, options).status());
  };
  EXPECT_EQ(message({.batch_size = 0}), "batch size 0 is not possible");
  EXPECT_EQ(message({.batch_size = INT64_MAX}), StrCat("batch size ", INT64_MAX, " is not possible"));
  EXPECT_EQ(message({.num_workers = -1}), "-1 loader threads are not possible");
  EXPECT_EQ(message({.first_sample = kSamples + 1}), "cannot begin at epoch 0, sample 104 of 103");
  EXPECT_EQ(message({.batch_size = 104, .drop_last = true}),
            "no batch is left: 103 samples, batch size 104, and the short last batch is dropped");
  const auto broken = InMemoryDataset("mem", {"x"}, {HostTensor::FromInts({1, 2})});
  EXPECT_EQ(Message(Loader::Create(*broken, {kSpec}, {}).status()),
            "input 'x': expected f32[1,2] = 2 values per sample, got 1 (column 'x' i64[])");
  TempDir dir;
  const auto table = OpenDataset(dir.Write("t.csv", "a,y\n,1\n"), {.header = Header::kYes});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(
      Message(Loader::Create(*table, {{.feed = "x", .columns = {0}, .sample = {DType::kFloat32, {1}}}}, {}).status()),
      StrCat("input 'x': ", dir / "t.csv", ": row 2, column 'a': missing value"));
}

TEST(Labels, AreChecked) {
  TempDir dir;
  const auto data = *OpenDataset(dir.Write("t.csv", "a,y,z,w\n1,0,0.5,\n2,3,1,x\n3,-100,2,x\n"), {.label = {"y"}});
  EXPECT_TRUE(CheckLabels(*data, 1, 4, -100).ok());
  EXPECT_EQ(Message(CheckLabels(*data, 1, 3, -100)),
            dir / "t.csv" +
                ": row 3, column 'y': label 3 is outside of the 3 classes 0 to 2"
                " (`num_classes` auto fits the last layer to the labels)");
  EXPECT_EQ(Message(CheckLabels(*data, 1, 4, -1)),
            dir / "t.csv" +
                ": row 4, column 'y': label -100 is outside of the 4 classes 0 to 3 (`class_map` FILE with a line for "
                "each label numbers them from 0, and `num_classes` auto makes an output for each of the 3 labels; "
                "`ignore_index` leaves one out)");
  EXPECT_TRUE(Message(CheckLabels(*data, 1, 2, -1))
                  .ends_with("the 2 classes 0 to 1 (`num_classes` auto makes an output for each of the 3 labels; "
                             "`ignore_index` leaves one out)"));
  EXPECT_EQ(Message(CheckLabels(*data, 2, 4, -1)),
            dir / "t.csv" +
                ": row 2, column 'z': 0.5 is not an integer in range, as the labels of a loss on 4 classes "
                "are; numbers are trained with `loss` mse and a `label` column for each of the output's");
  EXPECT_EQ(Message(CheckLabels(*data, 3, 4, -1)), dir / "t.csv" + ": row 2, column 'w': missing value");
  const auto range = ComputeLabelRange(*data, 1, -100);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->min, 0);
  EXPECT_EQ(range->max, 3);
  const auto from_one = *InMemoryDataset("mem", {"y"}, {HostTensor::FromInts({2, 1, 3})});
  EXPECT_THAT(Message(CheckLabels(*from_one, 0, 3, -100)),
              ::testing::HasSubstr("the labels begin at 1: `class_map` FILE with a line for each of 1 to 3"));
  const auto mask = *InMemoryDataset(
      "mem", {"y"}, {HostTensor::FromInts({DType::kUInt8, {1, 2, 2}}, std::vector<int64_t>{0, 1, 255, 2})});
  EXPECT_THAT(Message(CheckLabels(*mask, 0, 3, -100)),
              ::testing::HasSubstr("`ignore_index` 255 if it marks pixels of no"));
  const auto ignored = *InMemoryDataset("mem", {"y"}, {HostTensor::FromInts({-100, -100})});
  EXPECT_EQ(Message(ComputeLabelRange(*ignored, 0, -100).status()), "column 'y' has no label but ignore_index");
}

TEST(Slices, ArePartsOfADataset) {
  const auto slice = SliceDataset(std::make_shared<Numbers>(), 10, 13);
  EXPECT_EQ(slice->size(), 3);
  EXPECT_EQ(ColumnValues(*slice, 0), (std::vector<double>{10, -10, 11, -11, 12, -12}));
  EXPECT_EQ(slice->Describe(0), "numbers: sample 10");
}

// Sample i is the pass that it is read for: epoch and seed, or -1 without augmentation.
class Passes : public Dataset {
 public:
  Passes() { columns_.push_back({.name = "x", .sample = {DType::kInt32, {2}}, .classes = {}}); }
  int64_t size() const override { return 6; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat("passes: sample ", i); }
  absl::Status Read(int64_t, int, const ReadPass& pass, std::span<std::byte> out) const override {
    const int32_t values[2] = {pass.augment ? static_cast<int32_t>(pass.epoch) : -1, static_cast<int32_t>(pass.seed)};
    std::memcpy(out.data(), values, sizeof(values));
    return absl::OkStatus();
  }

 private:
  std::vector<Column> columns_;
};

TEST(Loader, SamplesLearnTheirPassThroughEveryView) {
  std::shared_ptr<const Dataset> data = SliceDataset(std::make_shared<Passes>(), 1, 6);
  data = WithConstants(SubsetDataset(data, {0, 2, 3, 4}), {{"one", HostTensor::Scalar(DType::kInt64, 1)}});
  for (const bool augment : {false, true}) {
    const auto delivered =
        Drain(data, {.batch_size = 4, .seed = 9, .augment = augment, .first_epoch = 3, .first_sample = 2, .epochs = 2});
    ASSERT_TRUE(delivered.ok()) << delivered.status();
    const double first = augment ? 3 : -1, second = augment ? 4 : -1;
    EXPECT_EQ(delivered->values, (std::vector<double>{first, 9, first, 9, second, 9, second, 9, second, 9, second, 9}));
  }
}

}  // namespace
}  // namespace onnxtrain
