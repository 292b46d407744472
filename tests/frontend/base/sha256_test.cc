// Tests the examples of FIPS 180-2 and, for lengths around a block, known sums of zeros.
#include "frontend/base/sha256.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

namespace onnxtrain {
namespace {

std::string Sum(std::string_view text) { return Sha256Hex(std::as_bytes(std::span(text))); }

TEST(Sha256, AgreesWithTheStandard) {
  EXPECT_EQ(Sum(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sum("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sum("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sum(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthOfTheLastBlock) {
  // printf of n zeros | sha256sum
  EXPECT_EQ(Sum(std::string(55, 0)), "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  EXPECT_EQ(Sum(std::string(56, 0)), "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  EXPECT_EQ(Sum(std::string(63, 0)), "c7723fa1e0127975e49e62e753db53924c1bd84b8ac1ac08df78d09270f3d971");
  EXPECT_EQ(Sum(std::string(64, 0)), "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
  EXPECT_EQ(Sum(std::string(65, 0)), "98ce42deef51d40269d542f5314bef2c7468d401ad5d85168bfab4c0108f75f7");
  EXPECT_EQ(Sum(std::string(119, 0)), "f616b0d54e78571a9611f343c9f8e022e859e920381ab0e4d3da01e193a7bd7e");
  EXPECT_EQ(Sum(std::string(120, 0)), "6edd9f6f9cc92cded36e6c4a580933f9c9f1b90562b46903b806f21902a1a54f");
  EXPECT_EQ(Sum(std::string(128, 0)), "38723a2e5e8a17aa7950dc008209944e898f69a7bd10a23c839d341e935fd5ca");
}

}  // namespace
}  // namespace onnxtrain
