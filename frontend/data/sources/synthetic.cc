#include "frontend/data/sources/synthetic.h"

#include <algorithm>
#include <array>
#include <span>

#include "frontend/base/log.h"
#include "frontend/base/philox.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

class Synthetic : public Dataset {
 public:
  Synthetic(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed)
      : specs_(std::move(columns)), size_(size), seed_(seed) {
    for (const SyntheticColumn& c : specs_) {
      CHECK(IsFloat(c.sample.dtype) || c.low < c.high) << c.name;
      columns_.push_back({.name = c.name, .sample = c.sample, .classes = {}});
    }
  }

  int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat("synthetic sample ", i); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size_ && out.size() == columns_[c].sample.bytes());
    const DType dtype = columns_[c].sample.dtype;
    const auto n = columns_[c].sample.elements(), size = static_cast<int64_t>(DTypeSize(dtype));
    std::array<double, kDrawn> values;
    std::array<int64_t, kDrawn> ints;
    for (int64_t at = 0; at < n; at += kDrawn) {
      const int64_t count = std::min(kDrawn, n - at);
      for (int64_t k = 0; k < count; k += 4) {
        const PhiloxBlock words = DrawBlock(i, c, (at + k) / 4);
        IsFloat(dtype) ? DrawNormals(words, &values[k]) : DrawIntegers(words, specs_[c], &ints[k]);
      }
      const auto drawn =
          IsFloat(dtype) ? std::as_bytes(std::span(values).first(count)) : std::as_bytes(std::span(ints).first(count));
      RETURN_IF_ERROR(
          ConvertValues(IsFloat(dtype) ? DType::kFloat64 : DType::kInt64, drawn, dtype, out.data() + at * size, 1));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kDrawn = 1024;  // values at a time, in complete blocks

  static uint32_t LowWord(uint64_t v) { return static_cast<uint32_t>(v); }
  static uint32_t HighWord(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

  PhiloxBlock DrawBlock(int64_t sample, int column, int64_t block) const {
    return Philox4x32({LowWord(block), HighWord(block), LowWord(sample), HighWord(sample)},
                      {LowWord(seed_) ^ 0x73796E74u, HighWord(seed_) ^ static_cast<uint32_t>(column)});
  }
  static void DrawNormals(const PhiloxBlock& words, double* out) {
    for (int pair = 0; pair < 2; ++pair) {
      const auto normals = BoxMuller(words[2 * pair], words[2 * pair + 1]);
      out[2 * pair] = normals[0];
      out[2 * pair + 1] = normals[1];
    }
  }
  static void DrawIntegers(const PhiloxBlock& words, const SyntheticColumn& spec, int64_t* out) {
    const auto range = static_cast<uint64_t>(spec.high - spec.low);
    for (int k = 0; k < 4; ++k) {  // a bias of 2^-32 · range is negligible
      out[k] = spec.low + static_cast<int64_t>(static_cast<unsigned __int128>(words[k]) * range >> 32);
    }
  }

  std::vector<SyntheticColumn> specs_;
  std::vector<Column> columns_;
  int64_t size_;
  uint64_t seed_;
};

}  // namespace

std::shared_ptr<const Dataset> SyntheticDataset(std::vector<SyntheticColumn> columns, int64_t size, uint64_t seed) {
  return std::make_shared<Synthetic>(std::move(columns), size, seed);
}

}  // namespace onnxtrain
