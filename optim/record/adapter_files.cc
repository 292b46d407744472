#include "optim/record/adapter_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_split.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/ort_adapter.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/onnx/write/export.h"
#include "frontend/onnx/write/lazy_tensor.h"
#include "optim/plan/peft_adapter.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kGenaiConfig[] = "genai_config.json";
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

HostTensor Scaled(const HostTensor& matrix, double scale) {
  HostTensor scaled = matrix.Clone();
  for (int64_t i = 0; i < scaled.size(); ++i) scaled.Set(i, scale * matrix.At(i));
  return scaled;
}

// Returns the names of weights other than those of updates.
std::vector<std::string> ListWhole(const AdapterFiles& files) {
  std::set<std::string> factors;
  for (const LowRankUpdate& update : files.model.edits().low_rank) {
    for (const auto& [name, initial] : update.Trained()) factors.insert(name);
  }
  std::vector<std::string> whole;
  for (const auto& [name, value] : files.weights) {
    if (!factors.contains(name)) whole.push_back(name);
  }
  return whole;
}

// Returns the values of the base's optional inputs: Aᵀ, scale·Bᵀ and whole weights, in the element types of the file.
std::map<std::string, HostTensor> MakeInputs(const AdapterFiles& files) {
  std::map<std::string, HostTensor> inputs;
  for (const LowRankUpdate& update : files.model.edits().low_rank) {
    const DType dtype = update.a.dtype();
    const auto [a, b] = WholeFactors(update, files.weights);
    inputs[update.a_name()] = Transpose(a).Whole().CastTo(dtype);
    inputs[update.b_name()] = Transpose(Scaled(b, update.scale)).Whole().CastTo(dtype);
  }
  for (const std::string& name : ListWhole(files)) {
    const HostTensor* stored = files.model.Initializer(name);
    const HostTensor& value = files.weights.at(name);
    inputs[name] = stored == nullptr ? value : value.CastTo(stored->dtype());
  }
  return inputs;
}

// Reads the genai_config.json beside the model if the model is its decoder; else returns null.
absl::StatusOr<Json> ReadGenaiConfig(const std::string& model) {
  const fs::path path = fs::path(model).parent_path() / kGenaiConfig;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path.string(), kMaxConfigBytes));
  Json config = Json::parse(text, nullptr, false);
  const auto decoder = Json::json_pointer("/model/decoder/filename");
  if (!config.is_object() || !config.contains(decoder) || !config[decoder].is_string())
    return Invalid(path.string(), ": has no model.decoder.filename");
  if (config[decoder] != fs::path(model).filename().string()) return Json();
  config[decoder] = kAdapterInputsFile;
  return config;
}

// Copies the files of the model's folder other than the model itself: the tokenizer, other models.
absl::Status CopyNeighbors(const std::string& model, const fs::path& target) {
  const std::vector<std::string> own = ListModelFiles(model);
  std::error_code error;
  const fs::path folder = fs::path(model).parent_path();
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (!entry.is_regular_file(error) || entry.path().filename() == kGenaiConfig) continue;
    const auto same = [&](const std::string& file) { return fs::equivalent(file, entry.path(), error); };
    if (std::ranges::any_of(own, same)) continue;
    fs::copy_file(entry.path(), target / entry.path().filename(), fs::copy_options::overwrite_existing, error);
    if (error) return Invalid((target / entry.path().filename()).string(), ": ", error.message());
  }
  return absl::OkStatus();
}

absl::Status WriteGenai(const AdapterFiles& files, const Json& config, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Invalid(folder.string(), ": ", error.message());
  RETURN_IF_ERROR(CopyNeighbors(files.model.path(), folder));
  RETURN_IF_ERROR(ExportAdapterInputs(files.model, ListWhole(files), (folder / kAdapterInputsFile).string()));
  RETURN_IF_ERROR(WriteOrtAdapter((folder / kOrtAdapterFile).string(), MakeInputs(files)));
  return WriteTextFile((folder / kGenaiConfig).string(), config.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

bool WritesAdapterAs(const TrainConfig& config, std::string_view form, std::string_view otherwise) {
  if (!config.adapter_out.empty()) return std::ranges::find(config.adapter_out, form) != config.adapter_out.end();
  const std::vector<std::string> forms = absl::StrSplit(ToAbsl(otherwise), ',');
  return std::ranges::find(forms, form) != forms.end();
}

absl::Status CheckAdapterFiles(const AdapterFiles& files, const AdapterPaths& paths) {
  if (!files.onnx) return absl::OkStatus();
  for (const LowRankUpdate& update : files.model.edits().low_rank) {
    const bool conv = update.a.shape().size() > 2;
    if (conv || update.experts > 0 || update.has_magnitude())
      return Invalid("`adapter_out` onnx: '", Printable(update.module), "' ",
                     conv                 ? "is a convolution"
                     : update.experts > 0 ? "is a stack of experts"
                                          : "has magnitudes (DoRA)",
                     "; inputs of a model are adapters of matrix products alone");
  }
  RETURN_IF_ERROR(ReadGenaiConfig(files.model.path()).status());
  return Annotate(CheckAdapterInputs(files.model, ListWhole(files), paths.base), "`adapter_out` onnx: ");
}

absl::StatusOr<std::vector<std::string>> WriteAdapterFiles(const AdapterFiles& files, const AdapterPaths& paths) {
  std::vector<std::string> written;
  if (files.peft) {
    RETURN_IF_ERROR(WritePeftAdapter(paths.peft, files.config, files.model, files.weights));
    written.push_back(paths.peft);
  }
  if (!files.onnx) return written;
  RETURN_IF_ERROR(WriteOrtAdapter(paths.adapter, MakeInputs(files)));
  written.push_back(paths.adapter);
  ASSIGN_OR_RETURN(const Json genai, ReadGenaiConfig(files.model.path()));
  if (genai.is_null()) {
    RETURN_IF_ERROR(ExportAdapterInputs(files.model, ListWhole(files), paths.base));
  } else {
    RETURN_IF_ERROR(WriteGenai(files, genai, paths.genai));
  }
  written.push_back(genai.is_null() ? paths.base : paths.genai);
  return written;
}

}  // namespace onnxtrain
