#include "frontend/data/sources/numpy.h"

#include <zip.h>

#include <algorithm>
#include <memory>
#include <set>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kSuffix = ".npy";

struct Discard {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

std::string ErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

absl::StatusOr<Archive> OpenArchive(const std::string& path, int flags) {
  int code = 0;
  Archive zip(zip_open(path.c_str(), flags, &code));
  if (zip == nullptr) return Invalid("not a readable zip archive: ", ErrorText(code));
  return zip;
}

// Checks the zip directory's data about an entry, without reading the entry.
absl::Status CheckEntry(const zip_stat_t& entry, int64_t file_size) {
  const auto packed = static_cast<int64_t>(entry.comp_size), size = static_cast<int64_t>(entry.size);
  if (entry.comp_method != ZIP_CM_STORE && entry.comp_method != ZIP_CM_DEFLATE) {
    return Invalid("compression method ", entry.comp_method, " is neither stored nor deflated");
  }
  const bool stored = entry.comp_method == ZIP_CM_STORE;
  if (packed < 0 || packed > file_size || size < 0 || size > (stored ? packed : MaxInflatedBytes(packed))) {
    return Invalid("corrupt: ", size, " bytes are declared to be packed into ", packed, " bytes of a file of ",
                   file_size);
  }
  return absl::OkStatus();
}

// Reads past the end, which makes libzip verify the checksum.
absl::Status CheckEnd(zip_file_t* file) {
  char byte;
  const zip_int64_t got = zip_fread(file, &byte, 1);
  if (got < 0) return Invalid(zip_error_strerror(zip_file_get_error(file)));
  return got == 0 ? absl::OkStatus() : Invalid("more data than declared");
}

absl::StatusOr<NpyArray> ReadEntry(zip_t* zip, const zip_stat_t& entry, int64_t max_bytes) {
  const std::unique_ptr<zip_file_t, Discard> file(zip_fopen_index(zip, entry.index, 0));
  if (file == nullptr) return Invalid(zip_strerror(zip));
  const ReadFn read = [&](std::span<std::byte> out) -> absl::StatusOr<size_t> {
    size_t done = 0;
    while (done < out.size()) {
      const zip_int64_t got = zip_fread(file.get(), out.data() + done, out.size() - done);
      if (got < 0) return Invalid(zip_error_strerror(zip_file_get_error(file.get())));
      if (got == 0) break;
      done += got;
    }
    return done;
  };
  ASSIGN_OR_RETURN(NpyArray array, ReadNpyArray(read, static_cast<int64_t>(entry.size), max_bytes));
  RETURN_IF_ERROR(CheckEnd(file.get()));
  return array;
}

using IsWanted = std::function<bool(const std::string& name)>;

using NpyArrays = std::vector<std::pair<std::string, NpyArray>>;

absl::StatusOr<NpyArrays> ReadArrays(const std::string& path, int64_t file_size, int64_t max_bytes,
                                     const IsWanted& is_wanted) {
  ASSIGN_OR_RETURN(const Archive zip, OpenArchive(path, ZIP_RDONLY));
  if (max_bytes == 0) max_bytes = DefaultMemoryLimit();
  NpyArrays arrays;
  std::set<std::string> names;
  int64_t total = 0;
  for (zip_int64_t i = 0, n = zip_get_num_entries(zip.get(), 0); i < n; ++i) {
    zip_stat_t entry;
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(zip.get(), i, 0, &entry) != 0) return Invalid(zip_strerror(zip.get()));
    if ((entry.valid & kNeeded) != kNeeded) return Invalid("entry ", i, ": incomplete directory");
    std::string name = entry.name;
    if (!name.ends_with(kSuffix)) return Invalid("'", Printable(name), "' is no .npy array");
    name.resize(name.size() - kSuffix.size());
    const std::string where = StrCat("array '", Printable(name), "': ");
    if (!names.insert(name).second) return Invalid(where, "the name occurs twice");
    if (!is_wanted(name)) continue;
    RETURN_IF_ERROR(Annotate(CheckEntry(entry, file_size), where));
    RETURN_IF_ERROR(Annotate(CheckMemory(total += static_cast<int64_t>(entry.size), max_bytes), where));
    auto array = ReadEntry(zip.get(), entry, max_bytes);
    if (!array.ok()) return Annotate(array.status(), where);
    arrays.emplace_back(std::move(name), *std::move(array));
  }
  return arrays;
}

absl::Status AddEntry(zip_t* zip, const std::string& name, const std::string& bytes, bool compressed) {
  zip_source_t* source = zip_source_buffer(zip, bytes.data(), bytes.size(), 0);
  if (source == nullptr) return absl::ResourceExhaustedError("out of memory");
  const zip_int64_t index = zip_file_add(zip, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return Invalid(zip_strerror(zip));
  }
  const bool set = zip_set_file_compression(zip, index, compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0) == 0 &&
                   zip_file_set_mtime(zip, index, 0, 0) == 0;  // so that equal arrays yield equal files
  return set ? absl::OkStatus() : Invalid(zip_strerror(zip));
}

}  // namespace

absl::StatusOr<NamedArrays> ReadNpz(const std::string& path, int64_t max_bytes) {
  return ReadNpzWhere([](const std::string&) { return true; }, path, max_bytes);
}

absl::StatusOr<NamedArrays> ReadNpzWhere(const IsWanted& is_wanted, const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(NpyArrays arrays, ReadNpzArrays(is_wanted, path, max_bytes));
  NamedArrays numbers;
  for (auto& [name, array] : arrays) {
    if (array.texts.has_value())
      return Invalid(path, ": array '", Printable(name), "' holds texts where numbers are needed");
    numbers.emplace_back(std::move(name), std::move(array.tensor));
  }
  return numbers;
}

absl::StatusOr<NpyArrays> ReadNpzArrays(const IsWanted& is_wanted, const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const int64_t file_size, RegularFileSize(path));
  auto arrays = ReadArrays(path, file_size, max_bytes, is_wanted);
  if (!arrays.ok()) return Annotate(arrays.status(), StrCat(path, ": "));
  return arrays;
}

absl::Status WriteNpz(const std::string& path, const NamedArrays& arrays, bool compressed) {
  std::vector<std::string> contents;  // libzip reads them in zip_close
  contents.reserve(arrays.size());
  auto zip = OpenArchive(path, ZIP_CREATE | ZIP_TRUNCATE);
  if (!zip.ok()) return Annotate(zip.status(), StrCat(path, ": "));
  for (const auto& [name, tensor] : arrays) {
    auto preamble = NpyPreamble(tensor.type());
    if (!preamble.ok()) return Annotate(preamble.status(), StrCat(path, ": array '", name, "': "));
    const auto bytes = tensor.bytes();
    contents.push_back(*preamble + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    RETURN_IF_ERROR(
        Annotate(AddEntry(zip->get(), StrCat(name, kSuffix), contents.back(), compressed), StrCat(path, ": ")));
  }
  if (zip_close(zip->get()) != 0) return Invalid(path, ": ", zip_strerror(zip->get()));
  // zip_close has freed it.
  static_cast<void>(zip->release());
  return absl::OkStatus();
}

}  // namespace onnxtrain
