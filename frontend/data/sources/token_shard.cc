#include "frontend/data/sources/token_shard.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "frontend/base/files.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/tar.h"

namespace onnxtrain {
namespace {

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;
namespace fs = std::filesystem;

constexpr int64_t kMaxInfoBytes = 1 << 20;
const char* DTypeName(DType dtype) { return dtype == DType::kUInt32 ? "uint32" : "uint16"; }

std::string InfoPath(const std::string& shard) { return shard + ".json"; }

// Returns the files of a pattern or folder, in order.
absl::StatusOr<std::vector<std::string>> ListShards(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return ExpandShards(path);
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  std::erase_if(names, [](const std::string& name) { return !HasSuffix(name, {".bin"}, false); });
  for (std::string& name : names) name = (fs::path(path) / name).string();
  if (names.empty()) return Invalid(path, ": the folder holds no .bin file");
  return names;
}

absl::StatusOr<std::optional<ShardInfo>> ReadInfo(const std::string& shard) {
  const std::string path = InfoPath(shard);
  if (!IsRegularFile(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxInfoBytes));
  auto info = ParseShardInfo(text);
  if (!info.ok()) return Annotate(info.status(), path + ": ");
  return *std::move(info);
}

// The offset and type of the tokens in a file.
struct ShardLayout {
  DType dtype = DType::kUInt16;
  int64_t offset = 0;
};

// Parses the header of llm.c's data files: 256 numbers, the first three being magic, version and number of tokens.
std::optional<ShardLayout> FindHeader(const RandomFile& file) {
  constexpr int64_t kBytes = 1024;
  std::array<int32_t, 3> header{};
  if (file.size() < kBytes || !file.ReadAt(0, std::as_writable_bytes(std::span(header))).ok()) return std::nullopt;
  const auto holds = [&](int32_t magic, int32_t version, DType dtype) {
    const auto width = static_cast<int64_t>(DTypeSize(dtype));
    return header[0] == magic && header[1] == version && file.size() == kBytes + header[2] * width;
  };
  if (holds(20240520, 1, DType::kUInt16)) return ShardLayout{DType::kUInt16, kBytes};
  if (holds(20240801, 7, DType::kUInt32)) return ShardLayout{DType::kUInt32, kBytes};
  return std::nullopt;
}

// A view that adds the bounds stated in the information file.
class BoundedTokens : public DatasetView {
 public:
  BoundedTokens(std::shared_ptr<const Dataset> tokens, int64_t max_id, std::string note)
      : DatasetView(std::move(tokens)), columns_(source_->columns()), note_(std::move(note)) {
    if (max_id >= 0) columns_[0].bounds = {0, max_id};
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::vector<std::string> notes() const override {
    return note_.empty() ? std::vector<std::string>() : std::vector{note_};
  }
  absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const override {
    return source_->ReadRange(first, count, c, out);
  }

 private:
  std::vector<Column> columns_;
  std::string note_;
};

// Shards concatenated to one sequence.
class JoinedTokens : public Dataset {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<const Dataset>> shards)
      : shards_(std::move(shards)), columns_(shards_[0]->columns()) {
    for (const auto& shard : shards_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard->size());
      const auto &bounds = shard->columns()[0].bounds, &all = columns_[0].bounds;
      columns_[0].bounds = bounds && all
                               ? std::optional(std::pair<int64_t, int64_t>(0, std::max(bounds->second, all->second)))
                               : std::nullopt;
    }
  }
  int64_t size() const override { return ends_.back(); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::vector<std::string> notes() const override { return shards_[0]->notes(); }
  std::string Describe(int64_t i) const override {
    const size_t shard = Find(i);
    return shards_[shard]->Describe(i - Begin(shard));
  }
  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    return ReadRange(i, 1, c, out);
  }
  absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const override {
    const size_t width = columns_[c].sample.bytes();
    while (count > 0) {
      const size_t shard = Find(first);
      const int64_t part = std::min(count, ends_[shard] - first);
      RETURN_IF_ERROR(shards_[shard]->ReadRange(first - Begin(shard), part, c, out.first(part * width)));
      out = out.subspan(part * width);
      first += part;
      count -= part;
    }
    return absl::OkStatus();
  }

 private:
  size_t Find(int64_t i) const { return std::ranges::upper_bound(ends_, i) - ends_.begin(); }
  int64_t Begin(size_t shard) const { return shard == 0 ? 0 : ends_[shard - 1]; }

  std::vector<std::shared_ptr<const Dataset>> shards_;
  std::vector<Column> columns_;
  std::vector<int64_t> ends_;
};

Opened OpenShard(const std::string& path, std::optional<DType> given) {
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  ASSIGN_OR_RETURN(const std::optional<ShardInfo> info, ReadInfo(path));
  ShardLayout layout;
  std::string note;
  if (given.has_value()) {
    layout.dtype = *given;
  } else if (info.has_value()) {
    layout.dtype = info->dtype;
  } else if (const auto header = FindHeader(*file)) {
    layout = *header;
  } else {
    note = StrCat("no ", InfoPath(path), ": 16-bit tokens are assumed (u32:", path, " reads 32 bits)");
  }
  const auto width = static_cast<int64_t>(DTypeSize(layout.dtype));
  const int64_t tokens = (file->size() - layout.offset) / width;
  if (tokens * width != file->size() - layout.offset)
    return Invalid(path, ": ", file->size() - layout.offset, " bytes are no whole number of ", DTypeName(layout.dtype),
                   " tokens");
  if (info.has_value() && !given.has_value() && info->tokens != tokens)
    return Invalid(path, ": holds ", tokens, " tokens, but ", InfoPath(path), " says ", info->tokens);
  auto dataset =
      MakeFileDataset(path, file, {{.name = "tokens", .type = {layout.dtype, {tokens}}, .offset = layout.offset}});
  if (!dataset.ok()) return Annotate(dataset.status(), path + ": ");
  return std::make_shared<BoundedTokens>(*std::move(dataset), info.has_value() ? info->max_id : -1, std::move(note));
}

Opened OpenAll(const std::string& path, std::optional<DType> given) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListShards(path));
  std::vector<std::shared_ptr<const Dataset>> shards;
  for (const std::string& shard : paths) {
    ASSIGN_OR_RETURN(shards.emplace_back(), OpenShard(shard, given));
    const Type &type = shards.back()->columns()[0].sample, &first = shards[0]->columns()[0].sample;
    if (type != first)
      return Invalid(shard, ": tokens are ", DTypeName(type.dtype), ", but ", DTypeName(first.dtype), " in ", paths[0]);
  }
  if (shards.size() == 1) return shards[0];
  return std::make_shared<JoinedTokens>(std::move(shards));
}

}  // namespace

std::string ToJson(const ShardInfo& info) {
  OrderedJson json = {{"format", "token shard"},       {"dtype", DTypeName(info.dtype)}, {"tokens", info.tokens},
                      {"vocabulary", info.vocabulary}, {"max_id", info.max_id},          {"documents", info.documents},
                      {"bytes", info.bytes},           {"tokenizer", info.tokenizer},    {"sha256", info.sha256}};
  json["end_of_text"] = info.end_of_text ? OrderedJson(*info.end_of_text) : OrderedJson();
  return WriteJson(json, 2) + "\n";
}

absl::StatusOr<ShardInfo> ParseShardInfo(const std::string& text) {
  ASSIGN_OR_RETURN(const OrderedJson json, ParseJsonObject(text));
  ShardInfo info{.max_id = -1};
  std::string dtype;
  int64_t end = -1;
  RETURN_IF_ERROR(ReadField(json, "dtype", &dtype));
  RETURN_IF_ERROR(ReadField(json, "tokens", &info.tokens));
  RETURN_IF_ERROR(ReadField(json, "vocabulary", &info.vocabulary));
  RETURN_IF_ERROR(ReadField(json, "max_id", &info.max_id));
  RETURN_IF_ERROR(ReadField(json, "end_of_text", &end));
  RETURN_IF_ERROR(ReadField(json, "documents", &info.documents));
  RETURN_IF_ERROR(ReadField(json, "bytes", &info.bytes));
  RETURN_IF_ERROR(ReadField(json, "tokenizer", &info.tokenizer));
  RETURN_IF_ERROR(ReadField(json, "sha256", &info.sha256));
  if (dtype != "uint16" && dtype != "uint32") return Invalid("'dtype' is neither uint16 nor uint32");
  if (info.max_id < 0 || info.max_id >= info.vocabulary || info.bytes < 0)
    return Invalid("'max_id', 'vocabulary' and 'bytes' contradict each other");
  info.dtype = dtype == "uint16" ? DType::kUInt16 : DType::kUInt32;
  if (end >= 0) info.end_of_text = end;
  return info;
}

absl::StatusOr<std::optional<ShardInfo>> ReadShardInfo(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListShards(path));
  std::optional<ShardInfo> all;
  for (const std::string& shard : paths) {
    ASSIGN_OR_RETURN(const std::optional<ShardInfo> info, ReadInfo(shard));
    if (!info.has_value()) return std::nullopt;
    if (all.has_value() && (all->sha256 != info->sha256 || all->vocabulary != info->vocabulary))
      return Invalid(shard, ": was written with another tokenizer than ", paths[0]);
    const ShardInfo before = all.value_or(ShardInfo());
    all = info;
    all->max_id = std::max(before.max_id, info->max_id);
    all->tokens += before.tokens;
    all->bytes += before.bytes;
    all->documents += before.documents;
  }
  return all;
}

bool IsShardFolder(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  const auto names = ListFolder(path);
  const auto is = [](const char* suffix) {
    return [=](const std::string& n) { return HasSuffix(n, {suffix}, false); };
  };
  return names.ok() && std::ranges::any_of(*names, is(".bin")) &&
         std::ranges::all_of(*names, [&](const std::string& n) { return is(".bin")(n) || is(".json")(n); });
}

Opened OpenShards(const std::string& path, const DatasetOptions&) { return OpenAll(path, std::nullopt); }
Opened OpenShards16(const std::string& path, const DatasetOptions&) { return OpenAll(path, DType::kUInt16); }
Opened OpenShards32(const std::string& path, const DatasetOptions&) { return OpenAll(path, DType::kUInt32); }

}  // namespace onnxtrain
