#include "frontend/data/bind/sound_lengths.h"

#include "gmock/gmock.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Ints = std::vector<int64_t>;

// Two sounds, of 3 and 5 frames.
class Sounds : public Dataset {
 public:
  explicit Sounds(bool variable)
      : columns_{{.name = "audio", .sample = {DType::kFloat32, {5}}, .sample_rate = 8000, .variable = variable}} {}
  int64_t size() const override { return 2; }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t, int, const ReadPass&, std::span<std::byte>) const override { return absl::OkStatus(); }
  int64_t Length(int64_t i) const override { return columns_[0].variable ? 3 + 2 * i : 0; }
  std::string Describe(int64_t) const override { return "sound"; }

 private:
  std::vector<Column> columns_;
};

ModelInput Input(const std::string& name, Shape dims) {
  ModelInput input;
  input.name = name;
  input.dtype = DType::kInt64;
  input.has_shape = true;
  input.dims = std::move(dims);
  return input;
}

Ints Read(const Dataset& data, int64_t i, int c, size_t count) {
  Ints values(count, -1);
  EXPECT_TRUE(data.Read(i, c, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

TEST(SoundLengths, FeedLengthsAndMasks) {
  const std::vector<ModelInput> inputs = {Input("signal", {-1, -1}), Input("length", {-1}),
                                          Input("attention_mask", {-1, -1}), Input("key_padding_mask", {-1, -1}),
                                          Input("speed", {-1})};
  std::vector<std::string> notes;
  const auto data = WithSoundLengths(std::make_shared<Sounds>(true), 0, inputs, {}, &notes);
  ASSERT_THAT(data->columns(), SizeIs(4));
  EXPECT_THAT(notes, SizeIs(3));
  EXPECT_THAT(Read(*data, 0, 1, 1), ElementsAre(3));
  EXPECT_THAT(Read(*data, 0, 2, 4), ElementsAre(1, 1, 1, 0)) << "padded to 4 frames in a batch";
  EXPECT_THAT(Read(*data, 1, 3, 6), ElementsAre(0, 0, 0, 0, 0, 1));
}

TEST(SoundLengths, OfSoundsOfOneLength) {
  std::vector<std::string> notes;
  const auto data = WithSoundLengths(std::make_shared<Sounds>(false), 0, {Input("x_len", {-1})}, {}, &notes);
  EXPECT_THAT(Read(*data, 0, 1, 1), ElementsAre(5));
}

TEST(SoundLengths, LeaveInputsThatAreFed) {
  std::vector<std::string> notes;
  const auto data = WithSoundLengths(std::make_shared<Sounds>(true), 0, {Input("length", {-1})}, {"length"}, &notes);
  EXPECT_THAT(data->columns(), SizeIs(1));
  EXPECT_THAT(notes, SizeIs(0));
}

}  // namespace
}  // namespace onnxtrain
