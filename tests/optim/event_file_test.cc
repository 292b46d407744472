#include "optim/telemetry/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"

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

}  // namespace
}  // namespace onnxtrain
