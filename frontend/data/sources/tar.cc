#include "frontend/data/sources/rows.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/npy.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/tar_index.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;
using Index = std::shared_ptr<const TarIndex>;
using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

// Puts the values of a small member into the object of its sample.
using AddValues = absl::Status (*)(const std::string& extension, const std::string& text, Json* sample);

absl::Status AddObject(const std::string&, const std::string& text, Json* sample) {
  ASSIGN_OR_RETURN(const Json object, ParseJsonObject(text));
  for (const auto& [key, value] : object.items()) (*sample)[key] = value;
  return absl::OkStatus();
}

absl::Status AddText(const std::string& extension, const std::string& text, Json* sample) {
  (*sample)[extension] = text;
  return absl::OkStatus();
}

absl::Status AddClass(const std::string& extension, const std::string& text, Json* sample) {
  const std::string name(absl::StripAsciiWhitespace(text));
  const auto number = ParseInt(name);
  (*sample)[extension] = number.ok() ? Json(*number) : Json(name);
  return absl::OkStatus();
}

// The last parts of extensions, as WebDataset decodes them.
struct SmallMember {
  std::vector<std::string> suffixes;
  AddValues add;
};

// In the order of their columns: without another name the last is the label.
const std::vector<SmallMember>& SmallMembers() {
  static const auto* members = new std::vector<SmallMember>{
      {{".json", ".jsn"}, AddObject},
      {{".txt", ".text", ".transcript"}, AddText},
      {{".count", ".index", ".inx", ".id", ".class", ".cls2", ".cls"}, AddClass},
  };
  return *members;
}

bool IsOfKind(const std::string& extension, const SmallMember& member) {
  return HasSuffix("." + extension, member.suffixes, false);
}

// The folder that a sample lies in; "": none.
std::string FolderOf(const std::string& key) { return std::filesystem::path(key).parent_path().filename().string(); }

// Where nothing else can be a label, several folders are the classes.
bool HasClassFolders(const TarIndex& index) {
  const std::string& extension = index.extensions()[0];
  if (index.extensions().size() > 1 || extension == "cls" || extension == "json") return false;
  const std::string first = FolderOf(index.Key(0));
  bool several = false;
  for (int64_t i = 0; i < index.size(); ++i) {
    const std::string folder = FolderOf(index.Key(i));
    if (folder.empty()) return false;
    several |= folder != first;
  }
  return several;
}

// A stream of JSON lines, one for each sample.
class SampleLines {
 public:
  // `folders`: the label is the folder of the sample.
  SampleLines(Index index, bool folders) : index_(std::move(index)), folders_(folders) {}

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size()) {
      if (at_ == line_.size()) {
        if (next_ == index_->size()) break;
        RETURN_IF_ERROR(MakeLine(next_++));
      }
      const size_t size = std::min(out.size() - done, line_.size() - at_);
      std::memcpy(out.data() + done, line_.data() + at_, size);
      done += size;
      at_ += size;
    }
    return done;
  }

 private:
  absl::Status MakeLine(int64_t i) {
    Json sample = Json::object();
    for (const SmallMember& member : SmallMembers()) {
      for (int e = 0; e < static_cast<int>(index_->extensions().size()); ++e) {
        const std::string& extension = index_->extensions()[e];
        if (!IsOfKind(extension, member)) continue;
        absl::Status added = index_->Read(i, e, &bytes_);
        if (added.ok()) added = member.add(extension, std::string(bytes_.begin(), bytes_.end()), &sample);
        if (!added.ok()) return Annotate(added, StrCat(index_->Describe(i), ".", extension, ": "));
      }
    }
    if (folders_) sample["label"] = FolderOf(index_->Key(i));
    line_ = WriteJson(sample) + "\n";
    at_ = 0;
    return absl::OkStatus();
  }

  Index index_;
  bool folders_;
  std::vector<uint8_t> bytes_;
  std::string line_;
  size_t at_ = 0;
  int64_t next_ = 0;
};

// Arrays in members of their own, then the columns of a table (may be null).
class TarDataset : public Dataset {
 public:
  TarDataset(Index index, std::vector<Column> arrays, std::vector<int> extensions, std::shared_ptr<const Dataset> table)
      : index_(std::move(index)),
        columns_(std::move(arrays)),
        extensions_(std::move(extensions)),
        table_(std::move(table)) {
    if (table_ != nullptr) columns_.insert(columns_.end(), table_->columns().begin(), table_->columns().end());
  }

  int64_t size() const override { return index_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return index_->Describe(i); }
  std::vector<std::string> notes() const override { return notes_; }
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  int64_t memory_bytes() const override {
    return table_ != nullptr && extensions_.empty() ? table_->memory_bytes() : 0;
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override {
    return c < arrays() ? Dataset::ReadText(i, c) : table_->ReadText(i, c - arrays());
  }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c >= arrays()) return table_->Read(i, c - arrays(), pass, out);
    return Annotate(ReadArray(i, c, out), StrCat(Describe(i), ".", columns_[c].name, ": "));
  }

 private:
  int arrays() const { return static_cast<int>(extensions_.size()); }

  absl::Status ReadArray(int64_t i, int c, std::span<std::byte> out) const {
    std::vector<uint8_t> bytes;
    RETURN_IF_ERROR(index_->Read(i, extensions_[c], &bytes));
    ASSIGN_OR_RETURN(const HostTensor array, ReadNpyBytes(bytes));
    if (array.type() != columns_[c].sample)
      return Invalid(ToString(array.type()), ", but the first sample has ", ToString(columns_[c].sample));
    std::ranges::copy(array.bytes(), out.begin());
    return absl::OkStatus();
  }

  Index index_;
  std::vector<Column> columns_;
  std::vector<int> extensions_;  // of the arrays
  std::shared_ptr<const Dataset> table_;
  std::vector<std::string> notes_;
};

absl::StatusOr<Column> MakeArrayColumn(const TarIndex& index, int e) {
  std::vector<uint8_t> bytes;
  RETURN_IF_ERROR(index.Read(0, e, &bytes));
  ASSIGN_OR_RETURN(const HostTensor array, ReadNpyBytes(bytes));
  const std::string& extension = index.extensions()[e];
  return Column{.name = extension, .sample = array.type(), .image = HoldsPixels(array.type())};
}

// The picture of every sample, as files of a folder are read.
class MemberPictures : public PictureFiles {
 public:
  MemberPictures(Index index, int extension) : index_(std::move(index)), extension_(extension) {}
  int64_t size() const override { return index_->size(); }
  absl::Status Read(int64_t i, std::vector<uint8_t>* bytes) const override {
    return index_->Read(i, extension_, bytes);
  }
  std::string Name(int64_t i) const override { return StrCat(index_->Key(i), Suffix()); }
  std::string Describe(int64_t i) const override { return StrCat(index_->Describe(i), Suffix()); }

 private:
  std::string Suffix() const { return "." + index_->extensions()[extension_]; }

  Index index_;
  int extension_;
};

enum class MemberKind { kArray, kSmall, kPicture, kUnknown };

MemberKind KindOf(const std::string& extension) {
  const std::string suffix = "." + extension;
  if (HasSuffix(suffix, {".npy"}, false)) return MemberKind::kArray;
  const auto is_of_kind = [&](const SmallMember& member) { return IsOfKind(extension, member); };
  if (std::ranges::any_of(SmallMembers(), is_of_kind)) return MemberKind::kSmall;
  const bool picture = HasSuffix(suffix, {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}, false);
  return picture ? MemberKind::kPicture : MemberKind::kUnknown;
}

using MembersByKind = std::map<MemberKind, std::vector<int>>;

// Says which members no column has; fails where that are all.
absl::StatusOr<std::vector<std::string>> DescribeUnknown(const std::string& pattern, const TarIndex& index,
                                                         const MembersByKind& kinds) {
  const auto unknown = kinds.find(MemberKind::kUnknown);
  if (unknown == kinds.end()) return std::vector<std::string>();
  std::vector<std::string> names;
  for (const int e : unknown->second) names.push_back("." + index.extensions()[e]);
  const std::string what = StrCat(pattern, ": members ", absl::StrJoin(names, ", "),
                                  " are not known (.npy, .cls, .json, .txt, .jpg, .png, .webp, .gif, .bmp, .tif)");
  if (kinds.size() == 1) return Invalid(what);
  return std::vector<std::string>{"left out: " + what};
}

// The extensions of each kind.
MembersByKind SortMembers(const TarIndex& index) {
  MembersByKind kinds;
  for (int e = 0; e < static_cast<int>(index.extensions().size()); ++e)
    kinds[KindOf(index.extensions()[e])].push_back(e);
  return kinds;
}

enum class Table { kNone, kMembers, kFolders };

absl::StatusOr<std::shared_ptr<TarDataset>> MakeArraysAndTable(const std::string& pattern, const Index& index,
                                                               const std::vector<int>& arrays, Table kind,
                                                               const DatasetOptions& options) {
  std::vector<Column> columns;
  for (const int e : arrays) {
    auto column = MakeArrayColumn(*index, e);
    if (!column.ok()) return Annotate(column.status(), StrCat(index->Describe(0), ".", index->extensions()[e], ": "));
    columns.push_back(*std::move(column));
  }
  std::shared_ptr<const Dataset> table;
  if (kind != Table::kNone) {
    const auto lines = std::make_shared<SampleLines>(index, kind == Table::kFolders);
    const ReadFn read = [lines](std::span<std::byte> out) { return lines->Read(out); };
    ASSIGN_OR_RETURN(table, ReadJsonLines(pattern, read, options));
  }
  return std::make_shared<TarDataset>(index, std::move(columns), arrays, std::move(table));
}

// Is there more than a label?
bool HasInputs(const Dataset& others) { return others.columns().size() > 1; }

}  // namespace

Opened OpenTar(const std::string& pattern, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Index index, TarIndex::Open(pattern));
  MembersByKind kinds = SortMembers(*index);
  ASSIGN_OR_RETURN(std::vector<std::string> notes, DescribeUnknown(pattern, *index, kinds));
  const std::vector<int>&arrays = kinds[MemberKind::kArray], &pictures = kinds[MemberKind::kPicture];
  std::shared_ptr<TarDataset> others;
  const bool folders = HasClassFolders(*index);
  if (pictures.empty() || !arrays.empty() || !kinds[MemberKind::kSmall].empty() || folders) {
    const Table table = folders ? Table::kFolders : kinds[MemberKind::kSmall].empty() ? Table::kNone : Table::kMembers;
    ASSIGN_OR_RETURN(others, MakeArraysAndTable(pattern, index, arrays, table, options));
  }
  if (pictures.empty()) return WithNotes(others, std::move(notes));
  if (!options.images.wanted && others != nullptr && HasInputs(*others)) {
    others->AddNote(StrCat(pattern, ": the pictures (.", index->extensions()[pictures[0]],
                           ") are left out, as the model takes none"));
    return WithNotes(others, std::move(notes));
  }
  std::vector<PictureColumn> columns;
  for (const int e : pictures) {
    columns.push_back({.name = index->extensions()[e],
                       .options = options.images,
                       .files = std::make_shared<MemberPictures>(index, e)});
  }
  return MakePictureDataset(pattern, std::move(columns), others, -1, others != nullptr, std::move(notes));
}

}  // namespace onnxtrain
