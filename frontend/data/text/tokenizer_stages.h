// Normalizers, pre-tokenizers and post-processors as tokenizer.json describes them: one table of kinds for each.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

using Json = nlohmann::json;

// What the model must know of the stages before it.
struct StageFacts {
  bool byte_level = false;  // tokens spell bytes
};

// `json` is the object of the stage; null results for an empty one. Unknown kinds are errors that name them.
absl::StatusOr<NormalizerPtr> ReadNormalizer(const Json& json);
absl::StatusOr<PreTokenizerPtr> ReadPreTokenizer(const Json& json, StageFacts* facts);
// Sets the templates of *parts.
absl::Status ReadPostProcessor(const Json& json, TokenizerParts* parts);

}  // namespace onnxtrain
