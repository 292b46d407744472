#include "frontend/data/sources/tar_index.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"

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
  archive_read_support_format_tar(a.get());  // no filter: compressed archives cannot be read at offsets
  if (archive_read_open_filename(a.get(), path.c_str(), 1 << 16) != ARCHIVE_OK) return Fail(a.get());
  return a;
}

// Where a member's bytes lie: the reader has consumed the headers before them and nothing else.
struct Place {
  std::string name;
  int64_t offset = 0, size = 0;
};

absl::StatusOr<Place> Locate(archive* a, archive_entry* entry, int64_t file_size) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);  // where the locale cannot express it
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

}  // namespace onnxtrain
