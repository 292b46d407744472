#include "optim/config/config_synonyms.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

using Kind = Synonym::Value;

constexpr char kHf[] = "the Trainer's", kTrl[] = "TRL's", kPeft[] = "PEFT's", kTimm[] = "timm's",
               kTorch[] = "PyTorch's", kBoth[] = "PyTorch's and timm's", kPl[] = "Lightning's", kKeras[] = "Keras'",
               kScripts[] = "the Trainer scripts'", kAxolotl[] = "axolotl's", kFactory[] = "LLaMA-Factory's";

constexpr Synonym Same(const char* name, const char* library, const char* field) {
  return {.name = name, .library = library, .field = field};
}
constexpr Synonym Whole(const char* name, const char* library, const char* field) {
  return {.name = name, .library = library, .kind = Kind::kWhole, .field = field};
}
constexpr Synonym Share(const char* name, const char* library, const char* field, const char* advice) {
  return {.name = name, .library = library, .kind = Kind::kShare, .field = field, .advice = advice};
}
constexpr Synonym Form(const char* name, const char* library, const char* field, const char* form) {
  return {.name = name, .library = library, .kind = Kind::kFormat, .field = field, .form = form};
}
constexpr Synonym Switch(const char* name, const char* library, const char* field, const char* form = "true|false") {
  return {.name = name, .library = library, .kind = Kind::kSwitch, .field = field, .form = form};
}
constexpr Synonym Words(const char* name, const char* library, const char* field, const char* form,
                        const char* advice) {
  return {.name = name, .library = library, .kind = Kind::kWords, .field = field, .form = form, .advice = advice};
}
constexpr Synonym PerDevice(const char* name, const char* library) {
  return {.name = name, .library = library, .field = "micro_batch_size", .per_device = true};
}
constexpr Synonym Not(const char* name, const char* library, const char* advice) {
  return {.name = name, .library = library, .kind = Kind::kRefused, .advice = advice};
}

constexpr char kNoSplit[] = "0=|0.0=|$";

constexpr char kRanks[] = "is not needed: 'onnxtrain launch' starts the ranks of a machine";
constexpr char kMultiplies[] =
    "multiplies the batch; here `gradient_accumulation_steps` divides `batch_size`, which counts the samples of an "
    "update";
constexpr char kBetas[] = "is a part of `betas` A,B here";
constexpr char kSchedules[] =
    "has other names here (`lr_scheduler` linear, cosine, cosine_restarts, polynomial, constant, inverse_sqrt, "
    "plateau, wsd, …)";
constexpr char kEvaluations[] =
    "steps needs a number (`eval_every` N); for no, leave `eval_data` and `eval_split` out, which are evaluated before "
    "and after training, too";
constexpr char kEvalCommand[] = "is the subcommand 'onnxtrain eval' here (`model`, `data`)";
constexpr char kCompiled[] = "is not needed: every step is compiled (`backend`)";
constexpr char kPrecisions[] = "is `mixed_precision` bf16 or fp16 here";
constexpr char kHistory[] = "names a folder of logs: TensorBoard's files are always in the run's folder (`out`)";

// clang-format off
constexpr Synonym kSynonyms[] = {
    // transformers.TrainingArguments
    Same("output_dir", kHf, "out"),
    Switch("overwrite_output_dir", kHf, "overwrite"),
    Not("do_train", kHf, "is not needed: onnxtrain trains unless its first word is eval or predict"),
    Not("do_eval", kHf, "is not needed: `eval_data` is evaluated, and 'onnxtrain eval' does nothing else"),
    Not("do_predict", kHf, "is the subcommand 'onnxtrain predict' here (`data`, `out`)"),
    Whole("num_train_epochs", kHf, "epochs"),
    PerDevice("per_device_train_batch_size", kHf),
    PerDevice("per_gpu_train_batch_size", kHf),
    PerDevice("train_micro_batch_size_per_gpu", "DeepSpeed's"),
    Not("per_device_eval_batch_size", kHf, "has no counterpart: evaluation takes the `micro_batch_size` of training; "
        "in 'onnxtrain eval' it is `batch_size`"),
    Not("per_gpu_eval_batch_size", kHf, "has no counterpart: evaluation takes the `micro_batch_size` of training"),
    Not("eval_batch_size", kHf, "has no counterpart: evaluation takes the `micro_batch_size` of training; in "
        "'onnxtrain eval' it is `batch_size`"),
    Not("train_batch_size", kHf, "counts the samples of a device; `batch_size` counts those of an update, on all "
        "devices and in all accumulated micro-batches, and `micro_batch_size` those of one pass"),
    Same("learning_rate", kHf, "lr"),
    Not("adam_beta1", kHf, kBetas),
    Not("adam_beta2", kHf, kBetas),
    Same("adam_epsilon", kHf, "eps"),
    Words("optim", kHf, "optimizer",
          "adamw_torch=adamw|adamw_torch_fused=adamw|adamw_hf=adamw|adamw_apex_fused=adamw|adamw=adamw|sgd=sgd|"
          "adagrad=adagrad|rmsprop=rmsprop|adafactor=adafactor_unscaled|lion_32bit=lion|lion=lion|muon=muon|"
          "adamw_8bit=adamw8bit|adamw_bnb_8bit=adamw8bit|paged_adamw_8bit=adamw8bit|adamw_torch_8bit=adamw8bit|"
          "adamw8bit=adamw8bit|schedule_free_adamw=schedule_free_adamw|galore_adamw=galore_adamw|lion_8bit=lion8bit|"
          "paged_lion_8bit=lion8bit|lion8bit=lion8bit",
          "has other names here (`optimizer` sgd, adam, adamw, rmsprop, adagrad, lion, lamb, lars, adafactor, "
          "adafactor_unscaled, muon, schedule_free_adamw, galore_adamw, adamw8bit, lion8bit)"),
    Not("optim_args", kHf, "has no counterpart: each has a flag (`momentum`, `betas`, `eps`, "
        "`galore_rank`, `galore_update_proj_gap`, `galore_scale`)"),
    Words("lr_scheduler_type", kHf, "lr_scheduler",
          "linear=linear|cosine=cosine|cosine_with_restarts=cosine_restarts|polynomial=polynomial|constant=constant|"
          "constant_with_warmup=constant|inverse_sqrt=inverse_sqrt|reduce_lr_on_plateau=plateau|"
          "cosine_with_min_lr=cosine|warmup_stable_decay=wsd",
          kSchedules),
    Not("lr_scheduler_kwargs", kHf, "is written behind the schedule's name (`lr_scheduler` step:size=1000,gamma=0.5)"),
    Share("warmup_ratio", kHf, "warmup", "is a share of the run below 1; from 1 on, `warmup` counts updates"),
    Same("warmup_steps", kHf, "warmup"),
    Same("num_warmup_steps", "Accelerate's", "warmup"),
    Same("logging_steps", kHf, "log_every"),
    Words("logging_strategy", kHf, "log_every", "epoch=1ep|steps=*", "steps needs a number (`log_every` N), and no has "
          "no counterpart (`quiet`)"),
    Not("logging_dir", kHf, kHistory),
    Not("logging_first_step", kHf, "has no counterpart (`log_every`)"),
    Not("report_to", kHf, "is not needed: metrics.jsonl, report.html and TensorBoard's files are always written "
        "(`out`)"),
    Not("run_name", kHf, "is the name of the run's folder (`out` runs/NAME)"),
    Same("save_steps", kHf, "save_every"),
    Words("save_strategy", kHf, "save_every", "epoch=1ep|no=end|steps=*", "steps needs a number (`save_every` N), best "
          "is `keep_best` 1"),
    Same("save_total_limit", kHf, "keep_last"),
    Not("save_safetensors", kHf, "has no counterpart: checkpoints have one format (`save_every`)"),
    Not("save_only_model", kHf, "has no counterpart: a checkpoint holds all that `resume` needs; the run's folder has "
        "model.onnx alone"),
    Switch("load_best_model_at_end", kHf, "export_weights", "best|last"),
    Form("metric_for_best_model", kHf, "monitor", "$"),
    Not("greater_is_better", kHf, "is written behind the metric (`monitor` METRIC:max or METRIC:min)"),
    Same("eval_steps", kHf, "eval_every"),
    Words("eval_strategy", kHf, "eval_every", "epoch=1ep|steps=*", kEvaluations),
    Words("evaluation_strategy", kHf, "eval_every", "epoch=1ep|steps=*", kEvaluations),
    Not("eval_on_start", kHf, "is not needed: `eval_data` is evaluated before the first update, too"),
    Not("eval_delay", kHf, "has no counterpart (`eval_every`)"),
    Switch("bf16", kHf, "mixed_precision", "bf16|no"),
    Switch("fp16", kHf, "mixed_precision", "fp16|no"),
    Switch("tf32", kHf, "mixed_precision", "tf32|no"),
    Not("fp16_opt_level", kHf, "is Apex's; here `mixed_precision` fp16 keeps weights, norms and sums in float32"),
    Same("label_smoothing_factor", kHf, "label_smoothing"),
    Same("dataloader_num_workers", kHf, "num_workers"),
    Same("dataloader_prefetch_factor", kHf, "prefetch_factor"),
    Switch("dataloader_drop_last", kHf, "drop_last"),
    Not("dataloader_pin_memory", kHf, "is not needed (`num_workers`, `prefetch_factor`)"),
    Switch("group_by_length", kHf, "length_grouping"),
    Not("data_seed", kHf, "has no counterpart: one `seed` decides everything"),
    Words("resume_from_checkpoint", kHf, "resume", "true=auto|True=auto|false=|False=|None=|$", ""),
    Not("ignore_data_skip", kHf, "has no counterpart: a resumed run goes on at the next sample (`resume`)"),
    Not("auto_find_batch_size", kHf, "is `micro_batch_size` auto here, which plans the memory beforehand"),
    Not("gradient_checkpointing_kwargs", kHf, "has no counterpart (`gradient_checkpointing`)"),
    Not("eval_accumulation_steps", kHf, "has no counterpart (`micro_batch_size`)"),
    Not("remove_unused_columns", kHf, "is not needed: only columns that feed the model are read (`input`)"),
    Not("deepspeed", kHf, "is `shard` optimizer, gradients or full here"),
    Not("fsdp", kHf, "is `shard` full here"),
    Not("ddp_backend", kHf, kRanks),
    Not("ddp_timeout", kHf, "is `comm_timeout` here, with a unit (1800s)"),
    Not("local_rank", kHf, kRanks),
    Switch("use_cpu", kHf, "device", "cpu|auto"),
    Switch("no_cuda", kHf, "device", "cpu|auto"),
    Switch("cpu", "Accelerate's", "device", "cpu|auto"),
    Not("torch_compile", kHf, kCompiled),
    Not("torch_compile_backend", kHf, kCompiled),
    Not("push_to_hub", kHf, "has no counterpart: nothing is uploaded (`out`)"),
    Not("neftune_noise_alpha", kHf, "has no counterpart (`dropout`)"),

    // The example scripts of transformers and Accelerate
    Same("model_name_or_path", kScripts, "model"),
    Same("tokenizer_name", kScripts, "tokenizer"),
    Not("config_name", kScripts, "is not needed: an ONNX `model` describes itself"),
    Not("dataset_name", kScripts, "downloads; here `data` names a file or a folder"),
    Not("dataset_config_name", kScripts, "belongs to a download; here `data` names a file or a folder"),
    Not("task_name", kScripts, "belongs to a download; here `data` names a file or a folder"),
    Same("train_file", kScripts, "data"),
    Same("validation_file", kScripts, "eval_data"),
    Not("test_file", kScripts, "is the `data` of 'onnxtrain eval' or 'onnxtrain predict' here"),
    Same("text_column_name", kScripts, "text"),
    Same("text_column", kScripts, "text"),
    Same("label_column_name", kScripts, "label"),
    Same("label_column", kScripts, "label"),
    Same("max_seq_length", kScripts, "max_length"),
    Same("model_max_length", kScripts, "max_length"),
    Same("block_size", kScripts, "max_length"),
    Same("max_train_steps", kScripts, "max_steps"),
    Not("max_train_samples", kScripts, "has no counterpart: `max_steps` limits the updates"),
    Not("max_eval_samples", kScripts, "has no counterpart: `eval_data` is evaluated as a whole"),
    Not("max_source_length", kScripts, "is `max_length` here, of every text"),
    Not("max_target_length", kScripts, "is `max_length` here, of every text"),
    Not("pad_to_max_length", kScripts, "is not needed: batches are padded to their longest sample (`max_length`)"),
    Not("preprocessing_num_workers", kScripts, "is not needed: texts are tokenized on all CPUs (`threads`)"),
    Not("validation_split_percentage", kScripts, "is a share here (`eval_split` 0.05 for 5)"),
    Same("checkpointing_steps", "Accelerate's", "save_every"),

    Whole("num_epochs", kScripts, "epochs"),
    Same("model_path", kScripts, "model"),

    // PEFT and TRL
    Same("r", kPeft, "lora_rank"),
    Same("lora_r", kPeft, "lora_rank"),
    Same("target_modules", kPeft, "lora_target"),
    Same("lora_target_modules", kPeft, "lora_target"),
    Same("modules_to_save", kPeft, "train"),
    Switch("use_dora", kPeft, "lora_variant", "dora|lora"),
    Switch("use_rslora", kPeft, "lora_variant", "rslora|lora"),
    Same("adapter_name_or_path", kPeft, "adapter"),
    Words("adapter_format", "Olive's", "adapter_out", "onnx_adapter=onnx|safetensors=peft",
          "is `adapter_out` onnx, peft or merged here"),
    Not("init_lora_weights", kPeft, "is `lora_init` kaiming, gaussian or pissa here"),
    Not("use_peft", kTrl, "is `lora_rank` R here"),
    Switch("load_in_4bit", kTrl, "quantize_base", "nf4|none"),
    Switch("load_in_8bit", kTrl, "quantize_base", "int8|none"),
    Same("dataset_text_field", kTrl, "text"),
    Switch("completion_only_loss", kTrl, "loss_on", "completion|all"),
    Switch("assistant_only_loss", kTrl, "loss_on", "assistant|all"),
    Same("chat_template_path", kTrl, "chat_template"),
    Not("eos_token", kTrl, "is not needed: an answer ends as the chat template or the tokenizer says "
        "(`chat_template`)"),
    Switch("train_on_inputs", kAxolotl, "loss_on", "all|auto"),
    Switch("sample_packing", kAxolotl, "packing"),
    Same("sequence_len", kAxolotl, "max_length"),
    Words("val_set_size", kAxolotl, "eval_split", kNoSplit, ""),
    Same("base_model", kAxolotl, "model"),
    Switch("mask_prompt", "mlx-lm's", "loss_on", "completion|all"),
    Same("cutoff_len", kFactory, "max_length"),
    Words("val_size", kFactory, "eval_split", kNoSplit, ""),
    Switch("train_on_prompt", kFactory, "loss_on", "all|auto"),
    Switch("neat_packing", kFactory, "packing"),
    Same("ref_model", kFactory, "reference_model"),
    Same("galore_update_interval", kFactory, "galore_update_proj_gap"),
    Not("dataset_num_proc", kTrl, "is not needed: texts are tokenized on all CPUs (`threads`)"),
    Not("beta", kTrl, "belongs to preference losses: `loss` dpo:beta=B"),

    // timm and PyTorch's examples
    Words("opt", kBoth, "optimizer", "adamw=adamw|adam=adam|lion=lion",
          "has other defaults: sgd is `optimizer` sgd with `momentum` 0.9 here (timm's is `nesterov`, too); others are "
          "`optimizer` rmsprop, adagrad, lamb, lars or adafactor"),
    Same("opt_eps", kTimm, "eps"),
    Not("opt_betas", kTimm, "is `betas` A,B here"),
    Words("sched", kTimm, "lr_scheduler", "cosine=cosine|none=constant",
          "counts epochs; the schedules here count updates (`lr_scheduler` step:size=1000,gamma=0.1, multistep, "
          "polynomial, plateau, …)"),
    Same("wd", kTorch, "weight_decay"),
    Same("clip_grad", kTimm, "max_grad_norm"),
    Not("clip_mode", kTimm, "is `max_grad_norm` X (norm), `clip_value` X (value) or `agc` X (agc) here"),
    Same("layer_decay", kTimm, "layer_lr_decay"),
    Same("smoothing", kTimm, "label_smoothing"),
    Not("drop", kTimm, "adds dropout to the model when it is built; here `dropout` sets the Dropout nodes that the "
        "model has"),
    Not("drop_path", kTimm, "adds stochastic depth when a model is built, which an exported one does not have "
        "(`dropout` sets its Dropout nodes)"),
    Not("drop_rate", kTimm, "adds dropout to the model when it is built; here `dropout` sets the Dropout nodes that "
        "the model has"),
    Same("workers", kBoth, "num_workers"),
    Same("j", kBoth, "num_workers"),
    Not("b", kBoth, "is `batch_size` here, which counts the samples of an update on all devices, not of one"),
    Not("validation_batch_size", kTimm, "has no counterpart: evaluation takes the `micro_batch_size` of training"),
    Not("grad_accum_steps", kTimm, kMultiplies),
    Not("amp", kBoth, kPrecisions),
    Not("use_amp", kTorch, kPrecisions),
    Not("native_amp", kTimm, kPrecisions),
    Words("amp_dtype", kTimm, "mixed_precision", "bfloat16=bf16|float16=fp16", kPrecisions),
    Not("torchcompile", kTimm, kCompiled),
    Not("compile", kTorch, kCompiled),
    Not("model_ema", kTimm, "is `ema_decay` 0.9998 here, which keeps the average by itself"),
    Same("model_ema_decay", kTimm, "ema_decay"),
    Not("warmup_epochs", kTimm, "counts epochs; `warmup` counts updates, or is a share of the run below 1: one of ten "
        "`epochs` is `warmup` 0.1"),
    Not("warmup_lr", kTimm, "has no counterpart: the rate rises from 0 (`warmup`)"),
    Not("decay_rate", kTimm, "is written behind the schedule's name (`lr_scheduler` step:gamma=0.1)"),
    Not("decay_epochs", kTimm, "is written behind the schedule's name, in updates (`lr_scheduler` step:size=1000)"),
    Not("cooldown_epochs", kTimm, "has no counterpart (`epochs`, `lr_scheduler`)"),
    Not("patience_epochs", kTimm, "is written behind the schedule's name (`lr_scheduler` plateau:patience=10)"),
    Same("lr_base_size", kTimm, "lr_scale_base"),
    Not("lr_base", kTimm, "is `lr` here, with `lr_scale` and `lr_scale_base`"),
    Not("mixup", kTimm, "is `augment` mixup:ALPHA here, in one list with the other changes of pictures"),
    Not("cutmix", kTimm, "is `augment` cutmix:ALPHA here, in one list with the other changes of pictures"),
    Not("aa", kTimm, "is `augment` randaugment:N/M here"),
    Not("reprob", kTimm, "is `augment` erase:P here"),
    Not("hflip", kTimm, "is `augment` flip:P here"),
    Not("vflip", kTimm, "is `augment` vflip:P here"),
    Not("color_jitter", kTimm, "is `augment` color:X here"),
    Not("mean", kTimm, "is `normalize` MEAN/STD here"),
    Not("std", kTimm, "is `normalize` MEAN/STD here"),
    Same("img_size", kTimm, "image_size"),
    Not("input_size", kTimm, "is `image_size` HxW here"),
    Not("crop_pct", kTimm, "has no counterpart (`resize`, `image_size`)"),
    Not("interpolation", kTimm, "has no counterpart: the filter is antialiased and bilinear (`resize`)"),
    Same("data_dir", kTimm, "data"),
    Same("data_path", kTorch, "data"),
    Same("train_data", kTorch, "data"),
    Same("val_data", kTorch, "eval_data"),
    Not("train_split", kTimm, "is found: a `data` folder with train and val has both"),
    Not("val_split", kTimm, "is found: a `data` folder with train and val has both (`eval_split` F holds samples out)"),
    Not("output", kTimm, "makes a folder below another one; `out` is the folder of the run"),
    Not("experiment", kTimm, "is the name of the run's folder (`out` runs/NAME)"),
    Not("initial_checkpoint", kTimm, "is `init_from` here, for checkpoints of a run"),
    Not("pretrained", kTimm, "is not needed: the `model` file holds its weights"),
    Not("checkpoint_hist", kTimm, "keeps the best checkpoints (`keep_best`); the newest are `keep_last`"),
    Same("log_interval", kBoth, "log_every"),
    Same("print_freq", kTorch, "log_every"),
    Not("recovery_interval", kTimm, "is not needed: any checkpoint can be resumed (`save_every`)"),
    Switch("sync_bn", kTimm, "sync_batch_norm"),
    Not("channels_last", kTimm, "is not needed: layouts are chosen (`backend`)"),
    Not("pin_mem", kTimm, "is not needed (`num_workers`)"),
    Not("bce_loss", kTimm, "is `loss` bce here"),
    Not("eval_metric", kTimm, "is `monitor` METRIC:max here"),
    Not("arch", kTorch, "is not needed: the `model` file is the architecture"),
    Not("evaluate", kTorch, kEvalCommand),
    Not("eval_only", kTorch, kEvalCommand),
    Not("test_only", kTorch, kEvalCommand),
    Not("eval", kTorch, kEvalCommand),
    Not("test", kTorch, kEvalCommand),
    Switch("cuda", kTorch, "device", "cuda:0|cpu"),
    Not("freeze_backbone", kTorch, "is `freeze` GLOB here, or `train` GLOB for the layers that are to learn"),
    Not("test_batch_size", kTorch, "has no counterpart: evaluation takes the `micro_batch_size` of training"),
    Not("start_epoch", kTorch, "is not needed: a resumed run goes on where it was (`resume`)"),
    Not("gamma", kTorch, "is written behind the schedule's name (`lr_scheduler` step:gamma=0.7)"),
    Not("lr_step_size", kTorch, "is written behind the schedule's name, in updates (`lr_scheduler` step:size=1000)"),
    Not("lr_gamma", kTorch, "is written behind the schedule's name (`lr_scheduler` step:gamma=0.1)"),
    Not("save_model", kTorch, "is not needed: model.onnx is always written (`out`)"),
    Not("gpu", kTorch, "is `device` cuda:N here"),
    Not("world_size", kTorch, kRanks),
    Not("dist_url", kTorch, kRanks),
    Not("nproc_per_node", kTorch, kRanks),

    // Lightning
    Whole("max_epochs", kPl, "epochs"),
    Not("min_epochs", kPl, "has no counterpart (`epochs`, `early_stopping_patience`)"),
    Not("min_steps", kPl, "has no counterpart (`max_steps`, `early_stopping_patience`)"),
    Not("accumulate_grad_batches", kPl, kMultiplies),
    Same("gradient_clip_val", kPl, "max_grad_norm"),
    Not("gradient_clip_algorithm", kPl, "is `max_grad_norm` X (norm) or `clip_value` X (value) here"),
    Words("precision", kPl, "mixed_precision",
          "32=no|32-true=no|16-mixed=fp16|16=fp16|bf16-mixed=bf16|bf16=bf16",
          "has other names here (`mixed_precision` no, bf16 or fp16; bf16-true is that and `weight_dtype` bf16)"),
    Not("devices", kPl, kRanks),
    Not("num_nodes", kPl, kRanks),
    Words("accelerator", kPl, "device", "cpu=cpu|gpu=cuda:0|cuda=cuda:0|auto=auto", "is `device` cpu or cuda:N here"),
    Not("strategy", kPl, "is `shard` optimizer, gradients or full here, with several ranks"),
    Same("log_every_n_steps", kPl, "log_every"),
    Not("val_check_interval", kPl, "counts epochs or batches; `eval_every` 0.25ep or 500 says which"),
    Form("check_val_every_n_epoch", kPl, "eval_every", "$ep"),
    Not("limit_train_batches", kPl, "has no counterpart: `max_steps` limits the updates"),
    Not("limit_val_batches", kPl, "has no counterpart: `eval_data` is evaluated as a whole"),
    Not("fast_dev_run", kPl, "is `max_steps` 1 here; without `data`, the run is on synthetic samples"),
    Not("overfit_batches", kPl, "has no counterpart (`max_steps`)"),
    Not("default_root_dir", kPl, "holds many runs; `out` is the folder of one"),
    Words("ckpt_path", kPl, "resume", "last=auto|best=!|hpc=!|$",
          "takes last or a path (`resume` auto or PATH); the folder of a run has its best weights with "
          "`export_weights` best"),
    Not("enable_checkpointing", kPl, "is `save_every` end to save at the end alone"),
    Not("enable_progress_bar", kPl, "is `quiet` here"),
    Switch("auto_lr_find", kPl, "lr_find"),
    Not("auto_scale_batch_size", kPl, "is `micro_batch_size` auto here"),
    Switch("sync_batchnorm", kPl, "sync_batch_norm"),
    Not("profiler", kPl, "is `profile` FILE.json here"),
    Same("save_top_k", kPl, "keep_best"),
    Same("every_n_train_steps", kPl, "save_every"),
    Form("every_n_epochs", kPl, "save_every", "$ep"),
    Not("save_last", kPl, "is not needed: the newest checkpoints are kept (`keep_last`)"),
    Same("patience", "Lightning's and Keras'", "early_stopping_patience"),
    Not("mode", "Lightning's and Keras'", "is written behind the metric (`monitor` METRIC:min or METRIC:max)"),
    Not("min_delta", "Lightning's and Keras'", "has no counterpart (`early_stopping_patience`)"),

    // Keras
    Form("validation_split", kKeras, "eval_split", "last:$"),
    Same("validation_data", kKeras, "eval_data"),
    Not("steps_per_epoch", kKeras, "has no counterpart: an epoch is one pass over the `data` (`max_steps` limits the "
        "updates)"),
    Not("validation_steps", kKeras, "has no counterpart: `eval_data` is evaluated as a whole"),
    Form("validation_freq", kKeras, "eval_every", "$ep"),
    Not("initial_epoch", kKeras, "is not needed: a resumed run goes on where it was (`resume`)"),
    Not("beta_1", kKeras, kBetas),
    Not("beta_2", kKeras, kBetas),
    Same("epsilon", kKeras, "eps"),
    Not("rho", kKeras, "is the second of `betas` A,B here"),
    Not("clipnorm", kKeras,
        "limits each gradient by itself; `max_grad_norm` limits the norm of all, as global_clipnorm"),
    Same("global_clipnorm", kKeras, "max_grad_norm"),
    Same("clipvalue", kKeras, "clip_value"),
    Not("use_ema", kKeras, "is `ema_decay` 0.99 here, which keeps the average by itself"),
    Same("ema_momentum", kKeras, "ema_decay"),
    Switch("restore_best_weights", kKeras, "export_weights", "best|last"),
    Not("save_best_only", kKeras, "is `keep_best` 1 here"),
    Not("class_weight", kKeras, "is `class_weights` W0,W1,… here"),
    Not("sample_weight", kKeras, "has no counterpart (`class_weights`)"),
    Not("callbacks", kKeras, "have flags of their own: `early_stopping_patience`, `keep_best`, `lr_scheduler`"),
    Not("jit_compile", kKeras, kCompiled),
    Not("decay", kKeras, "divides the rate by 1 + its value × updates; `lr_scheduler` lowers the rate here, and "
        "`weight_decay` the weights"),
};

// Values that other libraries give to fields of the same name.
constexpr Synonym kForeignValues[] = {
    Words("max_steps", kHf, "max_steps", "-1=|$", ""),
    Words("gradient_checkpointing", kHf, "gradient_checkpointing",
          "false=none|False=none|true=!|True=!|$",
          "is a switch; here it says how much is recomputed (`gradient_checkpointing` auto, sqrt, all or budget)"),
    Words("activation_offloading", "TRL's and axolotl's", "activation_offloading",
          "false=no|False=no|true=yes|True=yes|disk=yes|legacy=!|$", "is a switch; legacy has no counterpart"),
};
// clang-format on

std::string Refuse(const Synonym& s) { return StrCat(s.library, " `", s.name, "` ", s.advice); }

// Translates a word by `theirs=ours|…`; a last part "$" keeps all other words unchanged.
absl::StatusOr<std::string> TranslateWord(const Synonym& s, std::string_view word) {
  for (const absl::string_view part : absl::StrSplit(s.form, '|')) {
    if (part == "$") return std::string(word);
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (ToStd(pair.first) == word && pair.second == "!") break;
    if (ToStd(pair.first) == word) return std::string(pair.second);
  }
  return Invalid("'", Printable(word), "': ", Refuse(s));
}

// Removes ".0" from whole numbers that are written as floats, such as "3.0" for num_train_epochs.
std::string_view WithoutZeroFraction(std::string_view value) {
  const size_t point = value.find('.');
  const bool digits = point != 0 && point != std::string_view::npos && value.find_first_not_of("0123456789") == point &&
                      point + 1 < value.size() && value.find_first_not_of('0', point + 1) == std::string_view::npos;
  return digits ? value.substr(0, point) : value;
}

// Removes "eval_", which the Trainer puts before the names of evaluation metrics.
std::string_view WithoutEvalPrefix(std::string_view value) {
  return value.starts_with("eval_") ? value.substr(5) : value;
}

}  // namespace

std::span<const Synonym> Synonyms() { return kSynonyms; }

const Synonym* FindSynonym(std::string_view name) {
  const auto it = std::ranges::find_if(kSynonyms, [&](const Synonym& s) { return s.name == name; });
  return it == std::end(kSynonyms) ? nullptr : &*it;
}

const Synonym* FindForeignValues(std::string_view field) {
  const auto it = std::ranges::find_if(kForeignValues, [&](const Synonym& s) { return s.field == field; });
  return it == std::end(kForeignValues) ? nullptr : &*it;
}

std::string Explain(const Synonym& synonym) { return Refuse(synonym); }

absl::StatusOr<std::string> TranslateValue(const Synonym& s, std::string_view value) {
  switch (s.kind) {
    case Kind::kSame:
      return std::string(value);
    case Kind::kWhole:
      return std::string(WithoutZeroFraction(value));
    case Kind::kShare: {
      const auto share = ParseNumber(value);
      return share.ok() && *share >= 1 ? Invalid(Refuse(s)) : absl::StatusOr<std::string>(std::string(value));
    }
    case Kind::kFormat: {
      std::string text = s.form;
      return text.replace(text.find('$'), 1, WithoutEvalPrefix(value));
    }
    case Kind::kSwitch: {
      const std::string_view form = s.form;
      const size_t bar = form.find('|');
      return std::string(value == "true" ? form.substr(0, bar) : form.substr(bar + 1));
    }
    case Kind::kWords:
      return TranslateWord(s, value);
    case Kind::kRefused:
      break;
  }
  return Invalid(Refuse(s));
}

}  // namespace onnxtrain
