#include "frontend/base/status.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/memory_dataset.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/npy_texts.h"
#include "frontend/data/sources/npz.h"
#include "frontend/data/sources/npz_parts.h"
#include "frontend/data/sources/zip_directory.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

constexpr std::string_view kSuffix = ".npy";

std::string ArrayName(const ZipMember& member) { return member.name.substr(0, member.name.size() - kSuffix.size()); }

// Without parts where the archive cannot be read, which is for others to tell.
std::optional<NpzPart> FindPart(const std::string& path, bool eval_split) {
  const auto file = RandomFile::Open(path);
  const auto members = file.ok() ? ListZipMembers(**file) : file.status();
  if (!members.ok()) return std::nullopt;
  std::vector<std::string> names;
  for (const ZipMember& member : *members) {
    if (!member.name.ends_with(kSuffix)) return std::nullopt;
    names.push_back(ArrayName(member));
  }
  return FindNpzPart(names, eval_split);
}

// Which arrays are read, and as which columns.
class Selection {
 public:
  Selection(const std::string& path, bool eval_split) : part_(FindPart(path, eval_split)) {}

  bool Has(const std::string& array) const { return !part_ || part_->contains(array); }
  std::string Column(const std::string& array) const { return part_ ? part_->at(array) : array; }

 private:
  std::optional<NpzPart> part_;
};

Opened OpenInMemory(const std::string& path, const Selection& selection, const DatasetOptions& options) {
  const auto is_wanted = [&](const std::string& name) { return selection.Has(name); };
  ASSIGN_OR_RETURN(auto arrays, ReadNpzArrays(is_wanted, path, options.max_bytes));
  std::vector<NamedTensor> columns;
  for (auto& [name, array] : arrays) {
    ASSIGN_OR_RETURN(NamedTensor column, MakeArrayColumn(path, selection.Column(name), std::move(array), options));
    columns.push_back(std::move(column));
  }
  auto dataset = MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

// The array of a stored member, or one without a type where it has to be read as a whole.
absl::StatusOr<FileArray> FindInFile(const RandomFile& file, const ZipMember& member) {
  FileArray array{.name = ArrayName(member)};
  if (!member.stored) return array;
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file.reader(member.offset, member.offset + member.size)));
  const auto bytes = static_cast<int64_t>(header.type.bytes());
  if (header.offset + bytes != member.size)
    return Invalid("the header declares ", ToString(header.type), ", but there are ", member.size, " bytes");
  if (header.fortran || header.text != NpyText::kNone) return array;
  array.type = header.type;
  array.offset = member.offset + header.offset;
  array.big_endian = header.big_endian;
  return array;
}

absl::Status Hold(NamedTensor column, FileArray* array) {
  if (!column.texts.empty())
    return Invalid("array '", array->name, "': text for a tokenizer is read from archives up to ", kHeldInMemory >> 20,
                   " MiB only");
  if (!column.unreadable.empty()) return Invalid(column.unreadable.begin()->second);
  array->type = column.tensor.type();
  array->held = std::move(column.tensor);
  array->classes = std::move(column.classes);
  array->problem = std::move(column.problem);
  return absl::OkStatus();
}

Opened OpenInFile(const std::string& path, const Selection& selection, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  ASSIGN_OR_RETURN(const std::vector<ZipMember> members, ListZipMembers(*file));
  std::vector<FileArray> arrays;
  std::set<std::string> in_file;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kSuffix)) return Invalid("'", member.name, "' is no .npy array");
    if (!selection.Has(ArrayName(member))) continue;
    auto array = FindInFile(*file, member);
    if (!array.ok()) return Annotate(array.status(), StrCat("array '", ArrayName(member), "': "));
    if (array->offset > 0) in_file.insert(array->name);
    arrays.push_back(*std::move(array));
  }
  const auto is_held = [&](const std::string& name) { return selection.Has(name) && !in_file.contains(name); };
  ASSIGN_OR_RETURN(auto others, ReadNpzArrays(is_held, path, options.max_bytes));
  for (auto& [name, other] : others) {
    const auto array = std::ranges::find(arrays, name, &FileArray::name);
    if (array == arrays.end()) return Invalid("array '", name, "' is not in the zip directory");
    ASSIGN_OR_RETURN(NamedTensor column, MakeArrayColumn(path, selection.Column(name), std::move(other), options));
    RETURN_IF_ERROR(Hold(std::move(column), &*array));
  }
  for (FileArray& array : arrays) array.name = selection.Column(array.name);
  return MakeFileDataset(path, file, std::move(arrays));
}

}  // namespace

bool HasEvalArrays(const std::string& path) { return FindPart(path, true).has_value(); }

Opened OpenNpz(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  const Selection selection(path, options.eval_split);
  if (size <= kHeldInMemory) return OpenInMemory(path, selection, options);
  auto dataset = OpenInFile(path, selection, options);
  if (!dataset.ok() && !std::string_view(ToStd(dataset.status().message())).starts_with(path))
    return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
