#include "frontend/data/sources/safetensors.h"

#include <cstring>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

// A file of this header and these bytes.
std::string File(const std::string& header, const std::string& bytes) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + bytes;
}

constexpr char kTwo[] =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  TempDir dir;
  std::string bytes = {1, 2, 3, 4};
  const float floats[] = {0.5f, -2};
  bytes.append(reinterpret_cast<const char*>(floats), sizeof(floats));
  const auto read = ReadSafetensors(dir.Write("m.safetensors", File(kTwo, bytes)));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].first, "a");
  EXPECT_EQ((*read)[0].second.ToInts(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ((*read)[1].first, "b");
  EXPECT_EQ((*read)[1].second.ToDoubles(), (std::vector<double>{0.5, -2}));
}

TEST(Safetensors, ReadsWhatItsHeaderDescribes) {
  TempDir dir;
  const std::vector<NamedType> types = {
      {"w", {DType::kBFloat16, {3, 2}}}, {"naïve \"name\"\n", {DType::kInt64, {}}}, {"empty", {DType::kBool, {0, 5}}}};
  const auto header = SafetensorsHeader(types, {{"format", "pt"}});
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->size() % 8, 0u);
  const auto read = ReadSafetensors(dir.Write("m.safetensors", *header + std::string(12 + 8, '\x3f')));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), types.size());
  for (const NamedType& type : types) {
    const auto found = std::ranges::find(*read, type.name, [](const auto& array) { return array.first; });
    ASSERT_NE(found, read->end()) << type.name;
    EXPECT_TRUE(found->second.type() == type.type) << type.name;
  }
}

TEST(Safetensors, RefusesNamesAndTypesThatTheFormatHasNot) {
  const Type type{DType::kFloat32, {1}};
  EXPECT_FALSE(SafetensorsHeader({{"a", type}, {"a", type}}).ok());
  EXPECT_FALSE(SafetensorsHeader({{"\xff", type}}).ok());
  EXPECT_FALSE(SafetensorsHeader({{"a", {DType::kInt4, {1}}}}).ok());
}

TEST(Safetensors, SaysWhatIsWrongWithAFile) {
  struct Row {
    std::string text, problem;
  };
  const std::string huge = R"({"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})";
  const Row rows[] = {
      {"abc", "unexpected end"},
      {File("{", ""), "no JSON object"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), "longer than the file"},
      {File("[]", ""), "no JSON object"},
      {File(kTwo, "123"), "holds 3 bytes"},
      {File(kTwo, std::string(13, 'x')), "holds 13 bytes"},
      {File(huge, "1234"), "holds 4 bytes"},
      {File(R"({"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,1]}})", "x"), "tensor 'a': has the unknown type"},
      {File(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x"), "extent"},
      {File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x"), "takes 2 bytes"},
      {File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy"), "begins at 1, not 0"},
      {File(R"({"a":{"dtype":"U8","shape":[1]}})", "x"), "data_offsets"},
      {File(R"({"a":7})", ""), "unknown type"},
  };
  TempDir dir;
  for (const Row& row : rows) {
    const auto read = ReadSafetensors(dir.Write("m.safetensors", row.text));
    EXPECT_FALSE(read.ok()) << row.text;
    EXPECT_NE(Message(read.status()).find(row.problem), std::string::npos) << read.status();
    EXPECT_NE(Message(read.status()).find("m.safetensors"), std::string::npos) << read.status();
  }
}

}  // namespace
}  // namespace onnxtrain
