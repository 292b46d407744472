#include "optim/record/checkpoint/checkpoint_folder.h"

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
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "optim/record/checkpoint/file_writer.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kTemporary = ".tmp-", kPrefix = "step-";

template <typename Sink>
absl::Status AppendTensors(const NamedArrays& tensors, Sink* sink) {
  std::vector<NamedType> types;
  for (const auto& [name, tensor] : tensors) types.push_back({name, tensor.type()});
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types, {{"format", "onnxtrain"}}));
  RETURN_IF_ERROR(sink->Append(AsBytes(header)));
  for (const auto& [name, tensor] : tensors) RETURN_IF_ERROR(sink->Append(tensor.bytes()));
  return absl::OkStatus();
}

// Returns the manifest entry of a file, with the checksum of its bytes on disk. `unpacked`: bytes before compression.
Json ManifestEntry(const FileWriter& file, int64_t unpacked) {
  return {{"bytes", file.size()}, {"unpacked_bytes", unpacked}, {"crc64", Crc64Text(file.crc())}};
}

absl::Status WriteTensors(int folder, std::string name, const NamedArrays& tensors, bool compressed, Json* files) {
  if (compressed) name += kCompressedSuffix;
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

// Writes the tensor files of one rank, and returns their manifest entries as JSON text.
absl::StatusOr<std::string> WriteTensorFiles(int folder, const CheckpointContent& content, int rank, int ranks) {
  Json files = Json::object();
  for (const auto& [tensors, name] :
       {std::pair(&content.model, kModelTensors), {&content.optimizer, kOptimizerTensors}})
    RETURN_IF_ERROR(WriteTensors(folder, TensorFileName(name, rank, ranks), *tensors, content.compressed, &files));
  return WriteJson(files);
}

// Writes MANIFEST.json. `written`: the results of WriteTensorFiles by rank.
absl::Status WriteManifest(int folder, const CheckpointContent& content, const std::vector<std::string>& written) {
  Json files = Json::object(), none = Json::object();
  for (const std::string& of_rank : written) files.update(ParseJson<Json>(of_rank));
  RETURN_IF_ERROR(WriteText(folder, kStateFile, content.state, &files));
  const bool parts = written.size() > 1;
  Json manifest = {{"format", parts ? kPartsFormat : kWholeFormat}, {"step", content.step}, {"files", files}};
  if (parts) manifest["ranks"] = written.size();
  for (const WholeStateTensor& t : content.whole)
    manifest["tensors"].push_back(
        {{"name", t.name}, {"of_model", t.of_model}, {"type", ToString(t.type.dtype)}, {"shape", t.type.shape}});
  return WriteText(folder, kManifestFile, ManifestText(manifest), &none);
}

// Returns the step in "step-00000042", or -1 for other names.
int64_t StepOf(std::string_view name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end && CheckpointName(step) == name ? step : -1;
}

std::string TemporaryName(int64_t step) { return StrCat(kTemporary, CheckpointName(step)); }

}  // namespace

int64_t CheckpointContent::bytes() const {
  constexpr int64_t kHeaders = 16 << 10;  // covers headers, the manifest and partially filled blocks
  int64_t total = kHeaders + static_cast<int64_t>(state.size());
  for (const auto* tensors : {&model, &optimizer}) {
    for (const auto& [name, tensor] : *tensors) total += static_cast<int64_t>(tensor.bytes().size());
  }
  if (whole.empty()) return total;
  total = kHeaders + static_cast<int64_t>(state.size());
  for (const WholeStateTensor& tensor : whole) total += static_cast<int64_t>(tensor.type.bytes());
  return total;
}

std::string CheckpointName(int64_t step) { return absl::StrFormat("%s%08d", kPrefix, step); }

absl::Status CheckpointFolder::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat(path_, ": ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<CheckpointFolder>> CheckpointFolder::OpenExisting(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(StrCat(path, ": ", std::strerror(errno)));
  return std::unique_ptr<CheckpointFolder>(new CheckpointFolder(path, fd));
}

absl::StatusOr<std::unique_ptr<CheckpointFolder>> CheckpointFolder::Open(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  ASSIGN_OR_RETURN(auto folder, OpenExisting(path));
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
  if (fstatvfs(fd_, &info) != 0) return absl::OkStatus();  // a full disk then fails the write
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(bytes) <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat("%s: a checkpoint takes %.1f MiB, the disk has %.1f MiB left",
                                                      path_, static_cast<double>(bytes) / (1 << 20), free / (1 << 20)));
}

absl::Status CheckpointFolder::Write(const CheckpointContent& content) {
  RETURN_IF_ERROR(Begin(content));
  const auto written = WriteParts(content, 0, 1);
  if (written.ok()) return Complete(content, {*written});
  Discard(content.step);
  return written.status();
}

absl::Status CheckpointFolder::Begin(const CheckpointContent& content) {
  RETURN_IF_ERROR(CheckRoom(content.bytes()));
  Discard(content.step);
  const std::string temporary = TemporaryName(content.step);
  return mkdirat(fd_, temporary.c_str(), 0755) == 0 ? absl::OkStatus() : Failed(temporary + " cannot be created");
}

void CheckpointFolder::Discard(int64_t step) {
  std::error_code ignored;
  fs::remove_all(StrCat(handle(), "/", TemporaryName(step)), ignored);
}

absl::StatusOr<std::string> CheckpointFolder::WriteParts(const CheckpointContent& content, int rank, int ranks) {
  ASSIGN_OR_RETURN(const int folder, OpenTemporary(content.step));
  auto written = WriteTensorFiles(folder, content, rank, ranks);
  close(folder);
  if (!written.ok()) return Annotate(written.status(), StrCat(path_, "/", CheckpointName(content.step), ": "));
  return written;
}

absl::Status CheckpointFolder::Complete(const CheckpointContent& content, const std::vector<std::string>& written) {
  const std::string name = CheckpointName(content.step);
  const absl::Status listed = WriteList(content, written);
  if (!listed.ok()) Discard(content.step);
  RETURN_IF_ERROR(listed);
  RETURN_IF_ERROR(MoveIntoPlace(TemporaryName(content.step), name));
  if (Retry([&] { return fsync(fd_); }) != 0 && errno != EINVAL) return Failed("cannot be synced to disk");
  return Link("latest", content.step);
}

absl::StatusOr<int> CheckpointFolder::OpenTemporary(int64_t step) const {
  const std::string temporary = TemporaryName(step);
  const int folder = Retry([&] { return openat(fd_, temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) return Failed(temporary + " cannot be opened");
  return folder;
}

absl::Status CheckpointFolder::WriteList(const CheckpointContent& content, const std::vector<std::string>& written) {
  const std::string name = CheckpointName(content.step);
  ASSIGN_OR_RETURN(const int folder, OpenTemporary(content.step));
  absl::Status status = Annotate(WriteManifest(folder, content, written), StrCat(path_, "/", name, ": "));
  if (status.ok() && Retry([&] { return fsync(folder); }) != 0 && errno != EINVAL)
    status = Failed(name + " cannot be synced to disk");
  close(folder);
  return status;
}

// Replaces an older checkpoint of the same step atomically where the file system can exchange names.
absl::Status CheckpointFolder::MoveIntoPlace(const std::string& temporary, const std::string& name) {
  if (renameat2(fd_, temporary.c_str(), fd_, name.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code ignored;
    fs::remove_all(handle() + "/" + temporary, ignored);
    return absl::OkStatus();
  }
  // Falls back to a plain rename, since some file systems cannot exchange names.
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

// Renames the checkpoint before deleting its files, so that no reader sees an incomplete one.
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
