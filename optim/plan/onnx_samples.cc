// Registers folders of ONNX test data as a source: test_data_set_0, test_data_set_1, … with input_0.pb, output_0.pb, …
#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/onnx/read/tensor_proto.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSet = "test_data_set_";

// Returns the number between the prefix and the suffix of a name; -1 if there is none.
int64_t NumberIn(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) return -1;
  const auto number = ParseInt(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  return number.ok() ? *number : -1;
}

// Lists the names in a folder that have such a number, in its order.
std::vector<std::string> NumberedNames(const std::string& folder, std::string_view prefix, std::string_view suffix) {
  const auto all = ListFolder(folder);
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : all.ok() ? *all : std::vector<std::string>()) {
    if (const int64_t number = NumberIn(name, prefix, suffix); number >= 0) found.emplace_back(number, name);
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& [number, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> ListSets(const std::string& path) {
  if (!NumberedNames(path, "input_", ".pb").empty()) return {path};
  std::vector<std::string> sets;
  for (const std::string& name : NumberedNames(path, kSet, "")) sets.push_back((fs::path(path) / name).string());
  return sets;
}

struct Part {
  std::string name, path;
  HostTensor tensor;
};

// Loads the inputs, then the outputs of one set. Tensors without a name get the names of their files.
absl::StatusOr<std::vector<Part>> LoadSet(const std::string& folder, int64_t max_bytes, int64_t* bytes) {
  std::vector<Part> parts;
  for (const char* prefix : {"input_", "output_"}) {
    for (const std::string& file : NumberedNames(folder, prefix, ".pb")) {
      const std::string path = (fs::path(folder) / file).string();
      ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
      RETURN_IF_ERROR(Annotate(CheckMemory(*bytes += size, max_bytes), StrCat(path, ": ")));
      ASSIGN_OR_RETURN(const StoredValue value, LoadValueFile(path, {}));
      const HostTensor& tensor = value.elements.front();
      if (tensor.type().rank() == 0) return Invalid(path, ": a single value, not an array of samples");
      parts.push_back({value.name.empty() ? fs::path(file).stem().string() : value.name, path, tensor});
    }
  }
  if (parts.empty()) return Invalid(folder, ": there is no input_0.pb");
  return parts;
}

// Returns the shape of one sample.
Shape SampleShape(const HostTensor& tensor) { return Shape(tensor.shape().begin() + 1, tensor.shape().end()); }

// Joins the arrays of all sets along their first axis.
absl::StatusOr<HostTensor> Join(const std::vector<std::vector<Part>>& sets, size_t column) {
  const Part& first = sets[0][column];
  Shape shape = first.tensor.shape();
  shape[0] = 0;
  for (const std::vector<Part>& set : sets) {
    const Part& part = set[column];
    if (part.tensor.dtype() != first.tensor.dtype() || SampleShape(part.tensor) != SampleShape(first.tensor))
      return Invalid(part.path, ": ", ToString(part.tensor.type()), " has other samples than ",
                     ToString(first.tensor.type()), " in ", first.path);
    shape[0] += part.tensor.shape()[0];
  }
  HostTensor joined({first.tensor.dtype(), shape});
  auto out = joined.mutable_bytes().begin();
  for (const std::vector<Part>& set : sets) out = std::ranges::copy(set[column].tensor.bytes(), out).out;
  return joined;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenSets(const std::string& path, const DatasetOptions& options) {
  std::vector<std::vector<Part>> sets;
  int64_t bytes = 0;
  for (const std::string& folder : ListSets(path)) {
    ASSIGN_OR_RETURN(sets.emplace_back(), LoadSet(folder, options.max_bytes, &bytes));
    if (sets.back().size() != sets[0].size())
      return Invalid(folder, ": has ", sets.back().size(), " arrays, the first set has ", sets[0].size());
  }
  if (sets.empty()) return Invalid(path, ": the folder holds no ", kSet, "0");
  std::vector<NamedTensor> columns;
  for (size_t c = 0; c < sets[0].size(); ++c) {
    ASSIGN_OR_RETURN(HostTensor tensor, Join(sets, c));
    columns.push_back({sets[0][c].name, std::move(tensor)});
  }
  auto dataset = MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

// Registers the source when the library is loaded.
[[maybe_unused]] const bool kRegistered =
    RegisterSource({.name = "onnx_test_data",
                    .what = "a folder of test_data_set_0, …",
                    .recognizes = [](const std::string& p) { return !ListSets(p).empty(); },
                    .open = OpenSets})
        .ok();

}  // namespace
}  // namespace onnxtrain
