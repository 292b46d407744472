#include "optim/record/telemetry/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "frontend/base/strings.h"
#include "tests/tools/event_records.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    hex += digits;
  }
  return hex;
}

// Event(wall_time=1.5, step=300, summary=[("train/loss", 0.25)]), encoded by hand, with checksums by their definition.
TEST(EventRecord, HasTheBytesThatTensorBoardReads) {
  const std::string record = Hex(EventRecord(1.5, 300, {{"train/loss", 0.25}, {"train/nan", NAN}}));
  EXPECT_EQ(record,
            "2100000000000000"    // length
            "017becf6"            // its masked CRC-32C
            "09000000000000f83f"  // wall_time
            "10ac02"              // step
            "2a13"                // summary
            "0a11"                // value
            "0a0a747261696e2f6c6f7373"
            "150000803e"
            "6557981f");  // masked CRC-32C of the data
}

class EventFileTest : public Scratch {};

TEST_F(EventFileTest, TensorBoardsChecksumsHold) {
  auto file = EventFile::Create(Path("t"), 7);
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Write(8, {{"eval/loss", 2}});
  ASSERT_TRUE((*file)->status().ok());
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(Path("t"))) path = entry.path();
  EXPECT_NE(path.find("events.out.tfevents."), std::string::npos);
  const std::string text = ReadAll(path);
  // The first record of every file: only the wall time differs.
  EXPECT_EQ(Hex(text.substr(0, 12)), "1a00000000000000" + Hex(text.substr(8, 4)));
  EXPECT_NE(text.find("brain.Event:2"), std::string::npos);
  size_t at = 0;
  int records = 0;
  for (; at < text.size(); ++records) {
    uint64_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof(length));
    at += 12 + length + 4;
  }
  EXPECT_EQ(at, text.size());
  EXPECT_EQ(records, 3);
}

HostTensor Floats(const std::vector<float>& values) {
  HostTensor tensor({DType::kFloat32, {std::ssize(values)}});
  for (size_t i = 0; i < values.size(); ++i) tensor.Set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

TEST(Histogram, EveryNumberIsInItsBucket) {
  constexpr float kLeast = std::numeric_limits<float>::denorm_min(), kMost = std::numeric_limits<float>::max();
  std::vector<float> values = {0, -0.0f, 1, 1, 1.06f, -1, -1e-20f, 3e7f, kLeast, -kLeast, kMost, -kMost};
  for (int i = 0; i < 500; ++i) values.push_back(std::sin(static_cast<float>(i)) * std::exp(0.1f * (i % 100)));
  Histogram histogram;
  histogram.Add(Floats(values));
  histogram.Add(Floats({NAN, INFINITY, -INFINITY}));
  EXPECT_EQ(histogram.count(), std::ssize(values));
  const DecodedHistogram h = DecodeHistogram(histogram.Proto());
  EXPECT_EQ(h.min, -kMost);
  EXPECT_EQ(h.max, kMost);
  EXPECT_EQ(h.count, values.size());
  ASSERT_EQ(h.limits.size(), h.counts.size());
  double below = 0;
  for (size_t b = 0; b < h.limits.size(); ++b) {
    EXPECT_TRUE(b == 0 || h.limits[b - 1] < h.limits[b]) << b;
    below += h.counts[b];
    const auto on_edge = std::ranges::count(values, static_cast<float>(h.limits[b]));
    const auto expected = std::ranges::count_if(values, [&](float v) { return v < h.limits[b]; });
    EXPECT_GE(below, expected) << h.limits[b];
    EXPECT_LE(below, expected + on_edge) << h.limits[b];
  }
  EXPECT_EQ(below, values.size());
}

TEST(Histogram, SumsAreExact) {
  Histogram histogram;
  histogram.Add(Floats({1, -2, 3}));
  const DecodedHistogram h = DecodeHistogram(histogram.Proto());
  EXPECT_EQ(h.sum, 2);
  EXPECT_EQ(h.sum_squares, 14);
}

TEST_F(EventFileTest, TheGraphIsThatOfTheModel) {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "blocks.0.w"}, {"h"}}, {"Relu", {"h"}, {"r"}}, {"Add", {"r", "h"}, {"y"}}};
  m.weights = {{"blocks.0.w", {4, 3}, tiny::Uniform(12, 0.5f, 1)}};
  m.Save(Path("m.onnx"));
  const auto model = OnnxModel::Load(Path("m.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  std::map<std::string, std::pair<std::string, std::vector<std::string>>> nodes;  // name → operator, inputs
  const ProtoFields graph = Decode(GraphDef(**model));
  for (auto [at, end] = graph.equal_range(1); at != end; ++at) {
    const ProtoFields node = Decode(at->second.bytes);
    auto& [op, inputs] = nodes[Only(node, 1).bytes];
    op = Only(node, 2).bytes;
    for (auto [input, last] = node.equal_range(3); input != last; ++input) inputs.push_back(input->second.bytes);
  }
  ASSERT_TRUE(nodes.contains("output/y"));
  const std::string add = nodes["output/y"].second.at(0);
  EXPECT_EQ(nodes[add].first, "Add");
  const std::string relu = nodes[add].second.at(0), product = nodes[add].second.at(1);
  EXPECT_EQ(nodes[relu].second, std::vector{product});
  EXPECT_EQ(nodes[product].second, (std::vector<std::string>{"input/x", "blocks/0/w"}));
  EXPECT_EQ(nodes["blocks/0/w"].first, "Parameter");
  EXPECT_EQ(nodes.size(), 6);
}

}  // namespace
}  // namespace onnxtrain
