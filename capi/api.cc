// The table of functions: looks up handles, checks pointers, converts statuses.
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "capi/onnxtrain.h"
#include "capi/status.h"
#include "capi/tensors.h"
#include "capi/trainer.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/version.h"
#include "frontend/onnx/import.h"
#include "frontend/plugin/operators.h"

namespace onnxtrain::capi {
namespace {

// Maps a handle type to its object type and its name in messages.
template <typename Handle>
struct Kind;
template <>
struct Kind<OnnxtrainModel> {
  using Object = const OnnxModel;
  static constexpr const char* kName = "model";
};
template <>
struct Kind<OnnxtrainTrainer> {
  using Object = Trainer;
  static constexpr const char* kName = "trainer";
};
template <>
struct Kind<OnnxtrainTensors> {
  using Object = const TensorList;
  static constexpr const char* kName = "tensors";
};
template <>
struct Kind<OnnxtrainBytes> {
  using Object = const std::string;
};

template <typename Handle>
HandleTable<typename Kind<Handle>::Object>& Table() {
  static auto* table = new HandleTable<typename Kind<Handle>::Object>;  // never destroyed, as a thread may still work
  return *table;
}

template <typename Handle>
std::shared_ptr<typename Kind<Handle>::Object> TryFind(const Handle* handle) {
  return Table<Handle>().Find(reinterpret_cast<uintptr_t>(handle));
}

template <typename Handle>
absl::StatusOr<std::shared_ptr<typename Kind<Handle>::Object>> Find(const Handle* handle) {
  if (handle == nullptr) return Invalid("the ", Kind<Handle>::kName, " is null");
  auto object = TryFind(handle);
  if (object == nullptr) return Invalid("the handle is of no ", Kind<Handle>::kName, ", or was released");
  return object;
}

template <typename Handle>
void Store(std::shared_ptr<typename Kind<Handle>::Object> object, Handle** out) {
  *out = reinterpret_cast<Handle*>(Table<Handle>().Add(std::move(object)));
}

template <typename Handle>
void ReleaseHandle(Handle* handle) noexcept {
  Table<Handle>().Remove(reinterpret_cast<uintptr_t>(handle));
}

template <typename T>
absl::Status CheckPointer(const T* pointer, const char* what) {
  return pointer == nullptr ? Invalid(what, " is null") : absl::OkStatus();
}

// Checks an output parameter and sets it to null.
template <typename Handle>
absl::Status CheckOut(Handle** out) {
  RETURN_IF_ERROR(CheckPointer(out, "out"));
  *out = nullptr;
  return absl::OkStatus();
}

// Calls work(trainer) unless another call works on the trainer.
template <typename Work>
absl::Status WithTrainer(OnnxtrainTrainer* handle, const Work& work) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Trainer> trainer, Find(handle));
  return trainer->Run([&] { return work(*trainer); });
}

const char* GetVersion() { return kVersion; }

OnnxtrainStatus* LoadModelFromFile(const char* path, OnnxtrainModel** out) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOut(out));
    RETURN_IF_ERROR(CheckPointer(path, "path"));
    ASSIGN_OR_RETURN(auto model, OnnxModel::Load(path));
    Store(std::move(model), out);
    return absl::OkStatus();
  });
}

OnnxtrainStatus* LoadModelFromBytes(const void* bytes, uint64_t size, const char* name, OnnxtrainModel** out) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOut(out));
    RETURN_IF_ERROR(CheckPointer(bytes, "bytes"));
    const std::span all(static_cast<const std::byte*>(bytes), size);
    ASSIGN_OR_RETURN(auto model, OnnxModel::LoadBytes(all, name == nullptr ? "model" : name));
    Store(std::move(model), out);
    return absl::OkStatus();
  });
}

OnnxtrainStatus* CreateTrainer(const OnnxtrainModel* model, const char* config, const OnnxtrainTensor* samples,
                               uint64_t sample_count, OnnxtrainTrainer** out) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOut(out));
    ASSIGN_OR_RETURN(const std::shared_ptr<const OnnxModel> found, Find(model));
    std::vector<std::string> inputs;
    for (const ModelInput& input : found->inputs()) inputs.push_back(input.name);
    ASSIGN_OR_RETURN(const CallerSample sample, ReadSample(samples, sample_count, inputs));
    ASSIGN_OR_RETURN(auto trainer, Trainer::Create(found, config, sample));
    Store(std::move(trainer), out);
    return absl::OkStatus();
  });
}

OnnxtrainStatus* GetBatchTensorCount(OnnxtrainTrainer* trainer, uint64_t* count) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(count, "count"));
    ASSIGN_OR_RETURN(const auto found, Find(trainer));
    *count = found->tensors().size();
    return absl::OkStatus();
  });
}

OnnxtrainStatus* GetBatchTensor(OnnxtrainTrainer* trainer, uint64_t index, OnnxtrainTensor* sample) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(sample, "sample"));
    ASSIGN_OR_RETURN(const auto found, Find(trainer));
    const auto& tensors = found->tensors();
    if (index >= tensors.size()) return Invalid("there is no tensor ", index, ", only ", tensors.size());
    *sample = Describe(tensors[index].name, tensors[index].sample);
    return absl::OkStatus();
  });
}

OnnxtrainStatus* TrainStep(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                           OnnxtrainStepResult* result) {
  return Guard([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    return WithTrainer(trainer, [&](Trainer& t) { return t.Step(views, result); });
  });
}

OnnxtrainStatus* Accumulate(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count) {
  return Guard([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    return WithTrainer(trainer, [&](Trainer& t) { return t.Accumulate(views); });
  });
}

OnnxtrainStatus* Apply(OnnxtrainTrainer* trainer, OnnxtrainStepResult* result) {
  return Guard([&] { return WithTrainer(trainer, [&](Trainer& t) { return t.Apply(result); }); });
}

OnnxtrainStatus* Evaluate(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                          OnnxtrainEvaluation* result) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(result, "result"));
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(*result, t.Evaluate(views));
      return absl::OkStatus();
    });
  });
}

// Stores the tensors that get(trainer) returns.
template <typename Get>
OnnxtrainStatus* StoreTensors(OnnxtrainTrainer* trainer, OnnxtrainTensors** out, const Get& get) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOut(out));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(auto tensors, get(t));
      Store<OnnxtrainTensors>(std::make_shared<const TensorList>(std::move(tensors)), out);
      return absl::OkStatus();
    });
  });
}

using TensorMap = absl::StatusOr<std::map<std::string, HostTensor>>;

OnnxtrainStatus* Predict(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                         OnnxtrainTensors** out) {
  return StoreTensors(trainer, out, [&](Trainer& t) -> TensorMap {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    return t.Predict(views);
  });
}

OnnxtrainStatus* GetGradients(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count, double* loss,
                              OnnxtrainTensors** out) {
  return StoreTensors(trainer, out, [&](Trainer& t) -> TensorMap {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    ASSIGN_OR_RETURN(GradientResult result, t.GetGradients(views, GradientsOf::kWeights));
    if (loss != nullptr) *loss = result.loss;
    return std::move(result.gradients);
  });
}

OnnxtrainStatus* GetInputGradients(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                   double* loss, OnnxtrainTensors** out) {
  return StoreTensors(trainer, out, [&](Trainer& t) -> TensorMap {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(batch, count));
    ASSIGN_OR_RETURN(GradientResult result, t.GetGradients(views, GradientsOf::kWeightsAndInputs));
    if (loss != nullptr) *loss = result.loss;
    return std::move(result.input_gradients);
  });
}

OnnxtrainStatus* GetParameters(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensors** out) {
  return StoreTensors(trainer, out, [&](Trainer& t) { return t.GetParameters(name); });
}

uint64_t GetTensorCount(const OnnxtrainTensors* tensors) {
  const auto found = TryFind(tensors);
  return found == nullptr ? 0 : found->size();
}

OnnxtrainStatus* GetTensor(const OnnxtrainTensors* tensors, uint64_t index, OnnxtrainTensor* tensor) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(tensor, "tensor"));
    ASSIGN_OR_RETURN(const auto found, Find(tensors));
    ASSIGN_OR_RETURN(*tensor, found->At(index));
    return absl::OkStatus();
  });
}

OnnxtrainStatus* FindTensor(const OnnxtrainTensors* tensors, const char* name, OnnxtrainTensor* tensor) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(name, "name"));
    RETURN_IF_ERROR(CheckPointer(tensor, "tensor"));
    ASSIGN_OR_RETURN(const auto found, Find(tensors));
    ASSIGN_OR_RETURN(*tensor, found->Find(name));
    return absl::OkStatus();
  });
}

OnnxtrainStatus* SetParameters(OnnxtrainTrainer* trainer, const OnnxtrainTensor* parameters, uint64_t count) {
  return Guard([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto views, ViewTensors(parameters, count));
    return WithTrainer(trainer, [&](Trainer& t) { return t.SetParameters(views); });
  });
}

OnnxtrainStatus* GetLearningRate(OnnxtrainTrainer* trainer, double* rate) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(rate, "rate"));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(*rate, t.GetLearningRate());
      return absl::OkStatus();
    });
  });
}

OnnxtrainStatus* SetLearningRate(OnnxtrainTrainer* trainer, double rate) {
  return Guard([&] { return WithTrainer(trainer, [&](Trainer& t) { return t.SetLearningRate(rate); }); });
}

OnnxtrainStatus* ExportToFile(OnnxtrainTrainer* trainer, const char* path) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(path, "path"));
    return WithTrainer(trainer, [&](Trainer& t) { return t.ExportToFile(path); });
  });
}

// Stores the bytes that get(trainer) returns.
template <typename Get>
OnnxtrainStatus* StoreBytes(OnnxtrainTrainer* trainer, OnnxtrainBytes** out, const Get& get) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOut(out));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(std::string bytes, get(t));
      Store<OnnxtrainBytes>(std::make_shared<const std::string>(std::move(bytes)), out);
      return absl::OkStatus();
    });
  });
}

OnnxtrainStatus* ExportToBytes(OnnxtrainTrainer* trainer, OnnxtrainBytes** out) {
  return StoreBytes(trainer, out, [](Trainer& t) { return t.ExportToBytes(); });
}

OnnxtrainStatus* SaveStateToBytes(OnnxtrainTrainer* trainer, OnnxtrainBytes** out) {
  return StoreBytes(trainer, out, [](Trainer& t) { return t.SaveState(); });
}

OnnxtrainStatus* SaveStateToFile(OnnxtrainTrainer* trainer, const char* path) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(path, "path"));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(const std::string bytes, t.SaveState());
      return WriteTextFile(path, bytes);
    });
  });
}

OnnxtrainStatus* LoadStateFromBytes(OnnxtrainTrainer* trainer, const void* bytes, uint64_t size) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(bytes, "bytes"));
    return WithTrainer(trainer, [&](Trainer& t) { return t.LoadState({static_cast<const char*>(bytes), size}); });
  });
}

OnnxtrainStatus* LoadStateFromFile(OnnxtrainTrainer* trainer, const char* path) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(path, "path"));
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
      return absl::NotFoundError(std::string(path) + ": there is no such file");
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, std::numeric_limits<int64_t>::max()));
      return Annotate(t.LoadState(bytes), std::string(path) + ": ");
    });
  });
}

const void* GetBytesData(const OnnxtrainBytes* bytes) {
  const auto found = TryFind(bytes);
  return found == nullptr ? nullptr : found->data();
}

uint64_t GetBytesSize(const OnnxtrainBytes* bytes) {
  const auto found = TryFind(bytes);
  return found == nullptr ? 0 : found->size();
}

OnnxtrainStatus* Cancel(OnnxtrainTrainer* trainer) {
  return Guard([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto found, Find(trainer));
    found->Cancel();
    return absl::OkStatus();
  });
}

OnnxtrainStatus* ClearCancel(OnnxtrainTrainer* trainer) {
  return Guard([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto found, Find(trainer));
    found->ClearCancel();
    return absl::OkStatus();
  });
}

OnnxtrainStatus* ViewParameter(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensor* view) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(name, "name"));
    RETURN_IF_ERROR(CheckPointer(view, "view"));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      ASSIGN_OR_RETURN(*view, t.ViewParameter(name));
      return absl::OkStatus();
    });
  });
}

absl::Status CheckCallbacks(const OnnxtrainCallbacks* callbacks) {
  RETURN_IF_ERROR(CheckPointer(callbacks, "callbacks"));
  return callbacks->next_batch == nullptr ? Invalid("the callback next_batch is null") : absl::OkStatus();
}

OnnxtrainStatus* Fit(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks, uint64_t max_steps,
                     OnnxtrainStepResult* result) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckCallbacks(callbacks));
    return WithTrainer(trainer, [&](Trainer& t) { return t.Fit(*callbacks, max_steps, result); });
  });
}

OnnxtrainStatus* EvaluateAll(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks,
                             OnnxtrainEvaluation* result, double* metric) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckCallbacks(callbacks));
    if (metric != nullptr && callbacks->metric == nullptr) return Invalid("the callback metric is null");
    return WithTrainer(trainer, [&](Trainer& t) { return t.EvaluateAll(*callbacks, result, metric); });
  });
}

OnnxtrainStatus* LoadPluginLibrary(const char* path) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(path, "path"));
    return LoadPlugin(path);
  });
}

OnnxtrainStatus* GetStepCount(OnnxtrainTrainer* trainer, int64_t* steps) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(steps, "steps"));
    return WithTrainer(trainer, [&](Trainer& t) -> absl::Status {
      *steps = t.CountSteps();
      return absl::OkStatus();
    });
  });
}

OnnxtrainStatus* RecordEvaluation(OnnxtrainTrainer* trainer, const OnnxtrainEvaluation* evaluation) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckPointer(evaluation, "evaluation"));
    return WithTrainer(trainer, [&](Trainer& t) { return t.RecordEvaluation(*evaluation); });
  });
}

OnnxtrainStatus* FinishRun(OnnxtrainTrainer* trainer, OnnxtrainBytes** summary) {
  if (summary != nullptr) return StoreBytes(trainer, summary, [](Trainer& t) { return t.FinishRun(); });
  return Guard([&] { return WithTrainer(trainer, [&](Trainer& t) { return t.FinishRun().status(); }); });
}

constexpr OnnxtrainApi kApi = {
    .version = ONNXTRAIN_API_VERSION,
    .reserved = 0,
    .GetVersion = GetVersion,
    .GetStatusCode = GetCode,
    .GetStatusMessage = GetMessage,
    .ReleaseStatus = Release,
    .LoadModelFromFile = LoadModelFromFile,
    .LoadModelFromBytes = LoadModelFromBytes,
    .ReleaseModel = ReleaseHandle<OnnxtrainModel>,
    .CreateTrainer = CreateTrainer,
    .ReleaseTrainer = ReleaseHandle<OnnxtrainTrainer>,
    .GetBatchTensorCount = GetBatchTensorCount,
    .GetBatchTensor = GetBatchTensor,
    .TrainStep = TrainStep,
    .Accumulate = Accumulate,
    .Apply = Apply,
    .GetGradients = GetGradients,
    .GetInputGradients = GetInputGradients,
    .Evaluate = Evaluate,
    .Predict = Predict,
    .GetTensorCount = GetTensorCount,
    .GetTensor = GetTensor,
    .FindTensor = FindTensor,
    .ReleaseTensors = ReleaseHandle<OnnxtrainTensors>,
    .GetParameters = GetParameters,
    .SetParameters = SetParameters,
    .GetLearningRate = GetLearningRate,
    .SetLearningRate = SetLearningRate,
    .SaveStateToFile = SaveStateToFile,
    .SaveStateToBytes = SaveStateToBytes,
    .LoadStateFromFile = LoadStateFromFile,
    .LoadStateFromBytes = LoadStateFromBytes,
    .ExportToFile = ExportToFile,
    .ExportToBytes = ExportToBytes,
    .GetBytesData = GetBytesData,
    .GetBytesSize = GetBytesSize,
    .ReleaseBytes = ReleaseHandle<OnnxtrainBytes>,
    .Cancel = Cancel,
    .ClearCancel = ClearCancel,
    .ViewParameter = ViewParameter,
    .Fit = Fit,
    .EvaluateAll = EvaluateAll,
    .LoadPlugin = LoadPluginLibrary,
    .GetStepCount = GetStepCount,
    .RecordEvaluation = RecordEvaluation,
    .FinishRun = FinishRun,
};

}  // namespace
}  // namespace onnxtrain::capi

extern "C" const OnnxtrainApi* OnnxtrainGetApi(uint32_t version) {
  return version >= 1 && version <= ONNXTRAIN_API_VERSION ? &onnxtrain::capi::kApi : nullptr;
}
