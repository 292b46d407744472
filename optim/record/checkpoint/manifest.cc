#include "optim/record/checkpoint/manifest.h"

#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/data/sources/json_writer.h"
#include "optim/record/checkpoint/crc64.h"

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

// It must be the one text that its content has.
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

}  // namespace onnxtrain
