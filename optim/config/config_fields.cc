// The table of fields: one row defines the flag, the help line and the file format of a field of TrainConfig.
#include <algorithm>

#include "backends/registry.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

using C = TrainConfig;
using Unit = FieldTraits::Unit;
using enum OnResume;

constexpr double kBatchLimit = 1 << 24;
constexpr unsigned kRuns = kTaskTrain | kTaskEval | kTaskPredict | kTaskGrad | kTaskCompare;  // run on data
constexpr unsigned kReads = kRuns | kTaskGraph;                                               // read data
constexpr unsigned kOpens = kReads | kTaskBench;                                              // open data
constexpr unsigned kTexts = kOpens | kTaskTokenize;                                           // read text
constexpr unsigned kGradients = kTaskTrain | kTaskGrad | kTaskCompare | kTaskGraph;           // differentiate
constexpr unsigned kSynthetic = kTaskBench | kTaskPlan;                                       // make samples up
constexpr unsigned kSteps = kTaskTrain | kSynthetic;                                          // update, or plan to
constexpr unsigned kRules = kSteps | kTaskGraph;                                              // have an update rule
constexpr unsigned kSurgery = kGradients | kSynthetic | kTaskInspect | kTaskExport;           // change the structure
constexpr unsigned kWrites = kTaskTrain | kTaskPredict | kTaskGenerate;                       // write text
constexpr unsigned kLabels = kTaskTrain | kTaskEval | kTaskGrad | kTaskCompare | kTaskGraph;  // weigh labels

// Conditions for the column `needs`: a fact of the run, or a predicate over the flags or the final configuration.
using F = RunFacts;
constexpr Condition Fact(bool F::*fact, const char* otherwise) { return {.fact = fact, .otherwise = otherwise}; }
constexpr Condition OfLoss(bool F::*fact, const char* otherwise) {
  return {.fact = fact, .otherwise = otherwise, .about = ": has no effect on loss {subject}"};
}
constexpr Condition Parsed(bool (*holds)(const C& c), const char* otherwise) {
  return {.holds = holds, .from = ConfigState::kParsed, .otherwise = otherwise};
}
constexpr Condition Final(bool (*holds)(const C& c), const char* otherwise) {
  return {.holds = holds, .from = ConfigState::kFinal, .otherwise = otherwise};
}
// Applies the condition only to values other than the default.
constexpr Condition OfValue(Condition condition) { return condition.of_value = true, condition; }

bool RuleTakes(const C& c, std::string_view number) {
  const OptimizerRule* rule = FindRule({.rule = c.optimizer});
  return rule != nullptr && rule->takes.find(number) != std::string_view::npos;
}
bool HasSchedule(const C& c, std::string_view name) {
  return c.lr_scheduler.substr(0, c.lr_scheduler.find(':')) == name;
}
bool IsNoCycle(const C& c) { return !HasSchedule(c, "one_cycle"); }
bool IsWhole(const C& c) { return c.pipeline == 1 && c.tensor == 1; }

constexpr Condition kAlways{.otherwise = ""};
constexpr Condition kNeedsData = Fact(&F::has_data, ": has no effect: there is no `data`");
constexpr Condition kNeedsDataOrSteps = Fact(&F::has_data, ": has no effect: there is no `data` (say `max_steps`)");
constexpr Condition kNeedsCheckpoints = Fact(&F::has_checkpoints, ": has no effect: there is no `data`");
constexpr Condition kNeedsLoop = Fact(&F::has_loop, ": has no effect: there is no `data`");
constexpr Condition kNeedsEval =
    Fact(&F::has_eval, ": has no effect: there is no evaluation data (`eval_data`, `eval_split`)");
constexpr Condition kNeedsNoEvalData =
    Final([](const C& c) { return c.eval_data.empty(); }, ": has no effect: `eval_data` is given");
constexpr Condition kNeedsTextFile = Fact(&F::is_text_file, ": has no effect: {subject} is no file of text");
constexpr Condition kNeedsTextColumns = Fact(&F::has_text_columns, ": has no effect: which columns are text? (`text`)");
constexpr Condition kNeedsAnswers =
    OfValue(Fact(&F::has_answers, ": has no effect: {subject} feeds no chats and no answers to prompts"));
constexpr Condition kNeedsImages = Fact(&F::has_images, ": has no effect: {subject} feeds no 8-bit images");
constexpr Condition kNeedsPictures = Fact(&F::has_pictures, ": has no effect: {subject} feeds no files of pictures");
constexpr Condition kNeedsPixels = Fact(&F::augments, ": has no effect: {subject} feeds no pictures{hint}");
constexpr Condition kNeedsSounds = Fact(&F::has_sounds, ": has no effect: {subject} feeds no files of sound");
constexpr Condition kNeedsCategories = OfValue(
    Fact(&F::has_categories, ": has no effect: no column but the label holds text (COLUMN=HOW encodes numbers)"));
constexpr Condition kNeedsGaps =
    OfValue(Fact(&F::has_gaps, ": has no effect: no column but the label can have missing values"));
constexpr Condition kNeedsNumbers =
    Fact(&F::has_numbers, ": has no effect: no column of numbers feeds an input of floats");
constexpr Condition kNeedsDecoding =
    Fact(&F::decodes, " ram: has no effect: the samples of {subject} are in memory already");
constexpr Condition kNeedsShuffle =
    OfValue(Final([](const C& c) { return c.shuffle; }, ": has no effect without `shuffle`"));
constexpr Condition kNeedsLengths =
    OfValue(Fact(&F::lengths_differ, ": has no effect: all samples have the same length"));
constexpr Condition kNeedsWorkers =
    Parsed([](const C& c) { return c.num_workers != 0; }, ": has no effect with `num_workers` 0");

constexpr Condition kNeedsClasses = Fact(&F::has_classes, ": has no effect: the `loss` has no classes");
constexpr Condition kNeedsSmoothing =
    OfLoss(&F::takes_label_smoothing, ": has no effect: the loss is not cross_entropy");
constexpr Condition kNeedsIgnoredLabels =
    OfLoss(&F::takes_ignore_index, ": has no effect: the loss has no class labels");
constexpr Condition kNeedsWeighedClasses =
    OfLoss(&F::takes_class_weights, ": has no effect: the loss has no class labels");
constexpr Condition kNeedsReference =
    OfLoss(&F::takes_reference, ": has no effect: the loss compares with no reference (dpo, ipo)");
constexpr Condition kNeedsBatchNorm = Fact(&F::has_batch_norm, ": the model has no BatchNormalization nodes");
constexpr Condition kNeedsBatchStatistics =
    Fact(&F::has_statistics, ": has no effect: the model has no BatchNormalization nodes");
constexpr Condition kNeedsDropout = Fact(&F::has_dropout, ": the model has no Dropout nodes");
constexpr Condition kNeedsLayers = OfValue(Fact(&F::has_layers, ": has no effect: the model has one layer"));
constexpr Condition kNeedsMicroBatches = Fact(&F::has_micro_batches, ": has no effect on a gradient graph");

constexpr Condition kNeedsMomentum = Final([](const C& c) { return RuleTakes(c, "momentum"); },
                                           ": has no effect: only `optimizer` sgd, rmsprop and lars have momentum");
constexpr Condition kNeedsSgdMomentum = Final([](const C& c) { return c.optimizer == "sgd" && c.momentum > 0; },
                                              ": has no effect: only `optimizer` sgd with `momentum` has it");
constexpr Condition kNeedsBetas =
    Final([](const C& c) { return RuleTakes(c, "betas"); }, ": has no effect: the `optimizer` has none");
constexpr Condition kNeedsEps =
    Final([](const C& c) { return RuleTakes(c, "eps"); }, ": has no effect: the `optimizer` has none");
constexpr Condition kNeedsGalore =
    Final([](const C& c) { return RuleTakes(c, "galore"); }, ": has no effect: only `optimizer` galore_adamw projects");
constexpr Condition kNeedsDecay =
    Final([](const C& c) { return c.weight_decay != 0; }, ": has no effect: there is no `weight_decay`");
constexpr Condition kNeedsScaledRate =
    Final([](const C& c) { return c.lr_scale != "none"; }, ": has no effect: there is no `lr_scale`");
constexpr Condition kNeedsFallingRate = Final([](const C& c) { return !HasSchedule(c, "constant"); },
                                              ": has no effect: `lr_scheduler` constant never falls");
constexpr Condition kNeedsOpenEnd =
    Final(IsNoCycle, ": has no effect: `lr_scheduler` one_cycle has an end of its own (final_div)");
constexpr Condition kNeedsOpenStart =
    Final(IsNoCycle, ": has no effect: `lr_scheduler` one_cycle rises by itself (pct)");
constexpr Condition kNeedsBudget =
    Parsed([](const C& c) { return c.memory_budget > 0; }, ": has no effect: there is no `memory_budget`");
constexpr Condition kNeedsFp16 = Parsed([](const C& c) { return c.mixed_precision == "fp16"; },
                                        ": has no effect: only `mixed_precision` fp16 scales the loss");
constexpr Condition kNeedsComparison = Final(
    ComparesEvaluations,
    ": has no effect: nothing compares evaluations (`lr_scheduler` plateau, `keep_best`, `early_stopping_patience`, "
    "`export_weights` best)");

constexpr Condition kNeedsLora =
    OfValue(Parsed([](const C& c) { return !c.lora_rank.empty(); }, ": has no effect without `lora_rank`"));

constexpr Condition kNeedsNoLora = OfValue(Parsed([](const C& c) { return c.lora_rank.empty(); },
                                                  ": has no effect beside `lora_rank`: it has ranks of its own"));

constexpr Condition kNeedsAdapters =
    OfValue(Parsed([](const C& c) { return !c.lora_rank.empty() || !c.adapter.empty(); },
                   ": has no effect without `lora_rank` or `adapter`"));

constexpr Condition kNeedsWriting =
    OfValue(Fact(&F::writes_text, ": has no effect: nothing writes text (train: `sample_prompts`)"));
constexpr Condition kNeedsMerged = OfValue(Parsed(
    [](const C& c) {
      return c.adapter_out.empty() || std::ranges::find(c.adapter_out, "merged") != c.adapter_out.end();
    },
    ": has no effect: `adapter_out` writes no merged model"));

constexpr Condition kNeedsDraws =
    OfValue(Parsed([](const C& c) { return c.temperature > 0; }, ": has no effect without `temperature`"));

constexpr Condition kNeedsModelFile =
    OfValue(Fact(&F::writes_model, ": has no effect beside `gradient_graph` and `training_graph`"));
constexpr Condition kNeedsResume =
    OfValue(Parsed([](const C& c) { return !c.resume.empty(); }, ": has no effect without `resume`"));
constexpr Condition kNeedsProfile =
    OfValue(Parsed([](const C& c) { return !c.profile.empty(); }, ": has no effect without `profile`"));
constexpr Condition kNeedsOpenOrder =
    OfValue(Parsed(IsWhole, ": has no effect with `{division}`, where every rank runs all micro-batches in one order"));
constexpr Condition kNeedsWholeModel =
    OfValue(Parsed(IsWhole, ": has no effect with `{division}`, whose ranks see whole micro-batches"));
constexpr const char* kNoRank = " {value}: this process is no rank of a distributed run (onnxtrain launch)";
constexpr Condition kNeedsParts = OfValue(Fact(&F::is_launched, kNoRank));
constexpr Condition OfRanks(bool F::*fact) {
  return {
      .fact = fact, .otherwise = kNoRank, .about = " {value}: has no effect on {subject} (`world`)", .of_value = true};
}
constexpr Condition kNeedsShards = OfRanks(&F::has_shards);
constexpr Condition kNeedsRanks = OfRanks(&F::has_ranks);
constexpr Condition kNeedsOtherRanks =
    OfValue(Fact(&F::is_launched, ": this process is no rank of a distributed run (onnxtrain launch)"));

// Fields that the C library leaves to its calling program.
constexpr Condition kNeedsModelPath = Fact(&F::is_program, ": has no effect: the model is a handle");
constexpr Condition kNeedsOwnLoading = Fact(&F::is_program, ": has no effect: the model has been loaded");
constexpr Condition kNeedsOwnPlugins = Fact(&F::is_program, ": has no effect: LoadPlugin loads it before the model");
constexpr Condition kNeedsOwnData = Fact(&F::is_program, ": has no effect: the program hands over batches");
constexpr Condition kNeedsOwnUpdates = Fact(&F::is_program, ": has no effect: the program makes the updates");
constexpr Condition kNeedsFolder = Fact(&F::has_folder, ": has no effect without the folder of a run (`out`)");
constexpr Condition kNeedsConsole = Fact(&F::is_program, ": has no effect: the library prints nothing");
constexpr Condition kNeedsOwnResult = Fact(&F::is_program, ": has no effect: the program judges results itself");
constexpr Condition kNeedsOwnProcess = Fact(&F::is_program, ": has no effect: it counts for the whole process");
constexpr Condition kNeedsGroup = Fact(&F::is_program, ": has no effect: a trainer is no rank of several");

// One field per row: group, name, tasks, needs, member, placeholder, help, traits.
// clang-format off
constexpr ConfigField kFields[] = {
    {"model", "model", kTaskAll, {&kNeedsModelPath}, &C::model, "FILE", "Path of the ONNX model", {.on_resume = kFree}},
    {"model", "out", kTaskTrain | kTaskPredict | kTaskGrad | kTaskExport | kTaskCompareRuns | kTaskTokenize,
     {&kNeedsModelFile}, &C::out,
     "PATH",
     "Output path. train: a folder (default runs/NAME-TIME); predict, grad, export, compare-runs, tokenize: a file",
     {.on_resume = kFree}},
    {"model", "overwrite", kTaskTrain | kTaskTokenize, {&kNeedsFolder}, &C::overwrite, "",
     "Replaces the run that the output folder holds, or the file", {.transient = true, .on_resume = kFree}},
    {"model", "weights", kTaskExport, {&kAlways}, &C::weights, "FILE",
     "Replaces weights by initializer name: an .npz, or another .onnx of the same architecture"},
    {"model", "export_weights", kTaskTrain, {&kAlways}, &C::export_weights, "WHICH",
     "Weights to export: last, ema (needs `ema_decay`), best (by `monitor`); auto: ema where `ema_decay` is set, else "
     "last",
     {.choices = "auto|last|ema|best", .on_resume = kFree}},
    {"model", "checkpoint", kTaskExport, {&kAlways}, &C::checkpoint, "PATH",
     "Checkpoint, or folder of a run, whose weights replace the model's"},
    {"model", "gradient_graph", kTaskExport, {&kAlways}, &C::gradient_graph, "FILE",
     "Writes loss and gradients as one ONNX model for other runtimes"},
    {"model", "training_graph", kTaskExport, {&kAlways}, &C::training_graph, "FILE",
     "Writes a training step as one ONNX model for other runtimes: from samples, labels, weights, moments and learning "
     "rate to loss, new weights and new moments"},
    {"model", "training_info", kTaskGraph, {&kAlways}, &C::training_info, "",
     "Writes the training graph as the training_info of the inference model: its initializers are updated",
     {.transient = true}},
    {"model", "input_gradients", kTaskGrad | kTaskGraph, {&kAlways}, &C::input_gradients, "",
     "Computes the gradients of the model's float inputs, too"},
    {"model", "init_from", kTaskTrain, {&kNeedsLoop}, &C::init_from, "CHECKPOINT",
     "Starts from the weights of a checkpoint, or of the newest one of a run, with a new optimizer"},
    {"model", "loss", kReads | kTaskInspect | kSynthetic, {&kAlways}, &C::loss, "NAME",
     "auto, cross_entropy, nll, bce, mse, l1, huber, focal, dice, ctc, dot, output:NAME or onnx:FILE (an ONNX model of "
     "the loss), with options: focal:gamma=2,alpha=0.25; a sum of several, each with its output and label: "
     "ce@out1+0.5*l1:label=COLUMN@out2", {.otherwise = "auto"}},
    {"model", "reference_model", kTaskTrain | kTaskEval, {&kNeedsReference}, &C::reference_model, "MODEL",
     "File or folder of the model that `loss` dpo and ipo compare with (default: train: the model before its first "
     "update; eval: the model without `adapter`, or the one that its run began with)"},
    {"model", "logits", kReads | kTaskInspect | kSynthetic | kTaskGenerate, {&kAlways}, &C::logits, "NAME",
     "Value of the model to train on, where `loss` auto cannot choose one"},
    {"model", "train", kGradients | kTaskInspect | kSynthetic, {&kAlways}, &C::train, "GLOB",
     "Trains only the weights that match by weight, node or module name; repeatable", {.repeatable = true}},
    {"model", "freeze", kGradients | kTaskInspect | kSynthetic, {&kAlways}, &C::freeze, "GLOB",
     "Does not train the weights that match; takes precedence over `train`; repeatable", {.repeatable = true}},
    {"model", "tie", kTaskAll, {&kNeedsOwnLoading}, &C::tie, "A=B",
     "Trains two initializers of equal values, or a transpose, as one weight; none: also those that the file stores "
     "twice are trained apart; repeatable", {.repeatable = true}},
    {"model", "reinit", kSurgery, {&kAlways}, &C::reinit, "GLOB",
     "Re-initializes the weights that match (Kaiming or Xavier, chosen from the consuming operator); repeatable",
     {.repeatable = true}},
    {"model", "lora_rank", kSurgery, {&kAlways}, &C::lora_rank, "[GLOB=]R",
     "Trains adapters of this rank beside products and freezes the model (LoRA); GLOB=R: of the modules that match; "
     "repeatable",
     {.repeatable = true}},
    {"model", "adapter", kSurgery | kTaskEval | kTaskPredict | kTaskGenerate, {&kNeedsNoLora}, &C::adapter, "PATH[=W]",
     "Reads an adapter: the folder adapter/ of a run, one that PEFT has written, or its .safetensors file; training "
     "continues it. Repeatable: the sum of several updates, each times W; also A*0.7+B*0.3",
     {.repeatable = true}},
    {"model", "adapter_out", kTaskTrain | kTaskExport, {&kNeedsAdapters}, &C::adapter_out, "FORM[,…]",
     "Files that are written of adapters: merged (the model with them), peft (the folder adapter/), onnx "
     "(adapter.onnx_adapter for ONNX Runtime, and the model without adapters, in which they are optional inputs)",
     {.otherwise = "merged,peft; export: merged", .on_resume = kFree}},
    {"model", "adapters", kTaskInspect, {&kAlways}, &C::adapters, "",
     "Lists the products that adapters can be trained beside, with the ranks that `lora_rank` gives them, and nothing "
     "else",
     {.transient = true}},
    {"model", "lora_alpha", kSurgery, {&kNeedsLora}, &C::lora_alpha, "A",
     "Scales adapters by A / rank", {.above = 0, .otherwise = "twice the rank"}},
    {"model", "lora_dropout", kSurgery, {&kNeedsLora}, &C::lora_dropout, "P",
     "Drops elements of the inputs of adapters with this probability in training", {.min = 0, .below = 1}},
    {"model", "lora_target", kSurgery, {&kNeedsLora}, &C::lora_target, "GLOB",
     "Modules that get adapters, by the end of their name (q_proj) or a glob, convolutions too; all-linear: every "
     "matrix product but the output layer; repeatable",
     {.otherwise = "all-linear", .repeatable = true}},
    {"model", "lora_variant", kSurgery, {&kNeedsLora}, &C::lora_variant, "WHICH",
     "lora; rslora: scales adapters by A / √rank; dora: trains the lengths of the weights of each output besides",
     {.choices = "lora|rslora|dora"}},
    {"model", "lora_init", kSurgery, {&kNeedsLora}, &C::lora_init, "HOW",
     "Initial values of A, B being zero: kaiming (uniform within 1/√inputs) or gaussian (deviation 1/rank); pissa: A "
     "and B hold the largest singular values of the weight",
     {.choices = "kaiming|gaussian|pissa"}},
    {"model", "merge", kTaskTrain | kTaskExport, {&kNeedsAdapters, &kNeedsMerged}, &C::merge, "HOW",
     "How the merged model holds adapters. auto: as sums with float weights, as nodes beside quantized ones; "
     "requantize: as sums in the blocks of quantized weights",
     {.choices = "auto|requantize", .on_resume = kFree}},
    {"model", "quantize_base", kGradients | kSynthetic | kTaskEval | kTaskPredict, {&kNeedsAdapters},
     &C::quantize_base, "FORMAT",
     "Quantizes the float weights of products in memory, beside adapters (QLoRA): int4 (blocks of 32 with zero "
     "points), int8 (a scale for each output) or nf4 (blocks of 64). The output layer and embeddings stay floats, and "
     "so does the merged model",
     {.choices = "none|int4|int8|nf4"}},
    {"model", "num_classes", kSurgery, {&kAlways}, &C::num_classes, "N|auto",
     "Replaces the last layer by one with N outputs; auto: one for each class of the labels",
     {.min = 1, .max = kBatchLimit, .word = "auto", .word_value = C::kAuto}},
    {"model", "head", kSurgery, {&kAlways}, &C::head, "HOW",
     "Appends a classifier to an encoder, behind pooling over the sequence: first position, mean or maximum",
     {.choices = "cls|mean|max"}},
    {"model", "batch_axis", kReads | kTaskInspect | kSynthetic | kTaskExport, {&kAlways}, &C::batch_axis, "WHICH",
     "auto: by the names of dimensions, by trial imports and by the data; none: a sample is the whole tensor of each "
     "input, and the model takes one sample at a time",
     {.choices = "auto|none"}},
    {"model", "batch_norm", kGradients | kSynthetic, {&kNeedsBatchNorm}, &C::batch_norm, "MODE",
     "train: batch statistics, running statistics are updated; frozen: running statistics, unchanged",
     {.choices = "train|frozen", .on_resume = kChanges}},
    {"model", "dropout", kGradients | kSynthetic, {&kNeedsDropout}, &C::dropout, "P",
     "Activates the model's Dropout nodes with this probability", {.min = 0, .below = 1, .on_resume = kChanges}},
    {"model", "dim", kReads | kTaskInspect | kSynthetic | kTaskExport, {&kAlways}, &C::dim, "NAME=N",
     "Sets a free dimension of the model's inputs; repeatable", {.repeatable = true}},

    {"data", "data", kTexts, {&kNeedsOwnData}, &C::data, "PATH",
     "Samples: .npz, .npy, .safetensors, .csv, .tsv, .jsonl, .txt (also .gz, .zst), s-{000..099}.tar, IDX, .bin (token "
     "shards); a folder of .npz, .wav, .txt or picture files, MNIST's, or test_data_set_0, …; -: a pipe (JSON lines, "
     "CSV, .npy; with `max_steps` and without `epochs`, JSON lines may never end); KIND:PATH names the kind "
     "(lines:FILE.txt: each line is a document)",
     {.on_resume = kFree}},
    {"data", "eval_data", kTaskTrain, {&kNeedsData}, &C::eval_data, "PATH",
     "Evaluation samples, used before, during and after training (an MNIST folder has its own)", {.on_resume = kFree}},
    {"data", "eval_split", kTaskTrain, {&kNeedsData, &kNeedsNoEvalData}, &C::eval_split, "F|last:F|COLUMN",
     "Holds out evaluation samples from `data`. 0.1: about a tenth, by a hash of each sample, so that samples added "
     "later move none; last:0.1: the last tenth; COLUMN: the samples "
     "where it is not 0, or test, eval, valid, dev"},
    {"data", "input", kReads | kTaskInspect | kSynthetic, {&kAlways}, &C::input, "MODEL_INPUT=COLUMN[,…]",
     "Columns of a model input; several are concatenated. NUMBER for an input without a batch axis, and @FILE.npy: a "
     "constant for all samples. Repeatable", {.repeatable = true}},
    {"data", "label", kOpens, {&kNeedsData}, &C::label, "COLUMN[,…]", "Label column, by name or 0-based index"},
    {"data", "text", kTexts, {&kNeedsData}, &C::text, "COLUMN[,PAIR]",
     "Columns of text, by name or 0-based index, that the tokenizer turns into the model's token inputs; a second one "
     "is the other text of a pair. Language models read one; of text files it is known"},
    {"data", "tokenizer", kTexts | kTaskGenerate, {&kNeedsData, &kNeedsTextColumns}, &C::tokenizer, "FILE",
     "tokenizer.json, BERT's vocab.txt, vocab.json beside merges.txt, a SentencePiece .model, a folder with one of "
     "them, or chars: a token for each character of the training text", {.otherwise = "that of preprocess.json"}},
    {"data", "prompt", kOpens | kTaskGenerate, {&kNeedsData, &kNeedsAnswers}, &C::prompt, "COLUMN",
     "The column of prompts, whose tokens a language model reads without learning them, for names other than prompt, "
     "instruction and question. With `completion`. generate: the text to answer or to continue; -: that of stdin"},
    {"data", "completion", kOpens, {&kNeedsData, &kNeedsAnswers}, &C::completion, "COLUMN",
     "The column of the answers to `prompt`"},
    {"data", "chat_template", kOpens | kTaskGenerate, {&kNeedsData, &kNeedsAnswers}, &C::chat_template, "NAME|FILE",
     "How a chat becomes text: a Jinja template in a file, or the name of a built-in one, such as chatml; an unknown "
     "name lists them",
     {.otherwise = "that of the model's folder"}},
    {"data", "chat", kTaskGenerate, {&kAlways}, &C::chat, "",
     "Converses: each line of stdin is a turn of the user"},
    {"data", "system", kTaskGenerate, {&kAlways}, &C::system, "TEXT", "The message of the system before the dialogue"},
    {"data", "max_new_tokens", kWrites, {&kNeedsWriting}, &C::max_new_tokens, "N",
     "Tokens of an answer at most", {.min = 1, .max = kBatchLimit, .on_resume = kFree}},
    {"data", "temperature", kWrites, {&kNeedsWriting}, &C::temperature, "T",
     "Draws tokens, after division of their scores by T; 0: the most probable token",
     {.min = 0, .max = 100, .on_resume = kFree}},
    {"data", "top_p", kWrites, {&kNeedsWriting, &kNeedsDraws}, &C::top_p, "P",
     "Draws among the most probable tokens that together reach the probability P",
     {.max = 1, .above = 0, .on_resume = kFree}},
    {"data", "top_k", kWrites, {&kNeedsWriting, &kNeedsDraws}, &C::top_k, "K",
     "Draws among the K most probable tokens; 0: all", {.min = 0, .on_resume = kFree}},
    {"data", "loss_on", kOpens, {&kNeedsData, &kNeedsAnswers}, &C::loss_on, "",
     "The tokens of a sample that count: those behind its prompt, those of the assistant, or all. auto: completion for "
     "prompts, assistant for chats",
     {.choices = "auto|completion|assistant|all"}},
    {"data", "truncate", kOpens, {&kNeedsData, &kNeedsAnswers}, &C::truncate, "",
     "What becomes of a chat or an answer of more than `max_length` tokens: it is left out, or loses its right or its "
     "left end",
     {.choices = "drop|right|left"}},
    {"data", "packing", kTaskTrain | kTaskEval | kTaskGrad | kTaskCompare | kTaskGraph, {&kNeedsData, &kNeedsAnswers},
     &C::packing, "[on|off|auto]",
     "Puts several chats or answers into one row of `max_length` tokens, where they do not see each other and "
     "positions begin at 0; `batch_size` counts rows. auto: in training, if the model can separate them and the rows "
     "fill a batch",
     {.choices = "on|off|auto"}},
    {"data", "max_length", kOpens, {&kNeedsData, &kNeedsTextColumns}, &C::max_length, "N",
     "Tokens of a sample, special ones included; longer texts are truncated, and cut into several samples for language "
     "models. auto: as many as the model has positions for", {.min = 1, .max = kBatchLimit, .otherwise = "auto"}},
    {"data", "length_grouping", kTaskTrain, {&kNeedsData, &kNeedsShuffle, &kNeedsLengths}, &C::length_grouping, "",
     "Batches samples of similar length, which are padded less; the batches stay in random order"},
    {"data", "max_tokens_per_batch", kTaskTrain, {&kNeedsData}, &C::max_tokens_per_batch, "N",
     "Tokens of a batch, padding included, in place of `batch_size`, which becomes an upper limit: batches hold "
     "samples of similar length, many short ones or few long ones",
     {.min = 1, .max = 1e12, .otherwise = "none"}},
    {"data", "class_map", kLabels | kTaskPredict, {&kNeedsData, &kNeedsClasses}, &C::class_map, "FILE",
     "Order of the classes: a name per line, or name,index (default: as in training, in the model, else sorted). With "
     "`loss` ctc the characters of the classes: a line for each, vocab.json or tokens.txt"},
    {"data", "header", kTexts, {&kNeedsData}, &C::header, "WHETHER",
     "Whether the first line of a CSV file names the columns", {.choices = "auto|yes|no"}},
    {"data", "encoding", kTexts, {&kNeedsData, &kNeedsTextFile}, &C::encoding, "NAME",
     "Encoding of files of text, as ICU names it: latin1, cp1251, gb18030, Shift_JIS",
     {.otherwise = "UTF-8; UTF-16 with a byte order mark; what is neither, Windows-1252"}},
    {"data", "encode", kTaskTrain, {&kNeedsData, &kNeedsCategories}, &C::encode, "[COLUMN=]HOW",
     "Encodes columns of categories, all columns of text or COLUMN. onehot: an input value for each category; index: "
     "its place among the sorted categories; repeatable", {.repeatable = true}},
    {"data", "fill", kTaskTrain, {&kNeedsData, &kNeedsGaps}, &C::fill, "[COLUMN=]HOW",
     "Fills missing values of all columns or of COLUMN, as the training samples have it: mean, median, most_frequent "
     "or a number; missing categories become the most frequent one; repeatable", {.repeatable = true}},
    {"data", "standardize", kTaskTrain, {&kNeedsData, &kNeedsNumbers}, &C::standardize, "",
     "Standardizes numbers that are no pixels: subtracts each column's mean over the training samples and divides by "
     "its standard deviation"},
    {"data", "scale_targets", kTaskTrain, {&kNeedsData}, &C::scale_targets, "",
     "Trains a regression on standardized targets; the last layer of the exported model predicts in the original unit"},
    {"data", "on_bad_sample", kRuns | kTaskTokenize, {&kNeedsData}, &C::on_bad_sample, "WHAT",
     "A sample that cannot be read or used (NaN, a label or index out of range). abort: ends the run; skip: leaves it "
     "out, and says how many", {.choices = "abort|skip"}},
    {"data", "normalize", kRuns | kTaskBench, {&kNeedsData, &kNeedsImages}, &C::normalize, "HOW",
     "Normalization of 8-bit pixels. unit: 0–1; raw: 0–255; imagenet; MEAN/STD per channel on 0–1: 0.1307/0.3081",
     {.otherwise = "unit"}},
    {"data", "image_size", kOpens, {&kNeedsData, &kNeedsPictures}, &C::image_size, "N|HxW|Hxauto",
     "Height and width of the samples that files of pictures become, where the model leaves them open; Hxauto: their "
     "height, with widths that keep the proportions",
     {.otherwise = "pictures keep their sizes, where the model takes several"}},
    {"data", "resize", kRuns | kTaskBench, {&kNeedsData, &kNeedsPictures}, &C::resize, "HOW",
     "How a picture of other proportions fills a sample. crop: cuts the sides off; stretch: changes the proportions; "
     "pad: adds black bars", {.choices = "stretch|crop|pad", .otherwise = "crop"}},
    {"data", "channel_order", kRuns | kTaskBench, {&kNeedsData, &kNeedsPictures}, &C::channel_order, "ORDER",
     "Order of the color channels that the model takes from files of pictures",
     {.choices = "rgb|bgr", .otherwise = "rgb"}},
    {"data", "augment", kTaskTrain | kTaskBench, {&kNeedsData, &kNeedsPixels}, &C::augment, "HOW[,…]",
     "Changes training pictures at random, as a function of seed, epoch and sample: crop[:MIN[-MAX]] (a part of this "
     "share of the area, default 0.08-1), flip[:P], vflip[:P], rotate:DEGREES, color[:X], randaugment[:N[/M]], "
     "erase[:P]; mixup[:ALPHA], cutmix[:ALPHA] (mix the samples of a batch, and their labels)"},
    {"data", "decode_scaling", kTaskTrain, {&kNeedsLoop, &kNeedsPictures}, &C::decode_scaling, "",
     "Decodes JPEG files at a half, a quarter or an eighth of their size where that is enough: faster, other pixels"},
    {"data", "sample_rate", kOpens, {&kNeedsData, &kNeedsSounds}, &C::sample_rate, "HZ",
     "Sample rate of sounds; files of another one are resampled", {.min = 1, .max = 1 << 20,
      .otherwise = "that of the model's metadata, else of the files"}},
    {"data", "audio_length", kOpens, {&kNeedsData, &kNeedsSounds}, &C::audio_length, "N|SECONDSs|auto",
     "Length of sounds in frames, or in seconds as in 1.5s; longer ones are cut at their end, shorter ones padded with "
     "zeros. auto: sounds of one channel keep their lengths",
     {.otherwise = "that of the model's input, else of the files; with labels that are texts, auto"}},
    {"data", "spectrogram", kOpens, {&kNeedsData, &kNeedsSounds}, &C::spectrogram, "STYLE",
     "Spectrograms that the model takes in place of sounds, as the feature extractors of these models compute them. "
     "nemo: Citrinet, Conformer, Parakeet; seamless: Wav2Vec2-BERT; s2t: Speech2Text; none: sounds themselves",
     {.choices = "auto|none|whisper|nemo|ast|seamless|s2t",
      .otherwise = "that of the model's processor, or NeMo's for an input audio_signal"}},
    {"data", "shuffle", kTaskTrain, {&kNeedsData}, &C::shuffle, "", "Shuffles the samples in every epoch"},
    {"data", "drop_last", kTaskTrain, {&kNeedsLoop}, &C::drop_last, "",
     "Drops the last batch of an epoch if it is short"},
    {"data", "cache", kTaskTrain, {&kNeedsData, &kNeedsDecoding}, &C::cache, "none|ram[:SIZE]",
     "ram: keeps decoded samples in memory, up to SIZE bytes (ram:2GiB; default: half of what is free)",
     {.on_resume = kFree}},
    {"data", "dump_order", kTaskTrain, {&kNeedsOwnUpdates}, &C::dump_order, "FILE",
     "Writes the samples of each update: update, epoch and place in the data, separated by tabs",
     {.on_resume = kFree}},
    {"data", "num_workers", kTaskTrain | kTaskEval, {&kNeedsLoop}, &C::num_workers, "N|auto",
     "Threads that read and convert samples; 0: the training thread does it; auto: one more as long as the step waits "
     "for data and that helps",
     {.min = 0, .max = 1024, .word = "auto", .word_value = C::kAuto, .on_resume = kFree}},
    {"data", "prefetch_factor", kTaskTrain, {&kNeedsLoop, &kNeedsWorkers}, &C::prefetch_factor, "N",
     "Batches that each worker prepares ahead", {.min = 1, .max = 1024, .on_resume = kFree}},

    {"step", "batch_size", kReads | kSynthetic, {&kAlways}, &C::batch_size, "N",
     "Global batch: samples per update (train, plan, bench) or run (eval, predict); samples in all: grad (default "
     "all), compare (default 8; with `reference` all); the one size that a graph takes: export (default: any)",
     {.min = 1, .max = kBatchLimit, .otherwise = "32"}},
    {"step", "micro_batch_size", kSteps | kTaskGrad, {&kNeedsMicroBatches}, &C::micro_batch_size, "N|auto",
     "Samples per forward and backward pass (default: the global batch); auto: as many as fit the memory",
     {.min = 1, .max = kBatchLimit, .word = "auto", .word_value = C::kAuto, .on_resume = kChanges}},
    {"step", "gradient_accumulation_steps", kSteps, {&kAlways}, &C::gradient_accumulation_steps, "N",
     "Micro-batches per update", {.min = 1, .max = 1 << 20, .otherwise = "1", .on_resume = kChanges}},
    {"step", "mixed_precision", kSteps | kTaskGenerate, {&kAlways}, &C::mixed_precision, "PRECISION",
     "Computes matrix products and convolutions in bf16 or fp16; weights, their gradients, norms and sums stay "
     "float32; auto: bf16 where it is faster; fp16 is emulated on a CPU, to show its effect on a model; tf32: float32, "
     "but factors are rounded to 10 bits, on CUDA devices alone (otherwise never done)",
     {.choices = "no|tf32|bf16|fp16|auto"}},
    {"step", "weight_dtype", kSteps, {&kAlways}, &C::weight_dtype, "TYPE",
     "Type of trained matrices between updates; bf16: half the memory, without float32 masters; an update computes in "
     "float32 and rounds stochastically (use with `mixed_precision` bf16, which needs no other copies)",
     {.choices = "float32|bf16"}},
    {"step", "loss_scale", kSteps, {&kNeedsFp16}, &C::loss_scale, "dynamic|X",
     "Factor of the loss in fp16; dynamic: starts at 65536, is halved after a non-finite gradient and doubled after "
     "2000 updates without one", {.above = 0, .word = "dynamic"}},
    {"step", "on_nonfinite", kTaskTrain, {&kNeedsLoop}, &C::on_nonfinite, "WHAT",
     "skip: skips an update whose gradient is not finite (20 in a row end the run); abort: ends the run",
     {.choices = "skip|abort", .on_resume = kChanges}},
    {"step", "gradient_checkpointing", kSteps, {&kAlways}, &C::gradient_checkpointing, "HOW",
     "What the backward pass recomputes instead of keeping it. none; auto: as little as the memory allows; sqrt: all "
     "but the borders of √n segments; all: everything cheap; budget: as auto, within `memory_budget`",
     {.choices = "none|auto|sqrt|all|budget", .on_resume = kFree}},
    {"step", "memory_budget", kSteps, {&kAlways}, &C::memory_budget, "BYTES",
     "Memory that training may use in all: 900MiB, 2GiB (default: what is free)",
     {.min = 1, .unit = Unit::kBytes, .on_resume = kFree}},
    {"step", "allow_lossy_memory", kSteps, {&kNeedsBudget}, &C::allow_lossy_memory, "",
     "Lets `memory_budget` take what changes numbers, too, if nothing else fits: 8-bit moments, bf16 weights, "
     "gradients of low rank, Adafactor",
     {.on_resume = kFree}},
    {"run", "ladder", kTaskPlan | kTaskBench, {&kAlways}, &C::ladder, "",
     "Shows every way to train this model within less memory: bytes by kind, time, and what it changes in the "
     "numbers; plan shows adapters beside the frozen model, too",
     {.transient = true, .on_resume = kFree}},
    {"step", "activation_offloading", kSteps, {&kAlways}, &C::activation_offloading, "WHEN",
     "Keeps activations, and gradients that wait for the update, in a file (in the folder TMPDIR, or /var/tmp) where "
     "recomputation does not make enough room; on the backend cpu. yes; no; auto: if `memory_budget` needs it",
     {.choices = "auto|yes|no", .on_resume = kFree}},
    {"step", "optimizer_in_backward", kSteps, {&kAlways}, &C::optimizer_in_backward, "WHEN",
     "Updates each weight during the backward pass, so that few gradients are in memory at a time. yes; no; auto: if "
     "`memory_budget` needs it. Where the norm of all gradients matters, another backward pass finds it first "
     "(`max_grad_norm` 0: none)",
     {.choices = "auto|yes|no", .on_resume = kFree}},
    {"step", "max_grad_norm", kRules, {&kAlways}, &C::max_grad_norm, "X",
     "Clips gradients to this global norm; 0: off (default where `clip_value` or `agc` is set)",
     {.min = 0, .otherwise = "1", .on_resume = kChanges}},
    {"step", "clip_value", kRules, {&kAlways}, &C::clip_value, "X", "Clips each element of a gradient to ±X; 0: off",
     {.min = 0, .on_resume = kChanges}},
    {"step", "agc", kRules, {&kAlways}, &C::agc, "RATIO",
     "Adaptive gradient clipping: limits the norm of an output unit's gradient to RATIO times that of its weights; 0: "
     "off", {.min = 0, .on_resume = kChanges}},
    {"step", "optimizer", kRules, {&kAlways}, &C::optimizer, "NAME",
     "sgd, adam, adamw, rmsprop, adagrad, lion, lamb, lars, adafactor, adafactor_unscaled (whose rate does not follow "
     "the weights), muon, schedule_free_adamw, galore_adamw (moments of projected gradients), adamw8bit or lion8bit "
     "(moments of 8 bits) or onnx:FILE (an ONNX model of the update rule; onnx:model: that of the model's "
     "training_info, the default where it has one)",
     {.choices = "sgd|adam|adamw|rmsprop|adagrad|lion|lamb|lars|adafactor|adafactor_unscaled|muon|schedule_free_adamw|"
                 "galore_adamw|adamw8bit|lion8bit",
      .also = NamesOnnxRule,
      .also_text = " or onnx:FILE"}},
    {"step", "lr", kTaskTrain | kTaskGraph, {&kAlways}, &C::lr, "[GLOB=]X",
     "Learning rate; auto: 1e-3 for random weights, 1e-4 for a pre-trained model, 2e-5 for a pre-trained transformer, "
     "ten times that for its new head, and in long runs of sgd by `lr_find`; GLOB=X: of the weights that match; "
     "repeatable",
     {.otherwise = "auto", .repeatable = true, .on_resume = kChanges}},
    {"step", "lr_find", kTaskTrain, {&kNeedsLoop}, &C::lr_find, "",
     "Finds the learning rate by a range test: some hundred updates on a copy of the model, at rates that rise from "
     "1e-6 to 10 times the usual ones; takes the rate where the loss falls fastest",
     {.transient = true, .decides = true, .on_resume = kFree}},
    {"step", "momentum", kTaskTrain | kTaskGraph, {&kNeedsMomentum}, &C::momentum, "X",
     "Momentum of sgd, rmsprop, lars and muon; auto: 0, for lars 0.9, for muon 0.95",
     {.min = 0, .below = 1, .word = "auto", .word_value = -1, .on_resume = kChanges}},
    {"step", "dampening", kTaskTrain | kTaskGraph, {&kNeedsSgdMomentum}, &C::dampening, "X",
     "Dampening of the momentum of sgd",
     {.min = 0, .max = 1, .on_resume = kChanges}},
    {"step", "nesterov", kTaskTrain | kTaskGraph, {&kNeedsSgdMomentum}, &C::nesterov, "", "Nesterov momentum for sgd",
     {.on_resume = kChanges}},
    {"step", "betas", kTaskTrain | kTaskGraph, {&kNeedsBetas}, &C::betas, "A,B",
     "Decay rates of the moment estimates of adam, adamw, lamb, lion, muon and galore_adamw; rmsprop uses the second; "
     "auto: 0.9,0.999, for lion and rmsprop 0.9,0.99",
     {.min = 0, .below = 1, .word = "auto", .on_resume = kChanges}},
    {"step", "eps", kTaskTrain | kTaskGraph, {&kNeedsEps}, &C::eps, "X",
     "Epsilon in the denominator of the update; auto: 1e-8, for adagrad 1e-10, for lamb 1e-6",
     {.min = 0, .word = "auto", .word_value = -1, .on_resume = kChanges}},
    {"step", "galore_rank", kRules, {&kNeedsGalore}, &C::galore_rank, "N",
     "Rank of the projected gradients of galore_adamw: of matrices whose sides both exceed it, except embeddings and "
     "output layers", {.min = 1}},
    {"step", "galore_update_proj_gap", kRules, {&kNeedsGalore}, &C::galore_update_proj_gap, "N",
     "Updates between two projections of galore_adamw", {.min = 1, .on_resume = kChanges}},
    {"step", "galore_scale", kRules, {&kNeedsGalore}, &C::galore_scale, "X",
     "Factor of the updates of weights with projected gradients", {.above = 0, .on_resume = kChanges}},
    {"step", "weight_decay", kRules, {&kAlways}, &C::weight_decay, "X",
     "Weight decay: L2 for sgd, adam, rmsprop, adagrad and lars; decoupled for the others",
     {.min = 0, .on_resume = kChanges}},
    {"step", "no_decay", kTaskTrain | kTaskGraph, {&kNeedsDecay}, &C::no_decay, "auto|none|GLOB",
     "Weights without weight decay. auto: rank ≤ 1 and names that end in bias; none; or a glob of weights",
     {.on_resume = kChanges}},
    {"step", "lr_scale", kTaskTrain, {&kAlways}, &C::lr_scale, "HOW",
     "Scales the learning rate with the batch: linear (× batch/base), sqrt (× √(batch/base)) or auto (linear for sgd "
     "and lars, sqrt for the others)", {.choices = "none|linear|sqrt|auto", .on_resume = kChanges}},
    {"step", "lr_scale_base", kTaskTrain, {&kNeedsScaledRate}, &C::lr_scale_base, "N",
     "Batch size that `lr` is meant for", {.min = 1, .max = kBatchLimit, .on_resume = kChanges}},
    {"step", "layer_lr_decay", kTaskTrain | kTaskGraph, {&kNeedsLayers}, &C::layer_lr_decay, "D",
     "Multiplies each layer's learning rate by D relative to the next layer (layer-wise decay)",
     {.min = 1e-6, .max = 1, .on_resume = kChanges}},
    {"step", "ema_decay", kTaskTrain | kTaskGraph, {&kAlways}, &C::ema_decay, "D",
     "Keeps an exponential moving average of the weights, e = D·e + (1 − D)·w after each update, and evaluates it; 0: "
     "off", {.min = 0, .below = 1}},
    {"step", "lr_scheduler", kTaskTrain, {&kAlways}, &C::lr_scheduler, "NAME[:OPTIONS]",
     "constant, linear, cosine, cosine_restarts, polynomial, step, multistep, exponential, inverse_sqrt, plateau, "
     "one_cycle, wsd, wsd_cosine or wsd_sqrt, with options: step:size=1000,gamma=0.5", {.on_resume = kChanges}},
    {"step", "warmup", kTaskTrain, {&kNeedsOpenStart}, &C::warmup, "N|RATIO",
     "Updates over which the learning rate rises from 0; below 1: fraction of the run",
     {.min = 0, .on_resume = kChanges}},
    {"step", "min_lr", kTaskTrain, {&kNeedsFallingRate, &kNeedsOpenEnd}, &C::min_lr, "X",
     "Lower bound of the learning rate, where linear, cosine, polynomial and wsd end",
     {.min = 0, .on_resume = kChanges}},
    {"step", "label_smoothing", kLabels, {&kNeedsSmoothing}, &C::label_smoothing, "X",
     "Label smoothing of cross_entropy", {.min = 0, .below = 1, .on_resume = kChanges}},
    {"step", "class_weights", kLabels, {&kNeedsWeighedClasses}, &C::class_weights, "W0,W1,…",
     "Weight of each class in cross_entropy and nll, in order", {.min = 0, .on_resume = kChanges}},
    {"step", "ignore_index", kLabels, {&kNeedsIgnoredLabels}, &C::ignore_index, "LABEL",
     "Label that cross_entropy and nll leave out"},
    {"step", "epochs", kTaskTrain, {&kNeedsDataOrSteps}, &C::epochs, "N", "Passes over the data",
     {.min = 1, .max = 1e9, .otherwise = "3", .on_resume = kChanges}},
    {"step", "max_steps", kTaskTrain | kTaskBench, {&kAlways}, &C::max_steps, "N",
     "Stops after N updates, or after `epochs` where that comes first; without `epochs`: trains exactly N",
     {.min = 1, .max = 1e15, .on_resume = kChanges}},
    {"step", "max_time", kTaskTrain, {&kNeedsLoop}, &C::max_time, "TIME",
     "Stops after this time: 90s, 10m, 2h", {.above = 0, .unit = Unit::kSeconds, .on_resume = kFree}},
    {"step", "seed", kGradients | kSynthetic | kSurgery | kWrites, {&kAlways}, &C::seed, "N",
     "Seed of the data order, dropout, new weights, synthetic data and drawn tokens", {.min = 0}},

    {"run", "backend", kSteps | kTaskInspect | kRuns | kTaskGenerate, {&kAlways}, &C::backend, "NAME",
     "auto (torch where there is a GPU, else cpu), cpu or torch; or a library of your own: path/libX.so. compare: the "
     "one to compare with cpu; auto: all that are installed",
     {.choices = "auto|cpu|torch",
      .also = IsPluginPath,
      .also_text = " or the path of a library",
      .on_resume = kChanges}},
    {"run", "plugin", kTaskAll, {&kNeedsOwnPlugins}, &C::plugin, "LIBRARY",
     "Loads a library with operators of other domains that the model uses; repeatable",
     {.repeatable = true, .on_resume = kChanges}},
    {"run", "device", kRuns | kSynthetic | kTaskGenerate, {&kAlways}, &C::device, "NAME",
     "auto, cpu or cuda:N (experimental)", {.on_resume = kChanges}},
    {"run", "threads", kRuns | kSynthetic | kTaskTokenize | kTaskGenerate, {&kAlways}, &C::threads, "N",
     "CPU threads (default: what affinity, cgroup and OMP_NUM_THREADS allow, fewer for a small model)",
     {.min = 1, .max = 4096, .on_resume = kChanges}},
    {"run", "log_every", kTaskTrain, {&kNeedsFolder}, &C::log_every, "INTERVAL",
     "Updates (500), epochs (0.1ep) or time (10m) between progress lines; auto: about 20 an epoch",
     {.word = "auto", .on_resume = kFree}},
    {"run", "eval_every", kTaskTrain, {&kNeedsLoop, &kNeedsEval}, &C::eval_every, "INTERVAL",
     "Updates (500), epochs (1ep) or time (10m) between evaluations", {.on_resume = kChanges}},
    {"run", "sample_prompts", kTaskTrain, {&kNeedsOwnUpdates, &kNeedsEval}, &C::sample_prompts, "FILE|N",
     "Answers prompts at every evaluation of a language model: those of a file (JSON lines, CSV, lines of text …), or "
     "the first N of the evaluation data", {.on_resume = kFree}},
    {"run", "save_every", kTaskTrain, {&kNeedsFolder, &kNeedsCheckpoints}, &C::save_every, "INTERVAL",
     "Time (10m), updates (500) or epochs (1ep) between checkpoints; end: only when the run ends or is stopped",
     {.word = "end", .on_resume = kFree}},
    {"run", "keep_last", kTaskTrain, {&kNeedsFolder, &kNeedsCheckpoints}, &C::keep_last, "N",
     "Newest checkpoints to keep",
     {.min = 1, .max = 1 << 20, .on_resume = kFree}},
    {"run", "keep_best", kTaskTrain, {&kNeedsOwnUpdates, &kNeedsEval}, &C::keep_best, "N",
     "Checkpoints of the best evaluations, by `monitor`, to keep besides",
     {.min = 0, .max = 1 << 20, .on_resume = kFree}},
    {"run", "checkpoint_compression", kTaskTrain, {&kNeedsFolder}, &C::checkpoint_compression, "none|zstd",
     "Compresses the tensors of checkpoints: less space on the disk, more time of a core in the background",
     {.choices = "none|zstd", .on_resume = kFree}},
    {"run", "resume", kTaskTrain, {&kNeedsFolder}, &C::resume, "[auto|PATH]",
     "Continues a run exactly. auto, or no value: the one in `out`, from its newest valid checkpoint; starts where "
     "there is none, does nothing where it is finished. PATH: a checkpoint, or the folder of a run",
     {.transient = true, .on_resume = kFree}},
    {"run", "resume_force", kTaskTrain, {&kNeedsFolder, &kNeedsResume}, &C::resume_force, "",
     "Resumes although the data, the model or fields that make another run have changed, and says what it ignores",
     {.transient = true, .on_resume = kFree}},
    {"run", "early_stopping_patience", kTaskTrain, {&kNeedsLoop, &kNeedsEval}, &C::early_stopping_patience, "N",
     "Stops after N evaluations in a row that are no better, by `monitor`",
     {.min = 1, .max = 1 << 20, .on_resume = kFree}},
    {"run", "world", kTaskPlan, {&kAlways}, &C::world, "N",
     "Plans for one of N ranks of a distributed run, which share every batch",
     {.min = 1, .max = 1 << 20, .transient = true, .on_resume = kFree}},
    {"run", "shard", kTaskTrain | kTaskPlan, {&kNeedsShards}, &C::shard, "none|optimizer|gradients|full|auto",
     "optimizer: each rank of a distributed run keeps and updates the moments of a share of the weights, and gets the "
     "others' weights after the update; gradients: it keeps the gradients of that share alone, too; full: it keeps "
     "that share of large weights alone, and gathers each where it is used; auto: the first with which a rank takes at "
     "most half of its memory",
     {.choices = "none|optimizer|gradients|full|auto", .on_resume = kFree}},
    {"run", "pipeline", kTaskTrain | kTaskPlan, {&kNeedsParts}, &C::pipeline, "P",
     "Cuts the model into P stages of equal predicted time, each on a rank of its own, which holds the weights of its "
     "stage alone; micro-batches pass through them (by default, at least 4 P make a batch)",
     {.min = 1, .max = 1 << 10, .on_resume = kFree}},
    {"run", "tensor", kTaskTrain | kTaskPlan, {&kNeedsParts}, &C::tensor, "T",
     "Divides the layers of the model among T ranks: heads of attention, columns and rows of products, channels of "
     "convolutions, rows of embeddings; each rank holds its part of their weights alone, and runs all samples",
     {.min = 1, .max = 1 << 10, .on_resume = kFree}},
    {"run", "comm_dtype", kTaskTrain | kTaskPlan, {&kNeedsRanks}, &C::comm_dtype, "f32|bf16",
     "What the ranks of a distributed run send of float32 gradients; bf16: rounded, half the bytes, summed in float32",
     {.choices = "f32|bf16", .on_resume = kChanges}},
    {"run", "deterministic", kTaskTrain | kTaskPlan, {&kNeedsOpenOrder}, &C::deterministic, "",
     "Sums micro-batches in an order that does not depend on the number of ranks, each of which computes whole ones: "
     "the same bits for any number, with the same `threads` and `micro_batch_size`",
     {.on_resume = kChanges}},
    {"run", "sync_batch_norm", kTaskTrain | kTaskPlan, {&kNeedsWholeModel, &kNeedsBatchStatistics}, &C::sync_batch_norm,
     "",
     "Batch normalization in training takes the statistics of what all ranks compute at the same time, not those of "
     "each rank's samples",
     {.on_resume = kChanges}},
    {"run", "compare_weights_every", kTaskTrain, {&kNeedsOtherRanks}, &C::compare_weights_every, "N",
     "Updates between comparisons of the weights of all ranks of a distributed run, which ends where they differ",
     {.min = 1, .otherwise = "never", .on_resume = kFree}},
    {"run", "comm_interface", kTaskTrain, {&kNeedsGroup}, &C::comm_interface, "NAME",
     "Network interface, or address of this machine, through which the ranks of a distributed run talk (default: "
     "GLOO_SOCKET_IFNAME, else loopback where all ranks are on one machine)",
     {.transient = true, .on_resume = kFree}},
    {"run", "comm_timeout", kTaskTrain, {&kNeedsGroup}, &C::comm_timeout, "TIME",
     "Ends a distributed run where a rank does not answer for this time",
     {.above = 0, .transient = true, .unit = Unit::kSeconds, .on_resume = kFree}},
    {"run", "quiet", kReads | kTaskBench | kTaskTokenize | kTaskGenerate, {&kNeedsConsole}, &C::quiet, "",
     "Prints no start page and no progress",
     {.transient = true, .on_resume = kFree}},
    {"run", "verbose", kTaskTrain, {&kNeedsConsole}, &C::verbose, "",
     "Prints the whole start page, with a list of all defaults, and every progress line",
     {.transient = true, .on_resume = kFree}},
    {"run", "dry_run", kTaskTrain, {&kNeedsConsole}, &C::dry_run, "",
     "Plans the run, prints the plan and ends, as 'onnxtrain plan' does",
     {.transient = true, .on_resume = kFree}},
    {"run", "json", kSteps | kTaskEval | kTaskInspect | kTaskCompare | kTaskCompareRuns, {&kNeedsConsole}, &C::json, "",
     "Prints the result as JSON", {.transient = true, .on_resume = kFree}},
    {"run", "verify_passes", kTaskAll, {&kNeedsOwnProcess}, &C::verify_passes, "",
     "Verifies the graph after every pass (frontend/passes), for debugging", {.transient = true, .on_resume = kFree}},
    {"run", "auto", kTaskTrain, {&kNeedsLoop}, &C::automatic, "",
     "Chooses what is not given of `mixed_precision`, `micro_batch_size`, `gradient_checkpointing`, `num_workers`, "
     "`threads` and `lr_scale` from plans and short measurements, and says why",
     {.transient = true, .decides = true, .on_resume = kFree}},
    {"run", "steps_only", kTaskBench, {&kAlways}, &C::steps_only, "", "Times whole steps and nothing else"},
    {"run", "monitor", kTaskTrain, {&kNeedsLoop, &kNeedsComparison}, &C::monitor, "METRIC[:min|:max]",
     "Metric by which evaluations are compared (`lr_scheduler` plateau, `keep_best`, `early_stopping_patience`): loss, "
     "accuracy or one of `metrics`, minimized or maximized", {.on_resume = kChanges}},
    {"run", "metrics", kTaskTrain | kTaskEval, {&kNeedsLoop, &kNeedsEval}, &C::metrics, "NAME[,…]",
     "Metrics of evaluations besides the loss: accuracy, topK (top5), f1, f1_macro, auc, perplexity; of numbers "
     "mae, rmse, r2, also of each target (rmse_0; default for regressions: rmse,r2); of one of several outputs: "
     "f1@OUTPUT", {.on_resume = kFree}},
    {"run", "plot", kTaskPlan, {&kAlways}, &C::plot, "FILE", "Plots live memory over the step as SVG"},
    {"run", "runs", kTaskMonitor | kTaskCompareRuns, {&kAlways}, &C::runs, "RUN",
     "Folder of a run; the words behind the subcommand are RUNs too", {.repeatable = true, .transient = true}},
    {"run", "require", kTaskTrain | kTaskEval, {&kNeedsOwnResult}, &C::require, "'METRIC>=X'",
     "Exits with 3 unless the result meets it: 'accuracy>=0.97'; repeatable", {.repeatable = true, .on_resume = kFree}},
    {"run", "profile", kTaskTrain, {&kNeedsOwnUpdates}, &C::profile, "FILE.json",
     "Writes what the threads do and when, down to the operators of `profile_steps`, as a Chrome trace "
     "(chrome://tracing, ui.perfetto.dev), and prints the operators that take the most time",
     {.transient = true, .on_resume = kFree}},
    {"run", "profile_steps", kTaskTrain, {&kNeedsOwnUpdates, &kNeedsProfile}, &C::profile_steps, "A-B",
     "Updates whose operators are recorded, the first is 1",
     {.otherwise = "the third to the fifth of this process", .transient = true, .on_resume = kFree}},
    {"run", "histogram_every", kTaskTrain, {&kNeedsOwnUpdates}, &C::histogram_every, "INTERVAL",
     "Updates (500), epochs (1ep) or time (10m) between histograms of weights and gradients for TensorBoard",
     {.word = "never", .on_resume = kFree}},
    {"run", "reference", kTaskCompare, {&kAlways}, &C::reference, "FILE",
     "Compares with an .npz of outputs by name, loss and grad:NAME (as grad writes it)"},
    {"run", "gradcheck", kTaskCompare, {&kAlways}, &C::gradcheck, "N",
     "Checks N coordinates per parameter against float64 central differences", {.min = 1, .max = 1 << 20}},
};
// clang-format on

}  // namespace

std::span<const ConfigField> ConfigFields() { return kFields; }

const ConfigField* FindField(std::string_view name) {
  for (const ConfigField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace onnxtrain
