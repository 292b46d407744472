// Token shards: files of consecutive token ids of 16 or 32 bits, little endian.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// The information that `onnxtrain tokenize` writes next to a shard, as "shard.bin.json".
struct ShardInfo {
  DType dtype = DType::kUInt16;  // kUInt16 or kUInt32
  int64_t tokens = 0;
  int64_t vocabulary = 0;              // number of ids of the tokenizer
  int64_t max_id = 0;                  // maximum of the tokens
  std::optional<int64_t> end_of_text;  // token after each document
  int64_t documents = 0, bytes = 0;    // size of the text that was tokenized
  std::string tokenizer, sha256;       // path, and digest of the files, of the tokenizer

  bool operator==(const ShardInfo&) const = default;
};

std::string ToJson(const ShardInfo& info);
// Ignores unknown keys.
absl::StatusOr<ShardInfo> ParseShardInfo(const std::string& json);
// Reads the information files of the shards at `path` and sums them; nullopt if one is missing. Fails on shards of
// different tokenizers.
absl::StatusOr<std::optional<ShardInfo>> ReadShardInfo(const std::string& path);

// Returns true for a folder of .bin files and optional .json files.
bool IsShardFolder(const std::string& path);

// Opens a shard, several ("s-{000..099}.bin") or a folder of them as a column "tokens" of single integers. The element
// type is that in "FILE.json", else in the header of llm.c's files, else 16 bits. Tokens are read on demand: a
// truncated shard is an error then.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards(const std::string& path, const DatasetOptions& options);
// Like OpenShards, with a fixed type, for files without information.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards16(const std::string& path, const DatasetOptions& options);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards32(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
