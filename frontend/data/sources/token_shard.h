// Token shards: files of token ids of 16 or 32 bits, little endian, one behind the other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// What `onnxtrain tokenize` writes beside a shard, as "shard.bin.json".
struct ShardInfo {
  DType dtype = DType::kUInt16;  // or u32
  int64_t tokens = 0;
  int64_t vocabulary = 0;              // ids of the tokenizer
  int64_t max_id = 0;                  // of the tokens
  std::optional<int64_t> end_of_text;  // the token behind each document
  int64_t documents = 0, bytes = 0;    // of the text that was tokenized
  std::string tokenizer, sha256;       // path and digest of the tokenizer's files

  bool operator==(const ShardInfo&) const = default;
};

std::string ToJson(const ShardInfo& info);
// Fails with what is wrong; unknown keys are ignored.
absl::StatusOr<ShardInfo> ParseShardInfo(const std::string& json);
// The information beside the shard, summed over the shards that `path` names; nullopt where one of them has none.
// Fails on shards of different tokenizers.
absl::StatusOr<std::optional<ShardInfo>> ReadShardInfo(const std::string& path);

// Whether the path is a folder of .bin files, with .json files or none beside them.
bool IsShardFolder(const std::string& path);

// A shard, several ("s-{000..099}.bin") or a folder of them: one column "tokens" of single integers. The element type
// is that of "FILE.json" beside it, else of the header of llm.c's files, else 16 bits. Tokens are read when they are
// needed: a shard that became shorter is an error then.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards(const std::string& path, const DatasetOptions& options);
// The same with a given type, for files that say nothing about it.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards16(const std::string& path, const DatasetOptions& options);
absl::StatusOr<std::shared_ptr<const Dataset>> OpenShards32(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
