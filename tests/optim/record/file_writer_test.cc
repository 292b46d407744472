// Files hold what was appended, whatever the sizes of the parts, and their checksum.
#include "optim/record/checkpoint/file_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(Crc64, IsThatOfXz) {
  EXPECT_EQ(Crc64Text(ExtendCrc64(0, Bytes("123456789"))), "995dc9bbdf1939fa");  // the check value of CRC-64/XZ
  EXPECT_EQ(ExtendCrc64(ExtendCrc64(0, Bytes("1234")), Bytes("56789")), ExtendCrc64(0, Bytes("123456789")));
  EXPECT_EQ(Crc64Text(ExtendCrc64(0, {})), "0000000000000000");
}

class FileWriterTest : public Scratch {
 protected:
  FileWriterTest() : random_(1) {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(random_());
  }
  // Writes the first `size` bytes of content_ in parts of at most `part`.
  void Write(const std::string& name, size_t size, size_t part) {
    const int folder = open(Path("").c_str(), O_RDONLY | O_DIRECTORY);
    auto file = FileWriter::Create(folder, name);
    close(folder);
    ASSERT_TRUE(file.ok()) << file.status();
    for (size_t begin = 0; begin < size;) {
      const size_t length = std::min(size - begin, 1 + random_() % part);
      ASSERT_TRUE(file->Append(std::string_view(content_).substr(begin, length)).ok());
      begin += length;
    }
    ASSERT_TRUE(file->Finish().ok());
    EXPECT_EQ(file->size(), static_cast<int64_t>(size));
    EXPECT_EQ(file->crc(), ExtendCrc64(0, Bytes(content_).first(size)));
  }

  std::mt19937 random_;
  std::string content_ = std::string((size_t{9} << 20) + 5, '\0');
};

TEST_F(FileWriterTest, HoldsWhatWasAppended) {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const size_t size : {size_t{0}, size_t{1}, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 8 * kMiB, content_.size()}) {
    for (const size_t part : {kMiB / 7, 6 * kMiB}) {
      const std::string name = StrCat(size, "-", part);
      Write(name, size, part);
      EXPECT_TRUE(ReadAll(Path(name)) == content_.substr(0, size)) << name;
    }
  }
}

TEST_F(FileWriterTest, ReplacesNoFile) {
  Write("a", 3, 2);
  const int folder = open(Path("").c_str(), O_RDONLY | O_DIRECTORY);
  const auto again = FileWriter::Create(folder, "a");
  close(folder);
  EXPECT_NE(again.status().message().find("a cannot be created"), std::string::npos);
}

}  // namespace
}  // namespace onnxtrain
