#include "optim/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/file.h"
#include "frontend/data/json_reader.h"
#include "frontend/data/json_writer.h"
#include "frontend/data/zstd_stream.h"
#include "optim/checkpoint/crc64.h"
#include "optim/checkpoint/file_writer.h"
#include "optim/checkpoint/retry.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kModelFile[] = "model.safetensors", kOptimizerFile[] = "optimizer.safetensors";
constexpr char kCompressed[] = ".zst";
constexpr char kStateFile[] = "state.json", kManifestFile[] = "MANIFEST.json";
constexpr std::string_view kTemporary = ".tmp-", kPrefix = "step-";
constexpr int kFormat = 3;
constexpr int64_t kMaxStateBytes = int64_t{64} << 20;
constexpr size_t kChunk = size_t{1} << 20;

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

template <typename Sink>
absl::Status AppendTensors(const NamedArrays& tensors, Sink* sink) {
  std::vector<NamedType> types;
  for (const auto& [name, tensor] : tensors) types.push_back({name, tensor.type()});
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types, {{"format", "onnxtrain"}}));
  RETURN_IF_ERROR(sink->Append(AsBytes(header)));
  for (const auto& [name, tensor] : tensors) RETURN_IF_ERROR(sink->Append(tensor.bytes()));
  return absl::OkStatus();
}

// The checksum is that of the bytes on disk; `unpacked`: their number before compression.
Json ManifestEntry(const FileWriter& file, int64_t unpacked) {
  return {{"bytes", file.size()}, {"unpacked_bytes", unpacked}, {"crc64", Crc64Text(file.crc())}};
}

absl::Status WriteTensors(int folder, std::string name, const NamedArrays& tensors, bool compressed, Json* files) {
  if (compressed) name += kCompressed;
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(folder, name));
  ZstdCompressor zstd([&](std::span<const std::byte> bytes) { return file.Append(bytes); });
  if (compressed) {
    RETURN_IF_ERROR(AppendTensors(tensors, &zstd));
    RETURN_IF_ERROR(zstd.Finish());
  } else {
    RETURN_IF_ERROR(AppendTensors(tensors, &file));
  }
  RETURN_IF_ERROR(file.Finish());
  (*files)[name] = ManifestEntry(file, compressed ? zstd.size() : file.size());
  return absl::OkStatus();
}

absl::Status WriteText(int folder, const char* name, std::string_view text, Json* files) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(folder, name));
  RETURN_IF_ERROR(file.Append(text));
  RETURN_IF_ERROR(file.Finish());
  (*files)[name] = ManifestEntry(file, file.size());
  return absl::OkStatus();
}

std::string ManifestText(const Json& content) {
  const std::string text = WriteJson(content);
  const Json manifest = {{"content", content}, {"crc64", Crc64Text(ExtendCrc64(0, AsBytes(text)))}};
  return WriteJson(manifest, 2) + "\n";
}

absl::Status WriteFiles(int folder, const CheckpointContent& content) {
  Json files = Json::object(), none = Json::object();
  RETURN_IF_ERROR(WriteTensors(folder, kModelFile, content.model, content.compressed, &files));
  RETURN_IF_ERROR(WriteTensors(folder, kOptimizerFile, content.optimizer, content.compressed, &files));
  RETURN_IF_ERROR(WriteText(folder, kStateFile, content.state, &files));
  const Json manifest = {{"format", kFormat}, {"step", content.step}, {"files", files}};
  return WriteText(folder, kManifestFile, ManifestText(manifest), &none);
}

// Any change of the text is found: it must be the one text that its content has.
absl::StatusOr<Json> ReadManifest(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxStateBytes));
  const Json manifest = ParseJson<Json>(text);
  if (!manifest.is_object() || !manifest.contains("content") || ManifestText(manifest["content"]) != text)
    return Invalid(path, ": is damaged");
  const Json& content = manifest["content"];
  if (content.value("format", 0) != kFormat)
    return Invalid(path, ": has format ", content.value("format", 0), ", this program reads format ", kFormat);
  return content;
}

absl::Status CheckAgainst(const Json& entry, const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return Invalid(path, ": ", error.message());
  if (entry.value("bytes", int64_t{-1}) != static_cast<int64_t>(size))
    return Invalid(path, ": has ", size, " bytes instead of ", entry.value("bytes", int64_t{-1}));
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rbe"), fclose);
  if (file == nullptr) return Invalid(path, ": ", std::strerror(errno));
  uint64_t crc = 0;
  std::vector<std::byte> chunk(kChunk);
  while (const size_t n = fread(chunk.data(), 1, chunk.size(), file.get()))
    crc = ExtendCrc64(crc, std::span(chunk).first(n));
  return entry.value("crc64", "") == Crc64Text(crc) ? absl::OkStatus() : Invalid(path, ": is damaged");
}

// The name under which the manifest lists a file: its own, or that of the compressed one.
absl::StatusOr<std::string> ListedName(const std::string& folder, const Json& manifest, const std::string& name) {
  const Json& files = manifest["files"];
  for (const std::string& listed : {name, name + kCompressed}) {
    if (files.is_object() && files.contains(listed)) return listed;
  }
  return Invalid(folder, ": its manifest does not list ", name);
}

absl::StatusOr<StoredFile> CheckFile(const std::string& folder, const Json& manifest, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string listed, ListedName(folder, manifest, name));
  const Json& entry = manifest["files"][listed];
  StoredFile file{.path = StrCat(folder, "/", listed), .unpacked_bytes = entry.value("unpacked_bytes", int64_t{-1})};
  RETURN_IF_ERROR(CheckAgainst(entry, file.path));
  return file;
}

absl::StatusOr<NamedArrays> ReadTensors(const StoredFile& stored) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(stored.path));
  auto arrays = ReadSafetensors(file.reader(), stored.unpacked_bytes);
  if (!arrays.ok()) return Annotate(arrays.status(), stored.path + ": ");
  return arrays;
}

// The step of "step-00000042"; -1: another name.
int64_t StepOf(std::string_view name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end && CheckpointName(step) == name ? step : -1;
}

}  // namespace

int64_t CheckpointContent::bytes() const {
  constexpr int64_t kHeaders = 16 << 10;  // and the manifest, and the rest of blocks
  int64_t total = kHeaders + static_cast<int64_t>(state.size());
  for (const auto* tensors : {&model, &optimizer}) {
    for (const auto& [name, tensor] : *tensors) total += static_cast<int64_t>(tensor.bytes().size());
  }
  return total;
}

std::string CheckpointName(int64_t step) { return absl::StrFormat("%s%08d", kPrefix, step); }

absl::Status CheckpointFolder::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat(path_, ": ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<CheckpointFolder>> CheckpointFolder::Open(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
  std::unique_ptr<CheckpointFolder> folder(new CheckpointFolder(path, fd));
  RETURN_IF_ERROR(folder->RemoveLeftovers());
  return folder;
}

CheckpointFolder::~CheckpointFolder() { close(fd_); }

std::string CheckpointFolder::handle() const { return StrCat("/proc/self/fd/", fd_); }

absl::Status CheckpointFolder::RemoveLeftovers() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(handle(), error)) {
    if (entry.path().filename().string().starts_with(kTemporary)) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) {
    if (!error) fs::remove_all(leftover, error);
  }
  return error ? absl::UnavailableError(StrCat(path_, ": ", error.message())) : absl::OkStatus();
}

absl::Status CheckpointFolder::CheckRoom(int64_t bytes) const {
  struct statvfs info;
  if (fstatvfs(fd_, &info) != 0) return absl::OkStatus();  // the writes will tell
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(bytes) <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat("%s: a checkpoint takes %.1f MiB, the disk has %.1f MiB left",
                                                      path_, static_cast<double>(bytes) / (1 << 20), free / (1 << 20)));
}

absl::Status CheckpointFolder::Write(const CheckpointContent& content) {
  RETURN_IF_ERROR(CheckRoom(content.bytes()));
  const std::string name = CheckpointName(content.step), temporary = StrCat(kTemporary, name);
  std::error_code ignored;
  fs::remove_all(handle() + "/" + temporary, ignored);
  if (mkdirat(fd_, temporary.c_str(), 0755) != 0) return Failed(temporary + " cannot be created");
  const int folder = Retry([&] { return openat(fd_, temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) return Failed(temporary + " cannot be opened");
  absl::Status written = Annotate(WriteFiles(folder, content), StrCat(path_, "/", name, ": "));
  if (written.ok() && Retry([&] { return fsync(folder); }) != 0 && errno != EINVAL)
    written = Failed(name + " cannot be synced to disk");
  close(folder);
  if (!written.ok()) {
    fs::remove_all(handle() + "/" + temporary, ignored);
    return written;
  }
  RETURN_IF_ERROR(MoveIntoPlace(temporary, name));
  if (Retry([&] { return fsync(fd_); }) != 0 && errno != EINVAL) return Failed("cannot be synced to disk");
  return Link("latest", content.step);
}

// An older checkpoint of the step is there until the new one is.
absl::Status CheckpointFolder::MoveIntoPlace(const std::string& temporary, const std::string& name) {
  if (renameat2(fd_, temporary.c_str(), fd_, name.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code ignored;
    fs::remove_all(handle() + "/" + temporary, ignored);
    return absl::OkStatus();
  }
  // Not every file system can exchange.
  if (renameat(fd_, temporary.c_str(), fd_, name.c_str()) == 0) return absl::OkStatus();
  if (errno != ENOTEMPTY && errno != EEXIST) return Failed(name + " cannot be renamed into place");
  RETURN_IF_ERROR(Remove(StepOf(name)));
  if (renameat(fd_, temporary.c_str(), fd_, name.c_str()) == 0) return absl::OkStatus();
  return Failed(name + " cannot be renamed into place");
}

absl::Status CheckpointFolder::Link(const std::string& name, int64_t step) {
  const std::string temporary = StrCat(kTemporary, name);
  unlinkat(fd_, temporary.c_str(), 0);
  if (symlinkat(CheckpointName(step).c_str(), fd_, temporary.c_str()) != 0 ||
      renameat(fd_, temporary.c_str(), fd_, name.c_str()) != 0)
    return Failed(StrCat("the link ", name, " cannot be made"));
  return absl::OkStatus();
}

// Takes the name away first: a reader never sees half of a checkpoint.
absl::Status CheckpointFolder::Remove(int64_t step) {
  const std::string name = CheckpointName(step), temporary = StrCat(kTemporary, "old-", name);
  std::error_code ignored;
  fs::remove_all(handle() + "/" + temporary, ignored);
  if (renameat(fd_, name.c_str(), fd_, temporary.c_str()) != 0)
    return errno == ENOENT ? absl::OkStatus() : Failed(name + " cannot be removed");
  std::error_code error;
  fs::remove_all(handle() + "/" + temporary, error);
  return error ? absl::UnavailableError(StrCat(path_, "/", name, ": cannot be removed: ", error.message()))
               : absl::OkStatus();
}

std::vector<int64_t> ListCheckpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const int64_t step = StepOf(entry.path().filename().string());
    if (step >= 0) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(const Json manifest, ReadManifest(StrCat(path, "/", kManifestFile)));
  StoredCheckpoint stored{.path = path, .step = manifest.value("step", int64_t{-1})};
  ASSIGN_OR_RETURN(const StoredFile state, CheckFile(path, manifest, kStateFile));
  ASSIGN_OR_RETURN(stored.model, CheckFile(path, manifest, kModelFile));
  ASSIGN_OR_RETURN(stored.optimizer, CheckFile(path, manifest, kOptimizerFile));
  ASSIGN_OR_RETURN(stored.state, ReadTextFile(state.path, kMaxStateBytes));
  return stored;
}

absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint) {
  return ReadTensors(checkpoint.model);
}

absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint) {
  return ReadTensors(checkpoint.optimizer);
}

absl::StatusOr<StoredCheckpoint> OpenNewestCheckpoint(const std::string& folder, std::vector<std::string>* skipped) {
  std::vector<int64_t> steps = ListCheckpoints(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto stored = OpenCheckpoint(StrCat(folder, "/", CheckpointName(*step)));
    if (stored.ok()) return stored;
    skipped->emplace_back(stored.status().message());
  }
  return absl::NotFoundError(StrCat(folder, ": holds no valid checkpoint"));
}

}  // namespace onnxtrain
