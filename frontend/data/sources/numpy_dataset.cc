#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

// A member of a zip archive, whose bytes can be read at their offset if they are stored (PKWARE's APPNOTE 6.3, with
// zip64).
struct ZipMember {
  std::string name;
  bool stored = false;  // neither compressed nor encrypted
  int64_t offset = 0;   // offset of the bytes if stored
  int64_t size = 0;     // uncompressed size
};

static_assert(std::endian::native == std::endian::little, "zip archives are little-endian");

constexpr uint32_t kEnd = 0x06054B50, kEnd64Locator = 0x07064B50, kEnd64 = 0x06064B50, kEntry = 0x02014B50,
                   kLocal = 0x04034B50;

constexpr int64_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46, kLocalSize = 30;
constexpr int64_t kMaxComment = 0xFFFF;

constexpr int64_t kMaxDirectory = int64_t{256}

                                  << 20;

constexpr uint32_t k32 = std::numeric_limits<uint32_t>::max();  // marks that the number is in the zip64 record

std::string_view View(const std::vector<char>& bytes) { return {bytes.data(), bytes.size()}; }

template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

absl::StatusOr<std::vector<char>> ReadBytes(const RandomFile& file, int64_t offset, int64_t size) {
  if (offset < 0 || size < 0 || offset > file.size() || size > file.size() - offset)
    return Invalid("the zip directory points beyond the file");
  std::vector<char> bytes(size);
  RETURN_IF_ERROR(file.ReadAt(offset, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

struct Directory {
  int64_t offset = 0, size = 0;
};

absl::StatusOr<Directory> FindDirectory64(const RandomFile& file, int64_t end) {
  ASSIGN_OR_RETURN(const std::vector<char> locator, ReadBytes(file, end - kLocatorSize, kLocatorSize));
  if (Get<uint32_t>(View(locator), 0) != kEnd64Locator) return Invalid("the zip directory lacks its zip64 record");
  ASSIGN_OR_RETURN(const std::vector<char> record, ReadBytes(file, Get<int64_t>(View(locator), 8), kEnd64Size));
  if (Get<uint32_t>(View(record), 0) != kEnd64) return Invalid("the zip64 record of the directory is corrupt");
  return Directory{Get<int64_t>(View(record), 48), Get<int64_t>(View(record), 40)};
}

absl::StatusOr<Directory> FindDirectory(const RandomFile& file) {
  const int64_t tail = std::min(file.size(), kEndSize + kMaxComment);
  ASSIGN_OR_RETURN(const std::vector<char> bytes, ReadBytes(file, file.size() - tail, tail));
  const std::string_view end = View(bytes);
  for (int64_t at = tail - kEndSize; at >= 0; --at) {
    if (Get<uint32_t>(end, at) != kEnd) continue;
    const auto size = Get<uint32_t>(end, at + 12), offset = Get<uint32_t>(end, at + 16);
    if (size == k32 || offset == k32 || Get<uint16_t>(end, at + 10) == 0xFFFF)
      return FindDirectory64(file, file.size() - tail + at);
    return Directory{offset, size};
  }
  return Invalid("not a zip archive");
}

// Reads the numbers that do not fit into 32 bits, in the order of the format.
void ReadZip64(std::string_view extra, uint64_t* size, uint64_t* packed, uint64_t* local) {
  while (extra.size() >= 4) {
    const auto id = Get<uint16_t>(extra, 0), length = Get<uint16_t>(extra, 2);
    std::string_view field = extra.substr(4, length);
    extra.remove_prefix(std::min<size_t>(extra.size(), size_t{4} + length));
    if (id != 1) continue;
    for (uint64_t* value : {size, packed, local}) {
      if (*value != k32 || field.size() < sizeof(uint64_t)) continue;
      *value = Get<uint64_t>(field, 0);
      field.remove_prefix(sizeof(uint64_t));
    }
  }
}

// Sets the offset of a stored member from its local header.
absl::Status Locate(const RandomFile& file, uint64_t local, ZipMember* member) {
  ASSIGN_OR_RETURN(const std::vector<char> header, ReadBytes(file, static_cast<int64_t>(local), kLocalSize));
  if (Get<uint32_t>(View(header), 0) != kLocal) return Invalid("'", member->name, "': its local header is corrupt");
  member->offset =
      static_cast<int64_t>(local) + kLocalSize + Get<uint16_t>(View(header), 26) + Get<uint16_t>(View(header), 28);
  if (member->size < 0 || member->offset > file.size() || member->size > file.size() - member->offset)
    return Invalid("'", member->name, "' reaches beyond the file");
  return absl::OkStatus();
}

// Lists the members in the order of the archive's directory. Fails if members extend beyond the file.
absl::StatusOr<std::vector<ZipMember>> ListZipMembers(const RandomFile& file) {
  ASSIGN_OR_RETURN(const Directory place, FindDirectory(file));
  if (place.size > kMaxDirectory) return Invalid("a zip directory of ", place.size, " bytes is refused");
  ASSIGN_OR_RETURN(const std::vector<char> bytes, ReadBytes(file, place.offset, place.size));
  std::vector<ZipMember> members;
  std::string_view rest = View(bytes);
  while (!rest.empty()) {
    const size_t name = Get<uint16_t>(rest, 28), extra = Get<uint16_t>(rest, 30), comment = Get<uint16_t>(rest, 32);
    if (rest.size() < kEntrySize + name + extra + comment || Get<uint32_t>(rest, 0) != kEntry)
      return Invalid("the zip directory is corrupt");
    uint64_t packed = Get<uint32_t>(rest, 20), size = Get<uint32_t>(rest, 24), local = Get<uint32_t>(rest, 42);
    ReadZip64(rest.substr(kEntrySize + name, extra), &size, &packed, &local);
    const bool encrypted = (Get<uint16_t>(rest, 8) & 1) != 0;
    ZipMember member{.name = std::string(rest.substr(kEntrySize, name)),
                     .stored = Get<uint16_t>(rest, 10) == 0 && !encrypted && size == packed,
                     .size = static_cast<int64_t>(size)};
    if (member.stored) RETURN_IF_ERROR(Locate(file, local, &member));
    members.push_back(std::move(member));
    rest.remove_prefix(kEntrySize + name + extra + comment);
  }
  return members;
}

class NpzFolder : public Dataset {
 public:
  // `texts` (may be null) holds the columns of texts.
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
  int arrays_;  // number of columns that are read from the files
  std::shared_ptr<const Dataset> texts_;
};

// Reads the text arrays of all files.
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

namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

constexpr std::string_view kSuffix = ".npy";

std::string ArrayName(const ZipMember& member) { return member.name.substr(0, member.name.size() - kSuffix.size()); }

// Returns nullopt if the archive cannot be read, which opening it reports.
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

// Selects the arrays to read and names their columns.
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

// Returns the array of a stored member; without a type if the member must be read as a whole.
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

namespace {

constexpr size_t kMaxArrays = 64;  // more files are samples, not columns

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
  return names.ok() && !names->empty() && names->size() <= kMaxArrays && std::ranges::all_of(*names, is_npy);
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

namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

Opened OpenInMemory(const std::string& path, const std::string& name, const ReadFn& read, int64_t size,
                    const DatasetOptions& options) {
  ASSIGN_OR_RETURN(NpyArray array, ReadNpyArray(read, size, options.max_bytes));
  DatasetOptions own = options;
  if (options.text.contains("0")) own.text.names.insert(name);  // selected by index
  ASSIGN_OR_RETURN(NamedTensor column, MakeArrayColumn(path, name, std::move(array), own));
  return MakeMemoryDataset({std::move(column)}, [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

Opened Open(const std::string& path, const DatasetOptions& options) {
  const std::string name = std::filesystem::path(path).stem().string();
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  const int64_t size = file->size();
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file->reader(0, size)));
  const auto bytes = static_cast<int64_t>(header.type.bytes());
  if (header.fortran || header.text != NpyText::kNone || bytes <= kHeldInMemory)
    return OpenInMemory(path, name, file->reader(0, size), size, options);
  if (header.offset + bytes != size)
    return Invalid("the header declares ", ToString(header.type), ", but the file has ", size, " bytes");
  return MakeFileDataset(
      path, file, {{.name = name, .type = header.type, .offset = header.offset, .big_endian = header.big_endian}});
}

// Opens a compressed array, which can only be read sequentially.
Opened OpenPacked(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  const std::string name = std::filesystem::path(path).stem().stem().string();
  ASSIGN_OR_RETURN(HostTensor tensor, ReadNpyStream(file.reader(), file.max_size(), options.max_bytes));
  return MakeMemoryDataset({{name, tensor}}, [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

}  // namespace

Opened OpenNpy(const std::string& path, const DatasetOptions& options) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  auto dataset =
      path.ends_with(".npy") || !HasSuffix(path, {".npy"}, true) ? Open(path, options) : OpenPacked(path, options);
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
