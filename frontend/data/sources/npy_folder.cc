#include "frontend/data/sources/npy_folder.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/sources/folder.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/npz_parts.h"

namespace onnxtrain {
namespace {

constexpr size_t kMostArrays = 64;  // more are samples, not columns

std::vector<std::string> ListArrays(const std::string& path) {
  std::vector<std::string> arrays;
  for (const std::string& name : ListFolder(path).value_or(std::vector<std::string>()))
    arrays.push_back(std::filesystem::path(name).stem().string());
  return arrays;
}

class Renamed : public DatasetView {
 public:
  Renamed(std::shared_ptr<const Dataset> source, std::string name)
      : DatasetView(std::move(source)), columns_(source_->columns()) {
    columns_[0].name = std::move(name);
  }
  const std::vector<Column>& columns() const override { return columns_; }

 private:
  std::vector<Column> columns_;
};

}  // namespace

bool IsNpyFolder(const std::string& path) {
  const auto names = ListFolder(path);
  const auto is_npy = [](const std::string& name) { return name.ends_with(".npy"); };
  return names.ok() && !names->empty() && names->size() <= kMostArrays && std::ranges::all_of(*names, is_npy);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpyFolder(const std::string& path, const DatasetOptions& options) {
  const std::vector<std::string> arrays = ListArrays(path);
  const auto part = FindNpzPart(arrays, options.eval_split);
  std::shared_ptr<const Dataset> joined;
  for (const std::string& array : arrays) {
    if (part.has_value() && !part->contains(array)) continue;
    const std::string file = StrCat(path, "/", array, ".npy");
    ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> column, OpenNpy(file, options));
    if (part.has_value()) column = std::make_shared<Renamed>(std::move(column), part->at(array));
    if (joined != nullptr && column->size() != joined->size())
      return Invalid(file, ": has ", column->size(), " samples, but ", joined->columns()[0].name, " has ",
                     joined->size());
    joined = joined == nullptr ? std::move(column) : JoinColumns(std::move(joined), std::move(column), -1);
  }
  if (joined == nullptr) return Invalid(path, ": the folder holds no .npy file");
  return joined;
}

bool HasEvalNpyFiles(const std::string& path) { return FindNpzPart(ListArrays(path), true).has_value(); }

}  // namespace onnxtrain
