#include "frontend/data/sources/npz_folder.h"

#include <algorithm>
#include <map>
#include <set>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/sources/folder.h"
#include "frontend/data/sources/npy_texts.h"
#include "frontend/data/sources/npz.h"

namespace onnxtrain {
namespace {

class NpzFolder : public Dataset {
 public:
  // `texts` (may be null) has the columns that are no numbers in the files.
  NpzFolder(std::string folder, std::vector<std::string> names, std::vector<Column> columns,
            std::shared_ptr<const Dataset> texts)
      : folder_(std::move(folder)),
        names_(std::move(names)),
        columns_(std::move(columns)),
        arrays_(static_cast<int>(columns_.size())),
        texts_(std::move(texts)) {
    if (texts_ != nullptr) columns_.insert(columns_.end(), texts_->columns().begin(), texts_->columns().end());
  }

  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat(folder_, "/", names_[i]); }

  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    return c < arrays_ ? Dataset::ReadText(i, c) : texts_->ReadText(i, c - arrays_);
  }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c >= 0 && c < static_cast<int>(columns_.size()));
    if (c >= arrays_) return texts_->Read(i, c - arrays_, pass, out);
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
  int arrays_;  // columns that are read from the files
  std::shared_ptr<const Dataset> texts_;
};

// Reads the texts of all files.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadTexts(const std::string& path, const std::vector<std::string>& files,
                                                         const std::set<std::string>& wanted,
                                                         const DatasetOptions& options) {
  std::map<std::string, std::vector<std::string>> texts;
  const auto is_wanted = [&](const std::string& name) { return wanted.contains(name); };
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string file = StrCat(path, "/", files[i]);
    ASSIGN_OR_RETURN(auto arrays, ReadNpzArrays(is_wanted, file, options.max_bytes));
    for (auto& [name, array] : arrays) {
      if (!array.texts.has_value() || array.texts->size() != 1)
        return Invalid(file, ": '", name, "' is not one text, as in ", files[0]);
      texts[name].push_back(std::move(array.texts->front()));
    }
    for (const std::string& name : wanted) {
      if (texts[name].size() != i + 1) return Invalid(file, ": there is no array '", name, "'");
    }
  }
  std::vector<NamedTensor> columns;
  for (auto& [name, values] : texts) {
    ASSIGN_OR_RETURN(NamedTensor column, MakeArrayColumn(path, name, NpyArray{.texts = std::move(values)}, options));
    columns.push_back(std::move(column));
  }
  return MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

}  // namespace

bool IsNpzFolder(const std::string& path) {
  const auto names = ListFolder(path);
  const auto is_npz = [](const std::string& name) { return name.ends_with(".npz"); };
  return names.ok() && !names->empty() && std::ranges::all_of(*names, is_npz);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpzFolder(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".npz"); });
  if (names.empty()) return Invalid(path, ": the folder holds no .npz file");
  const auto all = [](const std::string&) { return true; };
  ASSIGN_OR_RETURN(const auto first, ReadNpzArrays(all, StrCat(path, "/", names.front()), options.max_bytes));
  if (first.empty()) return Invalid(path, "/", names.front(), ": there are no arrays");
  std::vector<Column> columns;
  std::set<std::string> texts;
  for (const auto& [name, array] : first) {
    if (array.texts.has_value()) {
      texts.insert(name);
    } else {
      const Type& sample = array.tensor.type();
      columns.push_back({.name = name, .sample = sample, .image = HoldsPixels(sample)});
    }
  }
  std::shared_ptr<const Dataset> table;
  if (!texts.empty()) {
    ASSIGN_OR_RETURN(table, ReadTexts(path, names, texts, options));
  }
  return std::make_shared<NpzFolder>(path, std::move(names), std::move(columns), std::move(table));
}

}  // namespace onnxtrain
