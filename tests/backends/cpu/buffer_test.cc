// Buffers over memory of others: what they accept, and that they are read-only.
#include <array>
#include <memory>

#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

TEST(BorrowedBuffer, ReadsATensorInPlaceAndKeepsItAlive) {
  HostTensor tensor = HostTensor::FromDoubles({DType::kFloat32, {3}}, std::vector<double>{1, 2, 3});
  const std::byte* const bytes = tensor.bytes().data();
  const std::unique_ptr<Buffer> buffer = Cpu().Borrow(tensor);
  ASSERT_NE(buffer, nullptr);
  tensor = HostTensor();
  EXPECT_EQ(buffer->data(), bytes);
  EXPECT_EQ(buffer->size(), 12u);
  float third = 0;
  EXPECT_TRUE(buffer->Read(8, std::as_writable_bytes(std::span(&third, 1))).ok());
  EXPECT_EQ(third, 3);
  EXPECT_EQ(buffer->Read(9, std::as_writable_bytes(std::span(&third, 1))).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer->Write(0, std::as_bytes(std::span(&third, 1))).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BorrowedBuffer, NeedsBytesThatAreAligned) {
  const auto memory = std::make_shared<std::array<float, 4>>();
  const auto at = [&](size_t offset, Type type) {
    return HostTensor(std::move(type), memory, reinterpret_cast<const std::byte*>(memory->data()) + offset);
  };
  EXPECT_NE(Cpu().Borrow(at(4, {DType::kFloat32, {2}})), nullptr);
  EXPECT_EQ(Cpu().Borrow(at(2, {DType::kFloat32, {2}})), nullptr);
  EXPECT_NE(Cpu().Borrow(at(2, {DType::kFloat16, {2}})), nullptr);
  EXPECT_EQ(Cpu().Borrow(at(0, {DType::kFloat32, {0}})), nullptr);
}

}  // namespace
}  // namespace onnxtrain
