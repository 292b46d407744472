#include "optim/plan/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/safetensors.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/interop/ort_adapter.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "frontend/onnx/write/lazy_tensor.h"

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

// The settings of adapter_config.json that the tensors depend on.
struct PeftConfig {
  double alpha = 0, dropout = 0;
  bool root = false;
  std::map<std::string, double> alphas;  // by module, or the end of its name
  bool inputs_first = false;             // fan_in_fan_out
  std::vector<std::string> parameters;   // target_parameters

  double ScaleOf(const std::string& module, int64_t rank) const {
    double found = alpha;
    for (const auto& [name, value] : alphas) {
      if (module == name || module.ends_with("." + name)) found = value;
    }
    return found / AlphaDivisor(root, rank);
  }
};

absl::StatusOr<PeftConfig> ReadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, int64_t{16} << 20));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Invalid(path, ": is no JSON object");
  if (json.value("peft_type", Json()) != "LORA") return Invalid(path, ": peft_type is not LORA");
  const auto is_set = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && !found->is_null() && *found != false && *found != "none" && !found->empty();
  };
  if (is_set("lora_bias")) return Invalid(path, ": lora_bias is not supported");
  PeftConfig config;
  const auto alpha = json.find("lora_alpha");
  if (alpha == json.end() || !alpha->is_number()) return Invalid(path, ": lora_alpha is no number");
  config.alpha = alpha->get<double>();
  config.root = is_set("use_rslora");
  if (const auto dropout = json.find("lora_dropout"); dropout != json.end() && !dropout->is_null()) {
    if (!dropout->is_number()) return Invalid(path, ": lora_dropout is no number");
    config.dropout = dropout->get<double>();
  }
  if (!(config.dropout >= 0 && config.dropout < 1))
    return Invalid(path, ": lora_dropout ", config.dropout, " is outside [0, 1)");
  config.inputs_first = is_set("fan_in_fan_out");
  for (const Json& name : is_set("target_parameters") ? json["target_parameters"] : Json::array()) {
    if (!name.is_string()) return Invalid(path, ": target_parameters is no list of names");
    config.parameters.push_back(name.get<std::string>());
  }
  if (is_set("alpha_pattern")) {
    for (const auto& [name, value] : json["alpha_pattern"].items()) {
      if (!value.is_number()) return Invalid(path, ": alpha_pattern of '", Printable(name), "' is no number");
      config.alphas[name] = value.get<double>();
    }
  }
  return config;
}

absl::Status CheckFinite(const std::string& name, const HostTensor& value) {
  for (int64_t i = 0; i < value.size(); ++i) {
    if (!std::isfinite(value.At(i))) return Invalid("'", Printable(name), "': element ", i, " is not finite");
  }
  return absl::OkStatus();
}

void Remove(std::string_view part, std::string* name) {
  if (const size_t at = name->find(part); at != std::string::npos) name->erase(at, part.size());
}

constexpr std::string_view kWrapped = ".base_layer";

// Removes what PEFT's wrappers add to the name of a tensor, with the name of the adapter that old versions keep.
// Factors keep the wrappers inside of which they are.
std::string UnwrappedName(std::string name) {
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  for (const char* part : {".modules_to_save.default", ".modules_to_save"}) Remove(part, &name);
  if (name.find(".lora_") == std::string::npos) Remove(kWrapped, &name);
  for (const char* matrix : {".lora_A", ".lora_B"}) {
    if (name.ends_with(StrCat(matrix, ".default.weight"))) Remove(".default", &name);
  }
  for (const char* end : {".default.weight", ".weight"}) {
    if (name.ends_with(StrCat(kMagnitude, end))) name.erase(name.rfind(end));
  }
  return name;
}

// The tensors of a module by the ends of their names, and the least axes that they have.
struct TensorKind {
  std::string_view end;
  HostTensor AdapterModule::*tensor;
  size_t axes;
};
constexpr TensorKind kTensorKinds[] = {
    {kA, &AdapterModule::a, 2}, {kB, &AdapterModule::b, 2}, {kMagnitude, &AdapterModule::magnitude, 1}};

// Puts a tensor of the file into its module, or among the whole weights.
absl::Status TakeTensor(const std::string& stored, HostTensor value, std::map<std::string, AdapterModule>* modules,
                        std::map<std::string, HostTensor>* whole) {
  if (stored.find(".original_module.") != std::string::npos) return absl::OkStatus();  // of the model, not trained
  const std::string name = UnwrappedName(stored);
  if (!IsFloat(value.dtype())) return Invalid("'", Printable(stored), "' is ", ToString(value.type()), ", not floats");
  RETURN_IF_ERROR(CheckFinite(stored, value));
  const auto* kind =
      std::ranges::find_if(kTensorKinds, [&](const TensorKind& known) { return name.ends_with(known.end); });
  if (kind == std::end(kTensorKinds)) {
    if (name.find("lora_") != std::string::npos)
      return Invalid("'", Printable(stored), "' is neither lora_A nor lora_B nor lora_magnitude_vector of a product");
    return whole->emplace(name, std::move(value)), absl::OkStatus();
  }
  if (value.shape().size() < kind->axes)
    return Invalid("'", Printable(stored), "' is ", ToString(value.type()), ", not a matrix");
  (*modules)[name.substr(0, name.size() - kind->end.size())].*kind->tensor = std::move(value);
  return absl::OkStatus();
}

absl::Status CheckModule(const std::string& name, const AdapterModule& module) {
  for (const auto& [matrix, key] : {std::pair(&module.a, "lora_A"), {&module.b, "lora_B"}}) {
    if (matrix->shape().empty()) return Invalid("'", Printable(name), "' has no ", key);
  }
  if (module.a.shape()[0] == module.b.shape()[1] && module.a.shape()[0] > 0) return absl::OkStatus();
  return Invalid("lora_A ", ToString(module.a.shape()), " and lora_B ", ToString(module.b.shape()), " of '",
                 Printable(name), "' do not fit together");
}

absl::Status TakeModules(std::map<std::string, AdapterModule>* modules, AdapterContent* content) {
  if (modules->empty()) return Invalid("holds no adapter");
  for (auto& [name, module] : *modules) {
    RETURN_IF_ERROR(CheckModule(name, module));
    for (module.module = name; module.module.ends_with(kWrapped); ++module.depth)
      module.module.resize(module.module.size() - kWrapped.size());
    content->modules.push_back(std::move(module));
  }
  return absl::OkStatus();
}

struct PeftFiles {
  std::string config, tensors;
};

PeftFiles LocateFiles(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.ends_with(".safetensors")) return {(fs::path(path).parent_path() / "adapter_config.json").string(), path};
  std::error_code ignored;
  const bool in_run =
      !fs::exists(path + "/adapter_config.json", ignored) && fs::exists(path + "/adapter/adapter_config.json", ignored);
  const std::string folder = in_run ? path + "/adapter" : path;
  return {folder + "/adapter_config.json", folder + "/adapter_model.safetensors"};
}

// "classifier" of "classifier.weight".
std::string ModuleOf(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

// A trained weight other than A and B, under its name in a PEFT model.
struct WholeTensor {
  std::string name;
  HostTensor value;
};

// Names the weights by modules, with the matrices of products as [outputs, inputs].
std::vector<WholeTensor> ListWhole(const OnnxModel& model, const std::map<std::string, HostTensor>& weights) {
  std::set<std::string> low_rank;
  for (const LowRankUpdate& update : model.edits().low_rank) {
    for (const auto& [name, initial] : update.Trained()) low_rank.insert(name);
  }
  std::vector<WholeTensor> whole;
  std::set<std::string> listed;
  for (const ModuleWeight& weight : ListModuleWeights(model, ListLowRankTargets(model))) {
    const auto value = weights.find(weight.weight);
    if (value == weights.end() || low_rank.contains(weight.weight)) continue;
    listed.insert(weight.weight);
    whole.push_back({weight.name, weight.transposed ? Transpose(value->second).Whole() : value->second});
  }
  for (const auto& [name, value] : weights) {  // of Constant nodes and attributes
    if (!low_rank.contains(name) && !listed.contains(name)) whole.push_back({name, value});
  }
  return whole;
}

// The entries of adapter_config.json for whole weights: biases that are trained without their weights are `bias` all,
// any others modules_to_save.
struct WholeModules {
  std::set<std::string> modules;
  bool biases = false;
};

WholeModules SortWhole(const std::vector<LowRankUpdate>& updates, std::vector<WholeTensor>* whole) {
  std::set<std::string> adapted;
  for (const LowRankUpdate& update : updates) adapted.insert(update.module);
  WholeModules sorted;
  for (const WholeTensor& tensor : *whole) {
    if (!tensor.name.ends_with(".bias")) sorted.modules.insert(ModuleOf(tensor.name));
  }
  for (WholeTensor& tensor : *whole) {
    const std::string module = ModuleOf(tensor.name);
    if (sorted.modules.contains(module)) continue;
    sorted.biases = true;
    if (adapted.contains(module)) tensor.name = module + ".base_layer.bias";
  }
  return sorted;
}

// Returns the module that holds the factors of the i-th update. PEFT wraps a module once for each of its parameters,
// the last one outermost.
std::string WrapperOf(const std::vector<LowRankUpdate>& updates, size_t i) {
  if (updates[i].experts == 0) return updates[i].module;
  std::string wrapper = ModuleOf(updates[i].module);
  for (size_t later = i + 1; later < updates.size(); ++later) {
    if (updates[later].experts > 0 && ModuleOf(updates[later].module) == ModuleOf(updates[i].module))
      wrapper += kWrapped;
  }
  return wrapper;
}

std::string MakePeftConfig(const TrainConfig& config, const std::vector<LowRankUpdate>& updates,
                           const WholeModules& whole) {
  const int64_t common = CommonRank(updates);
  double alpha = 0;
  std::set<std::string> modules, parameters;
  Json ranks = Json::object(), alphas = Json::object();
  for (const LowRankUpdate& update : updates) {
    update.of_parameter ? parameters.insert(update.parameter()) : modules.insert(update.module);
    if (update.whole_rank() == common) alpha = Alpha(config, update);
  }
  for (const LowRankUpdate& update : updates) {
    const std::string name = update.of_parameter ? update.parameter() : update.module;
    if (update.whole_rank() != common) ranks[name] = update.whole_rank();
    if (Alpha(config, update) != alpha) alphas[name] = Alpha(config, update);
  }
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", nullptr},
                     {"base_model_name_or_path", config.model},
                     {"r", common},
                     {"lora_alpha", alpha},
                     {"lora_dropout", updates[0].dropout},
                     {"target_modules", modules.empty() ? Json() : Json(modules)},
                     {"target_parameters", parameters.empty() ? Json() : Json(parameters)},
                     {"rank_pattern", ranks},
                     {"alpha_pattern", alphas},
                     {"use_rslora", config.lora_variant == "rslora"},
                     {"use_dora", updates[0].has_magnitude()},
                     {"bias", whole.biases ? "all" : "none"},
                     {"fan_in_fan_out", false},
                     {"init_lora_weights", true},
                     {"modules_to_save", whole.modules.empty() ? Json() : Json(whole.modules)},
                     {"inference_mode", true}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

double AlphaDivisor(bool rank_stabilized, int64_t rank) {
  return rank_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
}

absl::Status WritePeftAdapter(const std::string& folder, const TrainConfig& config, const OnnxModel& model,
                              const std::map<std::string, HostTensor>& weights) {
  const std::vector<LowRankUpdate>& updates = model.edits().low_rank;
  std::vector<WholeTensor> whole = ListWhole(model, weights), tensors;
  const WholeModules modules = SortWhole(updates, &whole);
  for (size_t i = 0; i < updates.size(); ++i) {
    const LowRankUpdate& update = updates[i];
    const auto [a, b] = WholeFactors(update, weights);
    const std::string wrapper = WrapperOf(updates, i);
    tensors.push_back({StrCat(wrapper, kA), a});
    tensors.push_back({StrCat(wrapper, kB), b});
    if (!update.has_magnitude()) continue;
    const auto magnitude = weights.find(update.magnitude_name());
    tensors.push_back(
        {StrCat(update.module, kMagnitude), magnitude == weights.end() ? update.magnitude : magnitude->second});
  }
  std::ranges::move(whole, std::back_inserter(tensors));
  std::vector<NamedType> types;
  std::string bytes;
  for (const WholeTensor& tensor : tensors) {
    types.push_back({StrCat(kPrefix, tensor.name), tensor.value.type()});
    const auto raw = tensor.value.bytes();
    bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Invalid(folder, ": ", error.message());
  ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(types, {{"format", "pt"}}));
  RETURN_IF_ERROR(WriteTextFile(folder + "/adapter_config.json", MakePeftConfig(config, updates, modules)));
  return WriteTextFile(folder + "/adapter_model.safetensors", header + bytes);
}

absl::StatusOr<AdapterContent> ReadPeftAdapter(const std::string& path) {
  const PeftFiles files = LocateFiles(path);
  ASSIGN_OR_RETURN(const PeftConfig config, ReadConfig(files.config));
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadSafetensors(files.tensors));
  AdapterContent content{
      .inputs_first = config.inputs_first,
      .dropout = config.dropout,
      .parameters = config.parameters,
      .scale = [config](const std::string& name, int64_t rank) { return config.ScaleOf(name, rank); }};
  std::map<std::string, AdapterModule> modules;
  for (auto& [name, value] : arrays)
    RETURN_IF_ERROR(Annotate(TakeTensor(name, std::move(value), &modules, &content.whole), files.tensors + ": "));
  RETURN_IF_ERROR(Annotate(TakeModules(&modules, &content), files.tensors + ": "));
  return content;
}

absl::StatusOr<AdapterContent> ReadOrtAdapterContent(const std::string& path) {
  ASSIGN_OR_RETURN(auto tensors, ReadOrtAdapter(path));
  AdapterContent content{.inputs_first = true,
                         .scale = [](const std::string&, int64_t) { return 1.0; }};  // B has it already
  std::map<std::string, AdapterModule> modules;
  for (auto& [name, value] : tensors) {
    const bool factor = (name.ends_with(kA) || name.ends_with(kB)) && value.shape().size() == 2;
    HostTensor stored = factor ? Transpose(value).Whole() : std::move(value);
    RETURN_IF_ERROR(Annotate(TakeTensor(name, std::move(stored), &modules, &content.whole), path + ": "));
  }
  RETURN_IF_ERROR(Annotate(TakeModules(&modules, &content), path + ": "));
  return content;
}

}  // namespace onnxtrain
