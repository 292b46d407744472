#include "optim/record/checkpoint/checkpoint_folder.h"

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "optim/record/checkpoint/file_writer.h"
#include "optim/step/state.h"

namespace onnxtrain {

using Json = nlohmann::ordered_json;

std::string TensorFileName(std::string_view tensors, int rank, int ranks) {
  return ranks == 1 ? StrCat(tensors, ".safetensors") : StrCat(tensors, ".rank-", rank, "-of-", ranks, ".safetensors");
}

std::string ManifestText(const Json& content) {
  const std::string text = WriteJson(content);
  const Json manifest = {{"content", content}, {"crc64", Crc64Text(ExtendCrc64(0, AsBytes(text)))}};
  return WriteJson(manifest, 2) + "\n";
}

// Compares the file with the text that ManifestText generates from its content, so that any changed byte is found.
absl::StatusOr<Json> ReadManifest(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxStateBytes));
  const Json manifest = ParseJson<Json>(text);
  if (!manifest.is_object() || !manifest.contains("content") || ManifestText(manifest["content"]) != text)
    return Invalid(path, ": is damaged");
  const Json& content = manifest["content"];
  const Json format = content.is_object() ? content.value("format", Json()) : Json();
  if (format == kWholeFormat || format == kPartsFormat) return content;
  return Invalid(path, ": has format ", WriteJson(format), ", this program reads formats ", kWholeFormat, " and ",
                 kPartsFormat);
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kChunk = size_t{1} << 20;
constexpr int kMaxRanks = 1 << 20;

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

// Returns the name by which the manifest lists a file: `name`, or `name` with the suffix of compressed files.
absl::StatusOr<std::string> ListedName(const std::string& folder, const Json& manifest, const std::string& name) {
  const Json& files = manifest["files"];
  for (const std::string& listed : {name, name + kCompressedSuffix}) {
    if (files.is_object() && files.contains(listed)) return listed;
  }
  return Invalid(folder, ": its manifest does not list ", name);
}

absl::StatusOr<StoredFile> CheckFile(const std::string& folder, const Json& manifest, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string listed, ListedName(folder, manifest, name));
  const Json& entry = manifest["files"][listed];
  StoredFile file{.path = StrCat(folder, "/", listed),
                  .unpacked_bytes = entry.value(listed == name ? "bytes" : "unpacked_bytes", int64_t{-1})};
  RETURN_IF_ERROR(CheckAgainst(entry, file.path));
  return file;
}

absl::Status VisitFile(const StoredFile& stored, const ArrayVisitor& visit) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(stored.path));
  return Annotate(VisitSafetensors(file.reader(), stored.unpacked_bytes, visit), stored.path + ": ");
}

absl::StatusOr<NamedArrays> ReadFile(const StoredFile& stored) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(stored.path));
  auto arrays = ReadSafetensors(file.reader(), stored.unpacked_bytes);
  if (!arrays.ok()) return Annotate(arrays.status(), stored.path + ": ");
  return arrays;
}

absl::StatusOr<NamedType> ParseTensor(const Json& json) {
  const auto type = ParseDType(json.at("type").get<std::string>());
  if (!type) return Invalid("a tensor has no known type");
  NamedType tensor{json.at("name").get<std::string>(), {*type, json.at("shape").get<Shape>()}};
  RETURN_IF_ERROR(CheckShape(tensor.type.shape));
  return tensor;
}

// Lists the whole tensors of a checkpoint that ranks wrote in parts.
absl::Status ListWhole(const Json& tensors, StoredCheckpoint* stored) {
  for (const Json& json : tensors) {
    ASSIGN_OR_RETURN(NamedType tensor, ParseTensor(json));
    (json.at("of_model").get<bool>() ? stored->model : stored->optimizer).whole.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const Json& manifest, StoredCheckpoint* stored) {
  const bool parts = manifest.value("format", 0) == kPartsFormat;
  const int ranks = parts ? manifest.value("ranks", 0) : 1;
  if (ranks < 1 || ranks > kMaxRanks) return Invalid(stored->path, ": its manifest names no number of ranks");
  if (parts) RETURN_IF_ERROR(Annotate(ListWhole(manifest.value("tensors", Json()), stored), stored->path + ": "));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& [tensors, name] :
         {std::pair(&stored->model, kModelTensors), {&stored->optimizer, kOptimizerTensors}}) {
      ASSIGN_OR_RETURN(tensors->files.emplace_back(),
                       CheckFile(stored->path, manifest, TensorFileName(name, rank, parts ? ranks : 1)));
    }
  }
  return absl::OkStatus();
}

// Assembles whole tensors from the parts of all ranks.
class Assembly {
 public:
  explicit Assembly(const std::vector<NamedType>& tensors) {
    for (const auto& [name, type] : tensors) {
      places_.emplace(name, whole_.size());
      whole_.emplace_back(name, HostTensor(type));
      missing_.push_back(type.elements());
    }
  }

  absl::Status Add(const std::string& name, const HostTensor& values) {
    ASSIGN_OR_RETURN(const StatePart part, ParsePartName(name));
    const auto place = places_.find(part.tensor);
    if (place == places_.end()) return Invalid("'", Printable(name), "' is a part of no tensor");
    missing_[place->second] -= values.size();
    return Annotate(PutRuns(values, part.runs, &whole_[place->second].second), StrCat("'", Printable(name), "' "));
  }

  absl::StatusOr<NamedArrays> Finish() {
    const auto incomplete = std::ranges::find_if(missing_, [](int64_t missing) { return missing != 0; });
    if (incomplete == missing_.end()) return std::move(whole_);
    return Invalid("its parts do not make up tensor '", Printable(whole_[incomplete - missing_.begin()].first), "'");
  }

 private:
  NamedArrays whole_;
  std::map<std::string, size_t> places_;
  std::vector<int64_t> missing_;  // elements not added yet, by index of whole_
};

// Fails if the tensors are larger than their files, before memory is allocated for them.
absl::Status CheckSizes(const StoredTensors& stored) {
  int64_t held = 0, declared = 0;
  for (const StoredFile& file : stored.files) held += file.unpacked_bytes;
  for (const auto& [name, type] : stored.whole) declared += static_cast<int64_t>(type.bytes());
  return declared <= held ? absl::OkStatus() : Invalid("its files are smaller than its tensors");
}

absl::StatusOr<NamedArrays> ReadTensors(const std::string& path, const StoredTensors& stored) {
  if (stored.whole.empty() && stored.files.size() == 1) return ReadFile(stored.files[0]);
  RETURN_IF_ERROR(Annotate(CheckSizes(stored), path + ": "));
  Assembly assembly(stored.whole);
  for (const StoredFile& file : stored.files) {
    ASSIGN_OR_RETURN(const NamedArrays parts, ReadFile(file));
    for (const auto& [name, values] : parts) RETURN_IF_ERROR(Annotate(assembly.Add(name, values), file.path + ": "));
  }
  auto whole = assembly.Finish();
  if (!whole.ok()) return Annotate(whole.status(), path + ": ");
  return whole;
}

absl::StatusOr<StoredCheckpoint> OpenListed(const std::string& path, const Json& manifest) {
  StoredCheckpoint stored{.path = path, .step = manifest.value("step", int64_t{-1})};
  ASSIGN_OR_RETURN(const StoredFile state, CheckFile(path, manifest, kStateFile));
  RETURN_IF_ERROR(CheckFiles(manifest, &stored));
  ASSIGN_OR_RETURN(stored.state, ReadTextFile(state.path, kMaxStateBytes));
  return stored;
}

}  // namespace

absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path) {
  const std::string file = StrCat(path, "/", kManifestFile);
  ASSIGN_OR_RETURN(const Json manifest, ReadManifest(file));
  try {
    return OpenListed(path, manifest);
  } catch (const Json::exception&) {
    return Invalid(file, ": a member is missing or has another type");
  }
}

absl::StatusOr<NamedArrays> ReadModelTensors(const StoredCheckpoint& checkpoint) {
  return ReadTensors(checkpoint.path, checkpoint.model);
}

absl::Status VisitTensors(const StoredCheckpoint& checkpoint, const ArrayVisitor& visit) {
  for (const StoredTensors* stored : {&checkpoint.model, &checkpoint.optimizer}) {
    if (stored->whole.empty() && stored->files.size() == 1) {
      RETURN_IF_ERROR(VisitFile(stored->files[0], visit));
      continue;
    }
    ASSIGN_OR_RETURN(NamedArrays assembled, ReadTensors(checkpoint.path, *stored));
    for (auto& [name, value] : assembled) RETURN_IF_ERROR(visit(name, std::exchange(value, HostTensor())));
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedArrays> ReadOptimizerTensors(const StoredCheckpoint& checkpoint) {
  return ReadTensors(checkpoint.path, checkpoint.optimizer);
}

}  // namespace onnxtrain
