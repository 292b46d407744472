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
#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/json_reader.h"
#include "frontend/data/json_writer.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kModelFile[] = "model.safetensors", kOptimizerFile[] = "optimizer.safetensors";
constexpr char kStateFile[] = "state.json", kManifestFile[] = "MANIFEST.json";
constexpr std::string_view kTemporary = ".tmp-", kPrefix = "step-";
constexpr int kFormat = 1;
constexpr int64_t kMaxStateBytes = int64_t{64} << 20;
constexpr size_t kChunk = size_t{4} << 20;

// Calls again what a signal has interrupted.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A file of a checkpoint while it is written: counts and hashes its bytes.
class FileWriter {
 public:
  static absl::StatusOr<FileWriter> Create(int folder, const std::string& name) {
    const auto create = [&] { return openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); };
    FileWriter writer(name, Retry(create));
    if (writer.fd_ < 0) return writer.Failed("cannot be created");
    return writer;
  }
  FileWriter(FileWriter&& other) noexcept
      : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_), hash_(other.hash_) {}
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter() {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(std::span<const std::byte> bytes) {
    hash_.Update(bytes);
    size_ += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
      const ssize_t n = Retry([&] { return write(fd_, bytes.data(), bytes.size()); });
      if (n < 0) return Failed("cannot be written");
      bytes = bytes.subspan(n);
    }
    return absl::OkStatus();
  }
  absl::Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text.data(), text.size()))); }

  absl::Status Finish() {
    if (Retry([&] { return fsync(fd_); }) != 0) return Failed("cannot be synced to disk");
    return close(std::exchange(fd_, -1)) == 0 ? absl::OkStatus() : Failed("cannot be closed");
  }
  Json ManifestEntry() { return {{"bytes", size_}, {"sha256", hash_.Hex()}}; }

 private:
  FileWriter(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  absl::Status Failed(std::string_view what) const {
    return absl::UnavailableError(StrCat(name_, " ", what, ": ", std::strerror(errno)));
  }

  std::string name_;
  int fd_;
  int64_t size_ = 0;
  Sha256 hash_;
};

absl::Status AppendTensors(const std::vector<TensorSource>& tensors, std::span<std::byte> chunk, FileWriter* file) {
  std::vector<NamedType> types;
  for (const TensorSource& t : tensors) types.push_back({t.name, t.type});
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types, {{"format", "onnxtrain"}}));
  RETURN_IF_ERROR(file->Append(header));
  for (const TensorSource& t : tensors) {
    for (size_t begin = 0; begin < t.type.bytes(); begin += chunk.size()) {
      const std::span<std::byte> part = chunk.first(std::min(chunk.size(), t.type.bytes() - begin));
      RETURN_IF_ERROR(t.read(begin, part));
      RETURN_IF_ERROR(file->Append(part));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteTensors(int folder, const char* name, const std::vector<TensorSource>& tensors,
                          std::span<std::byte> chunk, Json* files) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(folder, name));
  RETURN_IF_ERROR(AppendTensors(tensors, chunk, &file));
  RETURN_IF_ERROR(file.Finish());
  (*files)[name] = file.ManifestEntry();
  return absl::OkStatus();
}

absl::Status WriteText(int folder, const char* name, std::string_view text, Json* files) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(folder, name));
  RETURN_IF_ERROR(file.Append(text));
  RETURN_IF_ERROR(file.Finish());
  (*files)[name] = file.ManifestEntry();
  return absl::OkStatus();
}

std::string ManifestText(const Json& content) {
  const std::string text = WriteJson(content);
  const Json manifest = {{"content", content},
                         {"sha256", Sha256Hex(std::as_bytes(std::span(text.data(), text.size())))}};
  return WriteJson(manifest, 2) + "\n";
}

absl::Status WriteFiles(int folder, const CheckpointContent& content, std::span<std::byte> chunk) {
  Json files = Json::object(), none = Json::object();
  RETURN_IF_ERROR(WriteTensors(folder, kModelFile, content.model, chunk, &files));
  RETURN_IF_ERROR(WriteTensors(folder, kOptimizerFile, content.optimizer, chunk, &files));
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
  Sha256 hash;
  std::vector<std::byte> chunk(kChunk);
  while (const size_t n = fread(chunk.data(), 1, chunk.size(), file.get())) hash.Update(std::span(chunk).first(n));
  return entry.value("sha256", "") == hash.Hex() ? absl::OkStatus() : Invalid(path, ": is damaged");
}

absl::Status CheckFile(const std::string& folder, const Json& manifest, const char* name) {
  const Json& files = manifest["files"];
  if (!files.is_object() || !files.contains(name)) return Invalid(folder, ": its manifest does not list ", name);
  return CheckAgainst(files[name], StrCat(folder, "/", name));
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
  int64_t total = 0;
  for (const auto* tensors : {&model, &optimizer}) {
    for (const TensorSource& t : *tensors) total += static_cast<int64_t>(t.type.bytes());
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

absl::Status CheckpointFolder::RemoveLeftovers() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
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
  RETURN_IF_ERROR(CheckRoom(content.bytes() + static_cast<int64_t>(content.state.size())));
  const std::string name = CheckpointName(content.step), temporary = StrCat(kTemporary, name);
  std::error_code ignored;
  chunk_.resize(kChunk);
  fs::remove_all(path_ + "/" + temporary, ignored);
  if (mkdirat(fd_, temporary.c_str(), 0755) != 0) return Failed(temporary + " cannot be created");
  const int folder = Retry([&] { return openat(fd_, temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) return Failed(temporary + " cannot be opened");
  absl::Status written = Annotate(WriteFiles(folder, content, chunk_), StrCat(path_, "/", name, ": "));
  if (written.ok() && Retry([&] { return fsync(folder); }) != 0 && errno != EINVAL)
    written = Failed(name + " cannot be synced to disk");
  close(folder);
  if (!written.ok()) {
    fs::remove_all(path_ + "/" + temporary, ignored);
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
    fs::remove_all(path_ + "/" + temporary, ignored);
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
  fs::remove_all(path_ + "/" + temporary, ignored);
  if (renameat(fd_, name.c_str(), fd_, temporary.c_str()) != 0)
    return errno == ENOENT ? absl::OkStatus() : Failed(name + " cannot be removed");
  std::error_code error;
  fs::remove_all(path_ + "/" + temporary, error);
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
  for (const char* name : {kStateFile, kModelFile, kOptimizerFile}) RETURN_IF_ERROR(CheckFile(path, manifest, name));
  ASSIGN_OR_RETURN(stored.state, ReadTextFile(StrCat(path, "/", kStateFile), kMaxStateBytes));
  return stored;
}

absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint) {
  return ReadSafetensors(StrCat(checkpoint.path, "/", kModelFile));
}

absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint) {
  return ReadSafetensors(StrCat(checkpoint.path, "/", kOptimizerFile));
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
