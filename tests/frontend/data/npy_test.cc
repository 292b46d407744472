#include "frontend/data/sources/numpy.h"

#include <algorithm>
#include <cstring>

#include "frontend/data/sources/file.h"
#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

std::string File(std::string_view dict, std::string_view elements, int version = 1) {
  std::string out = StrCat("\x93NUMPY", std::string_view(version == 1 ? "\1\0" : version == 2 ? "\2\0" : "\3\0", 2));
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte) out += static_cast<char>(dict.size() >> (8 * byte) & 0xFF);
  return StrCat(out, dict, elements);
}

absl::StatusOr<HostTensor> Parse(const std::string& file, int64_t max_bytes = 0) {
  size_t at = 0;
  const ReadFn read = [&](std::span<std::byte> out) -> absl::StatusOr<size_t> {
    const size_t n = std::min(out.size(), file.size() - at);
    std::memcpy(out.data(), file.data() + at, n);
    at += n;
    return n;
  };
  return ReadNpy(read, static_cast<int64_t>(file.size()), max_bytes);
}

std::string Dict(std::string_view descr, std::string_view shape, bool fortran = false) {
  return StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False", ", 'shape': ", shape,
                ", }   \n");
}

TEST(Npy, HeadersThatAreRead) {
  const struct {
    const char* dict;
    const char* type;
    bool fortran, big;
  } kCases[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "f32[2,3]", false, false},
      {"{'shape':(2,3),'fortran_order':True,'descr':'>f8'}", "f64[2,3]", true, true},
      {" { \"descr\" : \"|u1\" , \"fortran_order\":False,\"shape\":( 7 , ) } \n", "u8[7]", false, false},
      {"{'descr': '|b1', 'fortran_order': False, 'shape': ()}", "bool[]", false, false},
      {"{'descr': '<i8', 'fortran_order': False, 'shape': (5L,)}", "i64[5]", false, false},
      {"{'descr': '<f2', 'fortran_order': False, 'shape': (0, 4)}", "f16[0,4]", false, false},
      {"{'descr': '=u2', 'fortran_order': False, 'shape': (1,)}", "u16[1]", false, false},
  };
  for (const auto& c : kCases) {
    const auto header = ParseNpyDict(c.dict);
    ASSERT_TRUE(header.ok()) << c.dict << header.status();
    EXPECT_EQ(ToString(header->type), c.type);
    EXPECT_EQ(header->fortran, c.fortran) << c.dict;
    EXPECT_EQ(header->big_endian, c.big) << c.dict;
  }
}

TEST(Npy, HeadersThatAreRefused) {
  const struct {
    const char* dict;
    const char* message;
  } kCases[] = {
      {"", "the header is not a dictionary"},
      {"{", "bad header at ''"},
      {"{'descr': '<f4'}", "the header lacks descr, fortran_order or shape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "bad header at ''"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "text after the header's dictionary"},
      {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", "the header has 'descr' twice"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "fortran_order is neither True nor False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "the shape is not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2", "the shape is not closed"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (x)}", "the shape holds something that is not a number"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
       "the shape holds something that is not a number"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
       "Python objects (pickles) are not read: store numbers, or texts as a.astype(str)"},
      {"{'descr': '<U10', 'fortran_order': True, 'shape': (2,2)}", "texts in column-major order are not read"},
      {"{'descr': '<U', 'fortran_order': False, 'shape': (2,)}", "element type '<U' is not a number"},
      {"{'descr': '<U99999999999', 'fortran_order': False, 'shape': (2,)}", "is not a number"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", "element type '<c8' is not a number"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "records cannot be fed"},
      {"{'other': 1}", "bad header at"},
      {"{'descr': __import__('os').system('true')}", "records cannot be fed"},
  };
  for (const auto& c : kCases) {
    const auto header = ParseNpyDict(c.dict);
    ASSERT_FALSE(header.ok()) << c.dict;
    EXPECT_NE(Message(header.status()).find(c.message), std::string::npos) << c.dict << "\n" << header.status();
  }
  EXPECT_FALSE(ParseNpyDict("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}").ok());
  EXPECT_FALSE(
      ParseNpyDict("{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648,2147483648,2147483648)}").ok());
}

TEST(Npy, ReadsEveryVersionTypeOrderAndByteOrder) {
  const struct {
    const char* descr;
    DType dtype;
  } kTypes[] = {{"f2", DType::kFloat16}, {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"i1", DType::kInt8},
                {"i2", DType::kInt16},   {"i4", DType::kInt32},   {"i8", DType::kInt64},   {"u1", DType::kUInt8},
                {"u2", DType::kUInt16},  {"u4", DType::kUInt32},  {"u8", DType::kUInt64}};
  const std::vector<double> c_order = {1, 2, 3, 4, 5, 6}, f_order = {1, 4, 2, 5, 3, 6};
  for (const auto& t : kTypes) {
    for (int version : {1, 2, 3}) {
      for (bool fortran : {false, true}) {
        for (bool big : {false, true}) {
          HostTensor stored = HostTensor::FromDoubles({t.dtype, {6}}, fortran ? f_order : c_order);
          if (big) SwapBytes(stored.mutable_bytes(), DTypeSize(t.dtype));
          const std::string_view elements(reinterpret_cast<const char*>(stored.bytes().data()), stored.bytes().size());
          const auto read = Parse(File(Dict(StrCat(big ? ">" : "<", t.descr), "(2, 3)", fortran), elements, version));
          ASSERT_TRUE(read.ok()) << read.status();
          EXPECT_EQ(read->type(), (Type{t.dtype, {2, 3}}));
          EXPECT_EQ(read->ToDoubles(), c_order) << t.descr << version << fortran << big;
        }
      }
    }
  }
}

TEST(Npy, FortranOrderOfHigherRank) {
  std::string elements;  // value = 100·a + 10·b + c, first axis innermost
  for (int c = 0; c < 4; ++c) {
    for (int b = 0; b < 3; ++b) {
      for (int a = 0; a < 2; ++a) elements += static_cast<char>(100 * a + 10 * b + c);
    }
  }
  const auto read = Parse(File(Dict("|u1", "(2, 3, 4)", true), elements));
  ASSERT_TRUE(read.ok()) << read.status();
  for (int i = 0; i < 24; ++i) EXPECT_EQ(read->At(i), 100 * (i / 12) + 10 * (i / 4 % 3) + i % 4);
}

TEST(Npy, BoolsBecomeZeroOrOne) {
  const auto read = Parse(File(Dict("|b1", "(3,)"), std::string_view("\0\1\7", 3)));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->data<uint8_t>()[2], 1);
}

TEST(Npy, BrokenFiles) {
  const std::string good = File(Dict("<f4", "(2,)"), "12345678");
  ASSERT_TRUE(Parse(good).ok());
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(Parse(good.substr(0, cut)).ok()) << cut;
  EXPECT_NE(Message(Parse(good.substr(0, good.size() - 1)).status()).find("the header declares f32[2] = "),
            std::string::npos);
  EXPECT_FALSE(Parse(good + "x").ok());
  EXPECT_EQ(Message(Parse("PNG....................").status()), "not a .npy array (bad magic)");
  EXPECT_EQ(Message(Parse(StrCat("\x93NUMPY", std::string_view("\4\0\0\0\0\0", 6))).status()),
            ".npy format version 4 is unknown");
  EXPECT_EQ(Message(Parse(StrCat("\x93NUMPY", std::string_view("\2\0\xFF\xFF\xFF\x7F", 6))).status()),
            "a header of 2147483647 bytes is refused");
}

TEST(Npy, SizesAreRefusedBeforeMemoryIsTaken) {
  const auto bomb = Parse(File(Dict("<f8", "(1099511627776,)"), "x"));
  EXPECT_NE(Message(bomb.status()).find("the header declares f64[1099511627776]"), std::string::npos) << bomb.status();
  const auto large = Parse(File(Dict("|u1", "(3000000,)"), std::string(3000000, 'x')), 1 << 20);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Message(large.status()).find("needs 3 MiB of memory, the limit is 1 MiB"), std::string::npos)
      << large.status();
}

// Texts of no characters take no bytes of the file, but memory all the same.
TEST(Npy, EmptyTextsAreRefusedBeforeMemoryIsTaken) {
  const TempDir dir;
  for (const char* descr : {"<U0", "|S0"}) {
    const auto data = OpenDataset(dir.Write("x.npy", File(Dict(descr, "(1000000000000,)"), "")), {});
    EXPECT_THAT(Message(data.status()), testing::HasSubstr("x.npy: ")) << descr;
    EXPECT_TRUE(absl::IsResourceExhausted(data.status())) << data.status();
  }
}

TEST(Npy, AsADataset) {
  TempDir dir;
  const auto data = OpenDataset(dir.Write("pixels.npy", File(Dict("|u1", "(2, 2, 3)"), "abcdefghijkl")), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 2);
  ASSERT_EQ((*data)->columns().size(), 1u);
  EXPECT_EQ((*data)->columns()[0].name, "pixels");
  EXPECT_EQ(ToString((*data)->columns()[0].sample), "u8[2,3]");
  EXPECT_TRUE((*data)->columns()[0].image);
  EXPECT_EQ(ColumnValues(**data, 0)[6], 'g');
  EXPECT_EQ((*data)->Describe(1), dir / "pixels.npy" + ": sample 1");

  const auto scalar = OpenDataset(dir.Write("scalar.npy", File(Dict("|u1", "()"), "a")), {});
  EXPECT_EQ(Message(scalar.status()), dir / "scalar.npy" + ": 'scalar' is a single value, not an array of samples");
  const auto none = OpenDataset(dir.Write("none.npy", File(Dict("|u1", "(0, 3)"), "")), {});
  EXPECT_EQ(Message(none.status()), dir / "none.npy" + ": 'none' u8[0,3] holds no samples");
}

// Arrays above 64 MiB stay on disk. A file that is truncated during use is an error, not a signal.
TEST(Npy, LargeArraysAreReadFromDisk) {
  TempDir dir;
  constexpr int64_t kRows = 70 << 10, kWidth = 512;
  std::string elements(2 * kRows * kWidth, '\0');
  for (int64_t i = 0; i < kRows; ++i)
    elements[2 * i * kWidth + 1] = static_cast<char>(i % 100);  // big-endian: low byte last
  const std::string path = dir.Write("big.npy", File(Dict(">i2", StrCat("(", kRows, ", ", kWidth, ")")), elements));
  const auto data = OpenDataset(path, {.max_bytes = 1});
  ASSERT_TRUE(data.ok()) << data.status();
  HostTensor row((*data)->columns()[0].sample);
  ASSERT_TRUE((*data)->Read(kRows - 1, 0, row.mutable_bytes()).ok());
  EXPECT_EQ(row.At(0), (kRows - 1) % 100);
  EXPECT_EQ(row.At(1), 0);
  std::filesystem::resize_file(path, 1 << 20);
  EXPECT_TRUE((*data)->Read(0, 0, row.mutable_bytes()).ok());
  EXPECT_EQ(Message((*data)->Read(kRows - 1, 0, row.mutable_bytes())),
            StrCat(path, ": sample ", kRows - 1, ": the file has become shorter"));
}

TEST(Npy, PreambleIsAligned) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{2, 3, 4, 5, 6}}) {
    const auto preamble = NpyPreamble({DType::kFloat32, shape});
    ASSERT_TRUE(preamble.ok());
    EXPECT_EQ(preamble->size() % 64, 0u);
    const auto header = ParseNpyDict(std::string_view(*preamble).substr(10));
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->type.shape, shape);
  }
  EXPECT_FALSE(NpyPreamble({DType::kBFloat16, {1}}).ok());
}

}  // namespace
}  // namespace onnxtrain
