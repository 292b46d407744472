#include "optim/plan/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/recover/updated_weight.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

// The rank that most updates have.
int64_t CommonRank(const std::vector<LowRankUpdate>& updates) {
  std::map<int64_t, int> counts;
  for (const LowRankUpdate& update : updates) ++counts[update.whole_rank()];
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

double Alpha(const TrainConfig& config, const LowRankUpdate& update) {
  return update.scale * AlphaDivisor(config.lora_variant == "rslora", update.whole_rank());
}

constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight",
                           kMagnitude = ".lora_magnitude_vector";

// The scales in adapter_config.json.
struct PeftScales {
  double alpha = 0;
  bool root = false;
  double dropout = 0;
  std::map<std::string, double> alphas;  // by module, or the end of its name

  double Of(const std::string& module, int64_t rank) const {
    double found = alpha;
    for (const auto& [name, value] : alphas) {
      if (module == name || module.ends_with("." + name)) found = value;
    }
    return found / AlphaDivisor(root, rank);
  }
};

absl::StatusOr<PeftScales> ReadScales(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, int64_t{16} << 20));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Invalid(path, ": is no JSON object");
  if (json.value("peft_type", Json()) != "LORA") return Invalid(path, ": peft_type is not LORA");
  const auto is_set = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && !found->is_null() && *found != false && *found != "none" && !found->empty();
  };
  for (const char* key : {"bias", "modules_to_save"}) {
    if (is_set(key)) return Invalid(path, ": ", key, " is not supported");
  }
  PeftScales scales;
  const auto alpha = json.find("lora_alpha");
  if (alpha == json.end() || !alpha->is_number()) return Invalid(path, ": lora_alpha is no number");
  scales.alpha = alpha->get<double>();
  scales.root = is_set("use_rslora");
  if (const auto dropout = json.find("lora_dropout"); dropout != json.end() && !dropout->is_null()) {
    if (!dropout->is_number()) return Invalid(path, ": lora_dropout is no number");
    scales.dropout = dropout->get<double>();
    if (!(scales.dropout >= 0 && scales.dropout < 1))
      return Invalid(path, ": lora_dropout ", scales.dropout, " is outside [0, 1)");
  }
  if (is_set("alpha_pattern")) {
    for (const auto& [name, value] : json["alpha_pattern"].items()) {
      if (!value.is_number()) return Invalid(path, ": alpha_pattern of '", Printable(name), "' is no number");
      scales.alphas[name] = value.get<double>();
    }
  }
  return scales;
}

absl::Status CheckFinite(const std::string& name, const HostTensor& value) {
  for (int64_t i = 0; i < value.size(); ++i) {
    if (!std::isfinite(value.At(i))) return Invalid("'", Printable(name), "': element ", i, " is not finite");
  }
  return absl::OkStatus();
}

// The tensors of a module by the ends of their names.
struct TensorKind {
  std::string_view end;
  HostTensor PeftModule::*tensor;
};
constexpr TensorKind kTensorKinds[] = {{kA, &PeftModule::a},
                                       {kB, &PeftModule::b},
                                       {kMagnitude, &PeftModule::magnitude},
                                       {".lora_magnitude_vector.weight", &PeftModule::magnitude}};

// Puts a tensor of the file into its module.
absl::Status TakeTensor(std::string name, HostTensor value, std::map<std::string, PeftModule>* modules) {
  if (!IsFloat(value.dtype()) || value.shape().empty())
    return Invalid("'", Printable(name), "' is ", ToString(value.type()), ", not a matrix of floats");
  RETURN_IF_ERROR(CheckFinite(name, value));
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  const auto* kind =
      std::ranges::find_if(kTensorKinds, [&](const TensorKind& known) { return name.ends_with(known.end); });
  if (kind == std::end(kTensorKinds))
    return Invalid("'", Printable(name), "' is neither lora_A nor lora_B nor lora_magnitude_vector of a module");
  name.resize(name.size() - kind->end.size());
  (*modules)[name].*kind->tensor = std::move(value);
  return absl::OkStatus();
}

bool FitTogether(const PeftModule& module) {
  const Shape &a = module.a.shape(), &b = module.b.shape();
  return a.size() >= 2 && b.size() >= 2 && a[0] == b[1] && a[0] > 0;
}

// "classifier" of "classifier.weight".
std::string ModuleOf(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

// A and B of the whole updates, magnitudes, and weights of a new head, without the prefix.
std::vector<std::pair<std::string, HostTensor>> ListFileTensors(const ModelEdits& edits,
                                                                const std::map<std::string, HostTensor>& weights) {
  std::vector<std::pair<std::string, HostTensor>> tensors;
  for (const LowRankUpdate& update : edits.low_rank) {
    const auto [a, b] = WholeFactors(update, weights);
    tensors.emplace_back(update.a_name(), a);
    tensors.emplace_back(update.b_name(), b);
    if (update.has_magnitude())
      tensors.emplace_back(StrCat(update.module, kMagnitude), weights.at(update.magnitude_name()));
  }
  for (const std::string& name : edits.fresh) tensors.emplace_back(name, weights.at(name));
  return tensors;
}

std::string MakePeftConfig(const TrainConfig& config, const ModelEdits& edits) {
  const std::vector<LowRankUpdate>& updates = edits.low_rank;
  const int64_t common = CommonRank(updates);
  std::set<std::string> whole;
  for (const std::string& weight : edits.fresh) whole.insert(ModuleOf(weight));
  double alpha = 0;
  std::set<std::string> modules;
  Json ranks = Json::object(), alphas = Json::object();
  for (const LowRankUpdate& update : updates) {
    modules.insert(update.module);
    if (update.whole_rank() == common) alpha = Alpha(config, update);
  }
  for (const LowRankUpdate& update : updates) {
    if (update.whole_rank() != common) ranks[update.module] = update.whole_rank();
    if (Alpha(config, update) != alpha) alphas[update.module] = Alpha(config, update);
  }
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", nullptr},
                     {"base_model_name_or_path", config.model},
                     {"r", common},
                     {"lora_alpha", alpha},
                     {"lora_dropout", updates[0].dropout},
                     {"target_modules", modules},
                     {"rank_pattern", ranks},
                     {"alpha_pattern", alphas},
                     {"use_rslora", config.lora_variant == "rslora"},
                     {"use_dora", updates[0].has_magnitude()},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"init_lora_weights", true},
                     {"modules_to_save", whole.empty() ? Json() : Json(whole)},
                     {"inference_mode", true}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

double AlphaDivisor(bool rank_stabilized, int64_t rank) {
  return rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
}

absl::Status WritePeftAdapter(const std::string& folder, const TrainConfig& config, const ModelEdits& edits,
                              const std::map<std::string, HostTensor>& weights) {
  std::vector<NamedType> types;
  std::string bytes;
  for (const auto& [name, value] : ListFileTensors(edits, weights)) {
    types.push_back({StrCat(kPrefix, name), value.type()});
    const auto raw = value.bytes();
    bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Invalid(folder, ": ", error.message());
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types, {{"format", "pt"}}));
  RETURN_IF_ERROR(WriteTextFile(folder + "/adapter_config.json", MakePeftConfig(config, edits)));
  return WriteTextFile(folder + "/adapter_model.safetensors", header + bytes);
}

absl::StatusOr<std::vector<PeftModule>> ReadPeftAdapter(const std::string& folder) {
  ASSIGN_OR_RETURN(const PeftScales scales, ReadScales(folder + "/adapter_config.json"));
  const std::string file = folder + "/adapter_model.safetensors";
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadSafetensors(file));
  std::map<std::string, PeftModule> modules;
  for (auto& [name, value] : arrays)
    RETURN_IF_ERROR(Annotate(TakeTensor(name, std::move(value), &modules), file + ": "));
  if (modules.empty()) return Invalid(file, ": holds no adapter");
  std::vector<PeftModule> result;
  for (auto& [name, module] : modules) {
    if (!FitTogether(module))
      return Invalid(file, ": lora_A and lora_B of '", Printable(name), "' do not fit together");
    module.module = name;
    module.scale = scales.Of(name, module.a.shape()[0]);
    module.dropout = scales.dropout;
    result.push_back(std::move(module));
  }
  return result;
}

}  // namespace onnxtrain
