// Defines the configuration of a run, a plain struct that is parsed once, validated in one place and passed by value.
//
//   TrainConfig config;
//   config.model = "x.onnx";
//   config.data = "train.npz";
//   config.epochs = 5;
//   auto run = PrepareTraining(config);  // optim/plan/training_run.h
//
// The table ConfigFields describes every field: parsing, limits, printing, JSON, flag files and the help of the command
// line are generated from it. The flag of a field has the field's name, with dashes.
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

// ConfigFields() has the help of each field. Comments here explain only defaults that mean "not specified".
struct TrainConfig {
  static constexpr int64_t kAuto = -1;

  // Model.
  std::string model, out;
  bool overwrite = false;
  std::string weights;
  std::string export_weights = "auto";
  std::string checkpoint, init_from;
  std::string gradient_graph, training_graph;
  bool input_gradients = false, training_info = false, adapters = false;
  std::string loss;    // "": that of the model's preprocess.json, else auto
  std::string logits;  // "": automatic
  std::vector<std::string> train, freeze, reinit, tie;
  std::vector<std::string> lora_rank;    // "R" and "GLOB=R"; empty: no adapters
  std::vector<std::string> lora_target;  // empty: all-linear
  double lora_alpha = 0;                 // 0: twice the rank
  double lora_dropout = 0;
  std::string lora_variant = "lora", lora_init = "kaiming";
  std::vector<std::string> adapter;      // "PATH", "PATH=W", "PATH*W+PATH*W"; empty: none is read
  std::vector<std::string> adapter_out;  // empty: merged and peft; of an export: merged
  std::string quantize_base = "none", merge = "auto";
  int64_t num_classes = 0;  // 0: the last layer is kept
  std::string head;         // "": no head is appended
  std::string batch_axis = "auto";
  std::string batch_norm = "train";
  double dropout = -1;  // below 0: Dropout nodes are kept as exported
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
  std::string normalize;  // "": that of the model's preprocess.json, else unit
  // Files of pictures. "": as in the model's preprocess.json, else from the model's input, crop and rgb.
  std::string image_size, resize, channel_order;
  std::vector<std::string> augment;
  bool decode_scaling = false;
  int64_t sample_rate = 0;           // sounds; 0: as in preprocess.json, else the model's metadata, else the files
  std::string audio_length;          // "": as in preprocess.json, else from the model's input or the files
  std::string spectrogram = "auto";  // style; auto: as in preprocess.json, else from the model's files; none
  std::vector<std::string> text;     // empty: the columns of preprocess.json
  std::string tokenizer;             // "": that of preprocess.json
  int64_t max_length = 0;            // tokens; 0: the model's limit
  // Chats, and answers to prompts. "": found by the names of the columns, and in the model's folder.
  std::string prompt, completion, chat_template;
  std::string loss_on = "auto", truncate = "drop";
  std::string packing = "auto";
  // Written text.
  std::string system;
  bool chat = false;
  int64_t max_new_tokens = 256, top_k = 0;
  double temperature = 0, top_p = 1;
  std::string sample_prompts;  // a file, or a number of prompts of the evaluation data; "": none are answered
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
  int64_t micro_batch_size = 0;             // 0: derived from the other two
  int64_t gradient_accumulation_steps = 0;  // 0: derived from the other two
  std::string mixed_precision = "no";
  std::string weight_dtype = "float32";
  double loss_scale = 0;  // 0: dynamic
  std::string on_nonfinite = "skip";
  std::string gradient_checkpointing = "auto";
  int64_t memory_budget = 0;  // bytes; 0: the free memory
  bool allow_lossy_memory = false, ladder = false;
  std::string optimizer_in_backward = "auto";
  std::string activation_offloading = "auto";
  double max_grad_norm = -1;  // below 0: 1, or no limit if clip_value or agc is set
  double clip_value = 0, agc = 0;
  std::string optimizer = "adamw";
  std::vector<std::string> lr;  // empty: auto
  bool lr_find = false;
  double momentum = -1;  // below 0: the optimizer's default; also for eps and betas
  double dampening = 0;
  bool nesterov = false;
  std::vector<double> betas;
  double eps = -1;
  int64_t galore_rank = 128, galore_update_proj_gap = 200;
  double galore_scale = 0.25;
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
  int64_t epochs = 0;     // 0: 3, or as many as max_steps needs
  int64_t max_steps = 0;  // 0: no limit; without data: 20
  double max_time = 0;    // seconds; 0: no limit
  int64_t seed = 42;

  // Run.
  std::string backend = "auto", device = "auto";
  std::vector<std::string> plugin;  // paths of libraries
  int64_t threads = 0;              // 0: every CPU that the process may use
  Interval log_every;               // value 0: about 20 lines per epoch
  Interval eval_every = {Interval::Unit::kEpochs, 1};
  Interval save_every = {Interval::Unit::kSeconds, 600};
  int64_t keep_last = 2, keep_best = 0;
  std::string resume;  // "": a new run
  bool resume_force = false;
  int64_t early_stopping_patience = 0;  // 0: no early stopping
  int64_t world = 1;
  std::string shard = "none";
  int64_t pipeline = 1;               // stages
  int64_t tensor = 1;                 // parts per layer
  int64_t compare_weights_every = 0;  // updates; 0: never
  std::string comm_dtype = "f32";
  bool deterministic = false;
  bool sync_batch_norm = false;
  std::string comm_interface;  // "": GLOO_SOCKET_IFNAME, else loopback if all ranks are on one machine
  double comm_timeout = 600;   // seconds
  bool quiet = false, verbose = false, json = false, steps_only = false, dry_run = false;
  std::string profile, profile_steps;
  Interval histogram_every;  // value 0: none
  std::string checkpoint_compression = "none";
  bool verify_passes = false;  // always on in debug builds
  bool automatic = false;
  std::string monitor = "loss:min";
  std::vector<std::string> metrics, require;
  std::string plot, reference, reference_model;
  std::vector<std::string> runs;  // folders to read
  int64_t gradcheck = 0;

  // Names of fields that SetField, ParseFlags or FromJson have set. They count as specified even at their default.
  std::set<std::string, std::less<>> specified;

  bool operator==(const TrainConfig&) const = default;
};

// The tasks that a field configures; each is a subcommand of the command line.
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
  kTaskGraph = 4096,  // exports graphs for other runtimes
  kTaskGenerate = 8192,
  kTaskAll = 511 | kTaskGenerate,  // all tasks that read a model
};

using ConfigMember =
    std::variant<bool TrainConfig::*, int64_t TrainConfig::*, double TrainConfig::*, std::string TrainConfig::*,
                 std::vector<std::string> TrainConfig::*, std::vector<double> TrainConfig::*, Interval TrainConfig::*>;

// The effect of a changed field on a run that is resumed.
enum class OnResume : uint8_t {
  kFixed,    // not allowed: it would be another run
  kChanges,  // the results change from here on
  kFree      // the results stay the same
};

struct FieldTraits {
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  enum class Unit : uint8_t { kNone, kBytes, kSeconds };

  // A default outside of the limits means "not specified".
  double min = -kInf, max = kInf;                 // inclusive
  double above = -kInf, below = kInf;             // exclusive
  const char* choices = "";                       // "a|b|c": the only values allowed
  bool (*also)(std::string_view text) = nullptr;  // accepts further texts, which `also_text` describes
  const char* also_text = "";
  const char* word = "";  // text for `word_value`, such as "auto"
  double word_value = 0;
  const char* otherwise = "";  // the default shown to people if that of the struct means "not specified"
  bool repeatable = false;     // a list that is specified one element at a time; other lists are comma-separated
  bool transient = false;      // does not affect the result: not part of flag files or JSON
  bool decides = false;        // sets other fields when a run begins; a resumed run keeps their values
  Unit unit = Unit::kNone;
  OnResume on_resume = OnResume::kFixed;
};

struct RunFacts;  // optim/config/unused_fields.h

// How complete a configuration is: other flags, and then the settings of the model, may still set fields.
enum class ConfigState : uint8_t { kOpen, kParsed, kFinal };

// A requirement for a field to have an effect: a fact of the run that holds, or a predicate over the other fields.
struct Condition {
  bool RunFacts::*fact = nullptr;
  bool (*holds)(const TrainConfig& config) = nullptr;
  ConfigState from = ConfigState::kOpen;  // `holds` is evaluated from this state on
  // The message after the name of the field. Replaces {value}, {subject} and {hint} (RunFacts), and {division}: the
  // field that divides the model among ranks. `about`: a different message for runs with a subject.
  const char* otherwise;
  const char* about = nullptr;
  bool of_value = false;  // the default has no requirement, even if it is specified
};

struct ConfigField {
  const char* group;  // model, data, step, run
  const char* name;
  unsigned tasks;                         // bits of ConfigTask
  std::array<const Condition*, 3> needs;  // all must hold; the first is never null
  ConfigMember member;
  const char* value;  // placeholder for the help: "N|auto"; in brackets if optional; "" for a bool
  const char* help;
  FieldTraits traits = {};

  bool is_bool() const { return std::holds_alternative<bool TrainConfig::*>(member); }
};

// Returns every field, by group.
std::span<const ConfigField> ConfigFields();
// Returns null if there is no field of that name.
const ConfigField* FindField(std::string_view name);

// Parses `text` into a field and marks it as specified. Appends to a repeatable field; replaces other lists. Errors
// name the field and the expected value.
absl::Status SetField(TrainConfig* config, const ConfigField& field, std::string_view text);

// Returns the values of a field in the form that SetField takes: one text per element of a repeatable field, else at
// most one. Empty if the field has no value ("" or an empty list).
std::vector<std::string> FieldTexts(const TrainConfig& config, const ConfigField& field);

// Returns true if the field was set by name or differs from its default.
bool IsSpecified(const TrainConfig& config, std::string_view name);
bool IsSpecified(const TrainConfig& config, const ConfigField& field);
bool DiffersFromDefault(const TrainConfig& config, const ConfigField& field);

// Checks limits and choices of single fields.
absl::Status CheckFields(const TrainConfig& config);
// Checks everything that is invalid for any model and data: CheckFields, grammars, combinations.
absl::Status Validate(const TrainConfig& config);

// Returns true if a run keeps an average of the weights, by `ema_decay` or its optimizer.
bool KeepsAverage(const TrainConfig& config);

// Formats the specified fields of `tasks` as a flag file, one "--name=value" per line.
std::string ToFlags(const TrainConfig& config, unsigned tasks = kTaskAll);
// Formats the same fields as a YAML document, one "name: value" per line.
std::string ToYaml(const TrainConfig& config, unsigned tasks = kTaskAll);

// Convert the specified fields to a JSON object and back: FromJson(ToJson(c)) equals c, except for transient fields and
// the set of specified names. Lists are arrays; intervals, sizes and durations are text ("1ep", "2GiB", "90s").
std::string ToJson(const TrainConfig& config);
absl::StatusOr<TrainConfig> FromJson(std::string_view json);

}  // namespace onnxtrain
