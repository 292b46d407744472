#include "capi/config.h"

#include "frontend/base/status.h"

namespace onnxtrain::capi {
namespace {

struct Refusal {
  const char* field;
  const char* why;
};

constexpr const char* kNoFolder = "the library writes no folder of a run";
constexpr const char* kNoCheckpoints = "the program saves checkpoints itself";
constexpr const char* kOneProcess = "a trainer is no rank of several";
constexpr const char* kNoConsole = "the library prints nothing";

constexpr Refusal kRefusals[] = {
    {"model", "the model is a handle"},
    {"tie", "the model has been loaded"},
    {"plugin", "LoadPlugin loads it before the model"},
    {"data", "the program hands over batches"},
    {"out", kNoFolder},
    {"overwrite", kNoFolder},
    {"profile", kNoFolder},
    {"profile_steps", kNoFolder},
    {"histogram_every", kNoFolder},
    {"dump_order", kNoFolder},
    {"resume", kNoCheckpoints},
    {"resume_force", kNoCheckpoints},
    {"save_every", kNoCheckpoints},
    {"keep_last", kNoCheckpoints},
    {"keep_best", kNoCheckpoints},
    {"checkpoint_compression", kNoCheckpoints},
    {"quiet", kNoConsole},
    {"json", kNoConsole},
    {"require", "the program judges results itself"},
    {"verify_passes", "it counts for the whole process"},
    {"comm_interface", kOneProcess},
    {"comm_timeout", kOneProcess},
};

}  // namespace

absl::StatusOr<TrainConfig> ReadConfig(const char* json) {
  if (json == nullptr) return TrainConfig();
  auto config = FromJson(json);
  if (!config.ok()) return Annotate(config.status(), "configuration: ");
  for (const std::string& name : config->specified) {
    if ((FindField(name)->tasks & kTaskTrain) == 0)
      return Invalid("configuration: `", name, "`: configures no training");
  }
  for (const Refusal& refusal : kRefusals) {
    if (IsSpecified(*config, refusal.field))
      return Invalid("configuration: `", refusal.field, "`: has no effect: ", refusal.why);
  }
  if (config->export_weights == "best")
    return Invalid("configuration: `export_weights` best: the library keeps no checkpoint of the best weights");
  return config;
}

}  // namespace onnxtrain::capi
