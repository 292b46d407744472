#include "frontend/base/status.h"
#include "frontend/data/formats/file_arrays.h"
#include "frontend/data/formats/npy.h"
#include "frontend/data/formats/npz.h"
#include "frontend/data/formats/zip_directory.h"
#include "frontend/data/memory_dataset.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

constexpr std::string_view kSuffix = ".npy";

std::string ArrayName(const ZipMember& member) { return member.name.substr(0, member.name.size() - kSuffix.size()); }

Opened OpenInMemory(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadNpz(path, options.max_bytes));
  std::vector<NamedTensor> columns;
  for (auto& [name, tensor] : arrays) columns.push_back({std::move(name), std::move(tensor)});
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
  if (header.fortran) return array;
  array.type = header.type;
  array.offset = member.offset + header.offset;
  array.big_endian = header.big_endian;
  return array;
}

Opened OpenInFile(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  ASSIGN_OR_RETURN(const std::vector<ZipMember> members, ListZipMembers(*file));
  std::vector<FileArray> arrays;
  std::set<std::string> in_file;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kSuffix)) return Invalid("'", member.name, "' is no .npy array");
    auto array = FindInFile(*file, member);
    if (!array.ok()) return Annotate(array.status(), StrCat("array '", ArrayName(member), "': "));
    if (array->offset > 0) in_file.insert(array->name);
    arrays.push_back(*std::move(array));
  }
  ASSIGN_OR_RETURN(NamedArrays others, ReadNpzWithout(in_file, path, options.max_bytes));
  for (auto& [name, tensor] : others) {
    const auto array = std::ranges::find(arrays, name, &FileArray::name);
    if (array == arrays.end()) return Invalid("array '", name, "' is not in the zip directory");
    array->type = tensor.type();
    array->held = std::move(tensor);
  }
  return MakeFileDataset(path, file, std::move(arrays));
}

}  // namespace

Opened OpenNpz(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  if (size <= kHeldInMemory) return OpenInMemory(path, options);
  auto dataset = OpenInFile(path, options);
  if (!dataset.ok() && !std::string_view(ToStd(dataset.status().message())).starts_with(path))
    return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
