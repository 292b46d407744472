// The configuration of a run, as plain values: parsed once, validated in one place, passed down by value.
//
//   TrainConfig config;
//   config.model = "x.onnx";
//   config.data = "train.npz";
//   config.epochs = 5;
//   auto run = PrepareTraining(config);  // optim/plan/training_run.h
//
// One table (ConfigFields) describes every field: parsing, limits, printing, JSON, flag files and the help of the
// command line are generated from it. The flag of a field has its name, with dashes.
//
// Messages of the library put names of fields in backquotes: "`batch_size` 10 is not a multiple of …". The command line
// replaces them by flags (tools/onnxtrain/flags).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/units.h"

namespace onnxtrain {

// The help of each field is in ConfigFields(). A default that stands for "not specified" is explained here.
struct TrainConfig {
  static constexpr int64_t kAuto = -1;

  // Model.
  std::string model, out;
  bool overwrite = false;
  std::string weights;
  std::string export_weights = "auto";
  std::string checkpoint, init_from;
  std::string gradient_graph, training_graph;
  bool input_gradients = false, training_info = false;
  std::string loss;    // "": that of preprocess.json beside the model, else auto
  std::string logits;  // "": found
  std::vector<std::string> train, freeze, reinit, tie;
  int64_t num_classes = 0;  // 0: the last layer stays
  std::string head;         // "": none is appended
  std::string batch_axis = "auto";
  std::string batch_norm = "train";
  double dropout = -1;  // below 0: Dropout nodes stay as exported
  std::vector<std::string> dim;

  // Data.
  std::string data;  // "": synthetic samples
  std::string eval_data, eval_split;
  std::vector<std::string> input, label;
  std::string header = "auto";
  std::string encoding;
  std::vector<std::string> encode, fill;
  bool standardize = false, scale_targets = false;
  std::string on_bad_sample = "abort";
  std::string normalize;  // "": that of preprocess.json beside the model, else unit
  // Files of pictures. "": as in preprocess.json beside the model, else as the model's input has it, crop and rgb.
  std::string image_size, resize, channel_order;
  std::vector<std::string> augment;
  bool decode_scaling = false;
  int64_t sample_rate = 0;   // of sounds; 0: as in preprocess.json, in the model's metadata, else as the files have it
  std::string audio_length;  // "": as in preprocess.json, else as the model's input or the files have it
  std::vector<std::string> text;  // empty: the columns of preprocess.json
  std::string tokenizer;          // "": that of preprocess.json
  int64_t max_length = 0;         // tokens; 0: as many as the model takes
  bool length_grouping = false;
  int64_t max_tokens_per_batch = 0;  // 0: batches are counted in samples
  std::string class_map;
  std::string cache = "none";
  bool shuffle = true, drop_last = false;
  std::string dump_order;
  int64_t num_workers = kAuto;
  int64_t prefetch_factor = 2;

  // Step.
  int64_t batch_size = 0;                   // 0: the batch that the model was exported for, else 32
  int64_t micro_batch_size = 0;             // 0: follows from the other two
  int64_t gradient_accumulation_steps = 0;  // 0: follows from the other two
  std::string mixed_precision = "no";
  double loss_scale = 0;  // 0: dynamic
  std::string on_nonfinite = "skip";
  std::string gradient_checkpointing = "auto";
  int64_t memory_budget = 0;  // bytes; 0: what is free
  double max_grad_norm = -1;  // below 0: 1, or no limit where clip_value or agc is set
  double clip_value = 0, agc = 0;
  std::string optimizer = "adamw";
  std::vector<std::string> lr;  // empty: auto
  bool lr_find = false;
  double momentum = -1;  // below 0: the optimizer's default; eps and betas likewise
  double dampening = 0;
  bool nesterov = false;
  std::vector<double> betas;
  double eps = -1;
  double weight_decay = 0;
  std::string no_decay = "auto";
  std::string lr_scale = "none";
  int64_t lr_scale_base = 256;
  double layer_lr_decay = 1;
  double ema_decay = 0;
  std::string lr_scheduler = "constant";
  double warmup = 0, min_lr = 0;
  double label_smoothing = 0;
  std::vector<double> class_weights;
  int64_t ignore_index = -100;
  int64_t epochs = 0;     // 0: 3, or as many as max_steps takes
  int64_t max_steps = 0;  // 0: no limit; without data: 20
  double max_time = 0;    // seconds; 0: no limit
  int64_t seed = 42;

  // Run.
  std::string backend = "auto", device = "auto";
  std::vector<std::string> plugin;  // paths of libraries
  int64_t threads = 0;              // 0: every CPU that the process may use
  Interval log_every;               // value 0: about 20 an epoch
  Interval eval_every = {Interval::Unit::kEpochs, 1};
  Interval save_every = {Interval::Unit::kSeconds, 600};
  int64_t keep_last = 2, keep_best = 0;
  std::string resume;  // "": a run of its own
  bool resume_force = false;
  int64_t early_stopping_patience = 0;  // 0: none
  int64_t world = 1;
  std::string shard = "none";
  int64_t pipeline = 1;               // stages
  int64_t tensor = 1;                 // parts of every layer
  int64_t compare_weights_every = 0;  // updates; 0: never
  std::string comm_dtype = "f32";
  bool deterministic = false;
  bool sync_batch_norm = false;
  std::string comm_interface;  // "": GLOO_SOCKET_IFNAME, else loopback where all ranks are on one machine
  double comm_timeout = 600;   // seconds
  bool quiet = false, json = false, steps_only = false;
  std::string profile, profile_steps;
  Interval histogram_every;  // value 0: none
  std::string checkpoint_compression = "none";
  bool verify_passes = false;  // a debug build always does
  bool automatic = false;
  std::string monitor = "loss:min";
  std::vector<std::string> metrics, require;
  std::string plot, reference;
  std::vector<std::string> runs;  // folders to look at
  int64_t gradcheck = 0;

  // Names of fields that SetField, ParseFlags or FromJson set: they count as specified even at their default.
  std::set<std::string, std::less<>> specified;

  bool operator==(const TrainConfig&) const = default;
};

// What a field configures: each subcommand of the command line is one.
enum ConfigTask : unsigned {
  kTaskTrain = 1,
  kTaskEval = 2,
  kTaskPredict = 4,
  kTaskGrad = 8,
  kTaskInspect = 16,
  kTaskCompare = 32,
  kTaskExport = 64,
  kTaskBench = 128,
  kTaskPlan = 256,
  kTaskMonitor = 512,
  kTaskCompareRuns = 1024,
  kTaskTokenize = 2048,
  kTaskGraph = 4096,  // export of graphs for other runtimes
  kTaskAll = 511,     // that read a model
};

using ConfigMember =
    std::variant<bool TrainConfig::*, int64_t TrainConfig::*, double TrainConfig::*, std::string TrainConfig::*,
                 std::vector<std::string> TrainConfig::*, std::vector<double> TrainConfig::*, Interval TrainConfig::*>;

// What another value of a field does to a run that is resumed.
enum class OnResume : uint8_t {
  kFixed,    // it would be another run
  kChanges,  // other numbers from here on
  kFree      // the same numbers
};

struct FieldTraits {
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  enum class Unit : uint8_t { kNone, kBytes, kSeconds };

  // A number outside of the limits stands for "not specified", and is the default if it is anything.
  double min = -kInf, max = kInf;                 // inclusive
  double above = -kInf, below = kInf;             // exclusive
  const char* choices = "";                       // "a|b|c": nothing else is allowed
  bool (*also)(std::string_view text) = nullptr;  // accepts further texts, which `also_text` describes
  const char* also_text = "";
  const char* word = "";  // the text of `word_value`: "auto"
  double word_value = 0;
  const char* otherwise = "";  // the default for people, where that of the struct stands for "not specified"
  bool repeatable = false;     // a list that is given one element at a time; other lists are comma-separated
  bool transient = false;      // says nothing about the result: not part of a flag file or of JSON
  bool decides = false;        // sets other fields when a run begins; a resumed run keeps what they were set to
  Unit unit = Unit::kNone;
  OnResume on_resume = OnResume::kFixed;
};

struct RunFacts;  // optim/config/unused_fields.h

// How much of a configuration is known: other flags, and then the settings of the model, may still set fields.
enum class ConfigState : uint8_t { kOpen, kParsed, kFinal };

// What a field needs to have an effect: a fact of the run that holds, or a predicate over the other fields.
struct Condition {
  bool RunFacts::*fact = nullptr;
  bool (*holds)(const TrainConfig& config) = nullptr;
  ConfigState from = ConfigState::kOpen;  // `holds` is asked from this state on
  // The message behind the name of the field. Replaces {value}, {subject} and {hint} (RunFacts), and {division}: the
  // field that divides the model among ranks. `about`: the message of runs with a subject, if it is another one.
  const char* otherwise;
  const char* about = nullptr;
  bool of_value = false;  // the default needs nothing, even where it is specified
};

struct ConfigField {
  const char* group;  // model, data, step, run
  const char* name;
  unsigned tasks;                         // of ConfigTask
  std::array<const Condition*, 3> needs;  // all of them; the first is never null
  ConfigMember member;
  const char* value;  // placeholder for the help: "N|auto"; in brackets where it may be left out; "" for a bool
  const char* help;
  FieldTraits traits = {};

  bool is_bool() const { return std::holds_alternative<bool TrainConfig::*>(member); }
};

// Every field, by group.
std::span<const ConfigField> ConfigFields();
// Null where there is none of that name.
const ConfigField* FindField(std::string_view name);

// Parses `text` into a field and notes it as specified. A repeatable field gets one more element, another list is
// replaced. Errors name the field and say what is expected.
absl::Status SetField(TrainConfig* config, const ConfigField& field, std::string_view text);

// The values of a field as SetField takes them: one text for each element of a repeatable field, else at most one.
// Empty where the field has no value ("" or an empty list).
std::vector<std::string> FieldTexts(const TrainConfig& config, const ConfigField& field);

// Was the field set by name, or does it differ from its default?
bool IsSpecified(const TrainConfig& config, std::string_view name);
bool IsSpecified(const TrainConfig& config, const ConfigField& field);
bool DiffersFromDefault(const TrainConfig& config, const ConfigField& field);

// Checks limits and choices of single fields.
absl::Status CheckFields(const TrainConfig& config);
// Checks everything that is wrong for any model and data: CheckFields, grammars, combinations.
absl::Status Validate(const TrainConfig& config);

// The specified fields of `tasks`, one "--name=value" a line: a flag file.
std::string ToFlags(const TrainConfig& config, unsigned tasks = kTaskAll);

// The specified fields as a JSON object, and back: FromJson(ToJson(c)) equals c, up to transient fields and the set of
// specified names. Lists are arrays; intervals, sizes and durations are text ("1ep", "2GiB", "90s").
std::string ToJson(const TrainConfig& config);
absl::StatusOr<TrainConfig> FromJson(std::string_view json);

}  // namespace onnxtrain
