#include "frontend/data/formats/npz_folder.h"

#include <algorithm>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/folder.h"
#include "frontend/data/formats/npz.h"

namespace onnxtrain {
namespace {

class NpzFolder : public Dataset {
 public:
  NpzFolder(std::string folder, std::vector<std::string> names, std::vector<Column> columns)
      : folder_(std::move(folder)), names_(std::move(names)), columns_(std::move(columns)) {}

  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat(folder_, "/", names_[i]); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c >= 0 && c < static_cast<int>(columns_.size()));
    const Column& column = columns_[c];
    const auto is_column = [&](const std::string& name) { return name == column.name; };
    ASSIGN_OR_RETURN(const NamedArrays arrays, ReadNpzWhere(is_column, Describe(i), 0));
    const auto array = std::ranges::find(arrays, column.name, &NamedArrays::value_type::first);
    if (array == arrays.end()) return Invalid(Describe(i), ": there is no array '", column.name, "'");
    if (array->second.type() != column.sample)
      return Invalid(Describe(i), ": '", column.name, "' is ", ToString(array->second.type()), ", but ",
                     ToString(column.sample), " in ", names_.front());
    std::ranges::copy(array->second.bytes(), out.begin());
    return absl::OkStatus();
  }

 private:
  std::string folder_;
  std::vector<std::string> names_;
  std::vector<Column> columns_;
};

}  // namespace

bool IsNpzFolder(const std::string& path) {
  const auto names = ListFolder(path);
  const auto is_npz = [](const std::string& name) { return name.ends_with(".npz"); };
  return names.ok() && !names->empty() && std::ranges::all_of(*names, is_npz);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpzFolder(const std::string& path, const DatasetOptions&) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".npz"); });
  if (names.empty()) return Invalid(path, ": the folder holds no .npz file");
  ASSIGN_OR_RETURN(const NamedArrays first, ReadNpz(StrCat(path, "/", names.front())));
  if (first.empty()) return Invalid(path, "/", names.front(), ": there are no arrays");
  std::vector<Column> columns;
  for (const auto& [name, array] : first) {
    const bool image = array.dtype() == DType::kUInt8 && array.type().rank() >= 2;
    columns.push_back({.name = name, .sample = array.type(), .image = image});
  }
  return std::make_shared<NpzFolder>(path, std::move(names), std::move(columns));
}

}  // namespace onnxtrain
