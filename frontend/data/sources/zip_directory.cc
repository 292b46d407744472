#include "frontend/data/sources/zip_directory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "zip archives are little-endian");

constexpr uint32_t kEnd = 0x06054B50, kEnd64Locator = 0x07064B50, kEnd64 = 0x06064B50, kEntry = 0x02014B50,
                   kLocal = 0x04034B50;
constexpr int64_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46, kLocalSize = 30;
constexpr int64_t kMaxComment = 0xFFFF;
constexpr int64_t kMaxDirectory = int64_t{256} << 20;
constexpr uint32_t k32 = std::numeric_limits<uint32_t>::max();  // the number is in the zip64 record

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

// Reads what does not fit into 32 bits, in the order in which the format has it.
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

// Sets where the bytes of a stored member begin, which its local header tells.
absl::Status Locate(const RandomFile& file, uint64_t local, ZipMember* member) {
  ASSIGN_OR_RETURN(const std::vector<char> header, ReadBytes(file, static_cast<int64_t>(local), kLocalSize));
  if (Get<uint32_t>(View(header), 0) != kLocal) return Invalid("'", member->name, "': its local header is corrupt");
  member->offset =
      static_cast<int64_t>(local) + kLocalSize + Get<uint16_t>(View(header), 26) + Get<uint16_t>(View(header), 28);
  if (member->size < 0 || member->offset > file.size() || member->size > file.size() - member->offset)
    return Invalid("'", member->name, "' reaches beyond the file");
  return absl::OkStatus();
}

}  // namespace

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

}  // namespace onnxtrain
