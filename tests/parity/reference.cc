#include "tests/parity/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/paths.h"

namespace onnxtrain::parity {
namespace {

const std::string kFolder = BinaryPath("parity");

struct Sums {
  double difference = 0, size = 0;

  void Add(const HostTensor& a, const HostTensor& b) {
    EXPECT_EQ(ToString(a.shape()), ToString(b.shape()));
    for (int64_t i = 0, n = std::min(a.size(), b.size()); i < n; ++i) {
      difference += (a.At(i) - b.At(i)) * (a.At(i) - b.At(i));
      size += b.At(i) * b.At(i);
    }
  }
  double Relative() const { return std::sqrt(difference / std::max(size, 1e-300)); }
};

HostTensor Rows(const HostTensor& all, int64_t begin, int64_t count) {
  Shape shape = all.shape();
  const size_t row = all.bytes().size() / shape[0];
  shape[0] = count;
  HostTensor part({all.dtype(), shape});
  std::copy_n(all.bytes().begin() + begin * row, count * row, part.mutable_bytes().begin());
  return part;
}

}  // namespace

bool HaveReference() {
  static const int status = [] {
    std::filesystem::create_directories(kFolder);
    const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/parity/reference.py"), " '", kFolder, "'");
    return std::system(command.c_str());
  }();
  EXPECT_EQ(status, 0) << "reference.py failed; it needs Debian's python3-torch and python3-numpy";
  return status == 0;
}

std::string ReferencePath(const std::string& file) { return StrCat(kFolder, "/", file); }

const Arrays& Reference(const std::string& name, const std::string& kind) {
  static std::map<std::string, Arrays> cache;
  const std::string path = ReferencePath(StrCat(name, ".", kind, ".npz"));
  const auto [it, fresh] = cache.try_emplace(path);
  if (fresh) {
    auto arrays = ReadNpz(path);
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    if (arrays.ok()) it->second = Arrays(arrays->begin(), arrays->end());
  }
  return it->second;
}

Arrays WithPrefix(const Arrays& arrays, const std::string& prefix) {
  Arrays out;
  for (const auto& [name, value] : arrays) {
    if (name.starts_with(prefix)) out[name.substr(prefix.size())] = value;
  }
  return out;
}

GlobalBatch MakeGlobalBatch(const Arrays& data, DType dtype, int64_t begin, int64_t count) {
  const HostTensor x = Rows(data.at("x"), begin, count);
  return {{"input", IsFloat(x.dtype()) ? x.CastTo(dtype) : x}, {kLabelFeed, Rows(data.at("y"), begin, count)}};
}

double RelativeDistance(const HostTensor& a, const HostTensor& b) {
  Sums sums;
  sums.Add(a, b);
  return sums.Relative();
}

double RelativeDistance(const Arrays& a, const Arrays& b) {
  Sums sums;
  for (const auto& [name, value] : b) {
    const auto it = a.find(name);
    EXPECT_NE(it, a.end()) << name;
    if (it != a.end()) sums.Add(it->second, value);
  }
  return sums.Relative();
}

double LargestDifference(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(ToString(a.shape()), ToString(b.shape()));
  double largest = 0;
  for (int64_t i = 0, n = std::min(a.size(), b.size()); i < n; ++i) {
    const double d = std::abs(a.At(i) - b.At(i)) / std::max(1.0, std::abs(b.At(i)));
    largest = std::isnan(d) ? INFINITY : std::max(largest, d);
  }
  return largest;
}

double LargestValue(const HostTensor& a) { return LargestDifference(a, HostTensor({a.dtype(), a.shape()})); }

}  // namespace onnxtrain::parity
