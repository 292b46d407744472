#include "frontend/data/sources/tar.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/media_columns.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxShards = 100000;
constexpr int64_t kMaxMember = int64_t{1} << 31;

struct FreeArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};
using Archive = std::unique_ptr<archive, FreeArchive>;

absl::Status Fail(archive* a) {
  const char* text = archive_error_string(a);
  return Invalid("not a readable tar archive (packed ones must be unpacked): ", text == nullptr ? "corrupt" : text);
}

absl::StatusOr<Archive> OpenArchive(const std::string& path) {
  Archive a(archive_read_new());
  if (a == nullptr) return absl::ResourceExhaustedError("out of memory");
  archive_read_support_format_tar(a.get());  // without filters, since compressed archives cannot be read at offsets
  if (archive_read_open_filename(a.get(), path.c_str(), 1 << 16) != ARCHIVE_OK) return Fail(a.get());
  return a;
}

// Name and position of a member's bytes. Requires a reader that has consumed exactly the headers before them.
struct Place {
  std::string name;
  int64_t offset = 0, size = 0;
};

absl::StatusOr<Place> Locate(archive* a, archive_entry* entry, int64_t file_size) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);  // if the locale cannot represent it
  Place place{name == nullptr ? "" : name, archive_filter_bytes(a, -1), archive_entry_size(entry)};
  if (place.name.empty()) return Invalid("a member has no name");
  const std::string where = StrCat("member '", place.name, "': ");
  if (archive_entry_sparse_count(entry) > 0) return Invalid(where, "sparse members cannot be read at offsets");
  if (place.size < 0 || place.size > kMaxMember) return Invalid(where, place.size, " bytes are refused");
  if (place.offset > file_size || place.size > file_size - place.offset)
    return Invalid(where, "reaches beyond the archive, which is truncated");
  return place;
}

bool IsHidden(const std::string& name) {
  const std::string file = std::filesystem::path(name).filename().string();
  return file.empty() || file.front() == '.';
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandShards(const std::string& pattern) {
  static const std::regex* const kRange = new std::regex(R"(^(.*)\{(\d{1,9})\.\.(\d{1,9})\}(.*)$)");
  std::smatch match;
  if (!std::regex_match(pattern, match, *kRange)) return std::vector<std::string>{pattern};
  ASSIGN_OR_RETURN(const int64_t first, ParseInt(match[2].str()));
  ASSIGN_OR_RETURN(const int64_t last, ParseInt(match[3].str()));
  if (last < first || last - first >= kMaxShards)
    return Invalid(pattern, ": {", match[2].str(), "..", match[3].str(), "} is no range of shards");
  std::vector<std::string> paths;
  for (int64_t i = first; i <= last; ++i)
    paths.push_back(StrCat(match[1].str(), absl::StrFormat("%0*d", match[2].length(), i), match[4].str()));
  return paths;
}

absl::StatusOr<std::shared_ptr<const TarIndex>> TarIndex::Open(const std::string& pattern) {
  auto index = std::make_shared<TarIndex>();
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, ExpandShards(pattern));
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(index->files_.emplace_back(), RandomFile::Open(path));
    index->paths_.push_back(path);
    RETURN_IF_ERROR(Annotate(index->AddShard(path), StrCat(path, ": ")));
  }
  if (index->samples_.empty()) return Invalid(pattern, ": there are no samples");
  RETURN_IF_ERROR(index->CheckComplete());
  return std::shared_ptr<const TarIndex>(std::move(index));
}

absl::Status TarIndex::AddShard(const std::string& path) {
  ASSIGN_OR_RETURN(const Archive a, OpenArchive(path));
  archive_entry* entry = nullptr;
  int code = archive_read_next_header(a.get(), &entry);
  for (; code == ARCHIVE_OK || code == ARCHIVE_WARN; code = archive_read_next_header(a.get(), &entry)) {
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr) continue;
    ASSIGN_OR_RETURN(const Place place, Locate(a.get(), entry, files_.back()->size()));
    if (!IsHidden(place.name)) RETURN_IF_ERROR(AddMember(place.name, place.offset, place.size));
  }
  return code == ARCHIVE_EOF ? absl::OkStatus() : Fail(a.get());
}

absl::Status TarIndex::AddMember(const std::string& name, int64_t offset, int64_t size) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return Invalid("member '", name, "' has no extension, which names its column");
  const std::string key = name.substr(0, dot), extension = absl::AsciiStrToLower(name.substr(dot + 1));
  const size_t e = std::ranges::find(extensions_, extension) - extensions_.begin();
  if (e == extensions_.size()) extensions_.push_back(extension);
  const size_t shard = paths_.size() - 1;
  if (samples_.empty() || samples_.back().key != key || samples_.back().shard != shard)
    samples_.push_back({.key = key, .shard = shard});
  std::vector<Member>& members = samples_.back().members;
  members.resize(extensions_.size());
  if (members[e].size >= 0) return Invalid("member '", name, "' occurs twice");
  members[e] = {offset, size};
  return absl::OkStatus();
}

absl::Status TarIndex::CheckComplete() const {
  for (int64_t i = 0; i < size(); ++i) {
    const std::vector<Member>& members = samples_[i].members;
    for (size_t e = 0; e < extensions_.size(); ++e) {
      if (e < members.size() && members[e].size >= 0) continue;
      return Invalid(Describe(i), " has no member .", extensions_[e], " (the members of a sample follow each other)");
    }
  }
  return absl::OkStatus();
}

absl::Status TarIndex::Read(int64_t i, int e, std::vector<uint8_t>* bytes) const {
  const Sample& sample = samples_[i];
  const Member& member = sample.members[e];
  bytes->resize(member.size);
  return files_[sample.shard]->ReadAt(member.offset, std::as_writable_bytes(std::span(*bytes)));
}

std::string TarIndex::Describe(int64_t i) const { return StrCat(paths_[samples_[i].shard], ": ", samples_[i].key); }

namespace {

using Json = OrderedJson;
using Index = std::shared_ptr<const TarIndex>;
using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

// Adds the values of a small member to the JSON object of its sample.
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

// Suffixes of members and how their values are decoded, as in WebDataset.
struct SmallMember {
  std::vector<std::string> suffixes;
  AddValues add;
};

// In the order of columns: the last one is the default label.
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

// Returns the name of the folder of a sample; "" if none.
std::string GetFolderName(const std::string& key) {
  return std::filesystem::path(key).parent_path().filename().string();
}

// Returns true if samples are in several folders, which are their classes, and nothing else can be the label.
bool HasClassFolders(const TarIndex& index) {
  const std::string& extension = index.extensions()[0];
  if (index.extensions().size() > 1 || extension == "cls" || extension == "json") return false;
  const std::string first = GetFolderName(index.Key(0));
  bool several = false;
  for (int64_t i = 0; i < index.size(); ++i) {
    const std::string folder = GetFolderName(index.Key(i));
    if (folder.empty()) return false;
    several |= folder != first;
  }
  return several;
}

// Generates JSON lines, one per sample.
class SampleLines {
 public:
  // `folders`: the label is the sample's folder.
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
    if (folders_) sample["label"] = GetFolderName(index_->Key(i));
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

// A data set of array members, followed by the columns of a table (may be null).
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
  std::vector<int> extensions_;  // extension index of each array column
  std::shared_ptr<const Dataset> table_;
};

absl::StatusOr<Column> MakeArrayColumn(const TarIndex& index, int e) {
  std::vector<uint8_t> bytes;
  RETURN_IF_ERROR(index.Read(0, e, &bytes));
  ASSIGN_OR_RETURN(const HostTensor array, ReadNpyBytes(bytes));
  const std::string& extension = index.extensions()[e];
  return Column{.name = extension, .sample = array.type(), .image = HoldsPixels(array.type())};
}

// The pictures or sounds among the members of samples.
class MemberFiles : public MediaFiles {
 public:
  MemberFiles(Index index, int extension) : index_(std::move(index)), extension_(extension) {}
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

enum class MemberKind { kArray, kSmall, kPicture, kSound, kUnknown };

MemberKind KindOf(const std::string& extension) {
  const std::string suffix = "." + extension;
  if (HasSuffix(suffix, {".npy"}, false)) return MemberKind::kArray;
  const auto is_of_kind = [&](const SmallMember& member) { return IsOfKind(extension, member); };
  if (std::ranges::any_of(SmallMembers(), is_of_kind)) return MemberKind::kSmall;
  const bool picture = HasSuffix(suffix, {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}, false);
  return picture ? MemberKind::kPicture : IsSoundName(suffix) ? MemberKind::kSound : MemberKind::kUnknown;
}

using MembersByKind = std::map<MemberKind, std::vector<int>>;

// Returns notes about members of unknown kinds; fails if there are no others.
absl::StatusOr<std::vector<std::string>> DescribeUnknown(const std::string& pattern, const TarIndex& index,
                                                         const MembersByKind& kinds) {
  const auto unknown = kinds.find(MemberKind::kUnknown);
  if (unknown == kinds.end()) return std::vector<std::string>();
  std::vector<std::string> names;
  for (const int e : unknown->second) names.push_back("." + index.extensions()[e]);
  const std::string what =
      StrCat(pattern, ": members ", absl::StrJoin(names, ", "),
             " are not known (.npy, .cls, .json, .txt, .jpg, .png, .webp, .gif, .bmp, .tif, .wav, .flac, .ogg, .mp3)");
  if (kinds.size() == 1) return Invalid(what);
  return std::vector<std::string>{"left out: " + what};
}

// Groups the extensions by kind.
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

}  // namespace

Opened OpenTar(const std::string& pattern, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Index index, TarIndex::Open(pattern));
  MembersByKind kinds = SortMembers(*index);
  ASSIGN_OR_RETURN(std::vector<std::string> notes, DescribeUnknown(pattern, *index, kinds));
  const std::vector<int>& arrays = kinds[MemberKind::kArray];
  MediaColumns media{.describe = [](const std::string& extension) { return StrCat("(.", extension, ")"); }};
  for (const int e : kinds[MemberKind::kPicture]) {
    media.pictures.push_back(
        {.name = index->extensions()[e], .options = options.images, .files = std::make_shared<MemberFiles>(index, e)});
  }
  for (const int e : kinds[MemberKind::kSound])
    media.sounds.push_back({index->extensions()[e], std::make_shared<MemberFiles>(index, e)});
  std::shared_ptr<const Dataset> others;
  const bool folders = HasClassFolders(*index), has_media = !media.pictures.empty() || !media.sounds.empty();
  if (!has_media || !arrays.empty() || !kinds[MemberKind::kSmall].empty() || folders) {
    const Table table = folders ? Table::kFolders : kinds[MemberKind::kSmall].empty() ? Table::kNone : Table::kMembers;
    ASSIGN_OR_RETURN(others, MakeArraysAndTable(pattern, index, arrays, table, options));
  }
  return AddMedia(pattern, std::move(media), std::move(others), options, std::move(notes));
}

}  // namespace onnxtrain
