#include "tools/onnxtrain/flags.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "gflags/gflags.h"

DEFINE_string(model, "", "the ONNX model");
DEFINE_string(out, "", "where results go: train: a folder (default runs/NAME-TIME); predict, grad, export: a file");
DEFINE_bool(overwrite, false, "a folder that holds a run already may be written again");
DEFINE_string(loss, "auto",
              "auto, cross_entropy, nll, bce, mse, l1, huber, focal, dice, ctc, output:NAME or onnx:FILE (a model of the loss), with options: focal:gamma=2,alpha=0.25; sums of "
              "several, each on its output and label: ce@out1+0.5*l1:label=COLUMN@out2");
DEFINE_string(logits, "", "the value of the model to train on, when auto cannot tell");
DEFINE_string(train, "", "train only these: matches weight, node and module names; repeatable");
DEFINE_string(freeze, "", "do not train these; wins over --train; repeatable");
DEFINE_string(reinit, "", "draw these weights anew before training (globs as for --train); repeatable");
DEFINE_string(num_classes, "", "a new last layer of N outputs; auto: as many as the labels have classes");
DEFINE_string(head, "", "appends pooling over the sequence (first position, mean or maximum) and a classifier to an encoder");
DEFINE_string(batch_norm, "train", "train: batch statistics, running ones updated; frozen: running statistics, kept");
DEFINE_double(dropout, 0, "activates the model's Dropout nodes with this probability");
DEFINE_string(dim, "", "the value of a free dimension of the model's inputs; repeatable");
DEFINE_string(weights, "", "new values by initializer name: an .npz, or another .onnx of the same architecture");

DEFINE_string(data, "", ".npz, .npy, .csv, .tsv, idx file or MNIST folder (also .gz)");
DEFINE_string(eval_data, "", "evaluated before, during and after training (an MNIST folder brings its own)");
DEFINE_string(eval_split, "", "0.1: keeps a random tenth of --data for evaluation; last:0.1: its end; "
              "COLUMN: the samples where it is not 0, or test, eval, valid, dev");
DEFINE_string(input, "", "which columns feed a model input; several are concatenated; repeatable");
DEFINE_string(label, "", "the label column, by name or 0-based index");
DEFINE_string(header, "auto", "auto, yes or no: does the first line of a CSV file name the columns?");
DEFINE_string(normalize, "unit",
              "of 8-bit pixels. unit: 0–1; raw: 0–255; imagenet; MEAN/STD per channel on 0–1: 0.1307/0.3081");
DEFINE_bool(shuffle, true, "a new order in every epoch");
DEFINE_bool(drop_last, false, "leave out the last batch of an epoch if it is short");
DEFINE_string(num_workers, "auto", "threads that read and convert samples");
DEFINE_int64(prefetch_factor, 2, "batches that each worker prepares ahead");

DEFINE_int64(
    batch_size, 32,
    "samples per update (train) or run (eval, predict); in all: grad (all of them), compare (8; with --reference all)");
DEFINE_string(micro_batch_size, "", "samples that go through the model at once (default: the whole batch); auto: as many as fit the memory");
DEFINE_int64(gradient_accumulation_steps, 1, "micro-batches per update");
DEFINE_string(mixed_precision, "no",
              "products and convolutions compute in bf16 or fp16; weights, their gradients, norms and sums stay float32; auto: bf16 "
              "where this is faster; fp16 on a CPU is emulated, to see what it does to a model");
DEFINE_string(loss_scale, "dynamic", "of fp16: gradients are made of a loss that is so much larger; dynamic: 65536, halved whenever "
              "one is not finite, doubled after 2000 updates without");
DEFINE_string(on_nonfinite, "skip", "an update whose gradient is not finite is skipped (20 in a row end the run), or aborts the run");
DEFINE_string(gradient_checkpointing, "auto",
              "what the backward pass computes again instead of keeping it. none; auto: as little as fits the memory; sqrt: all but the "
              "borders of √n segments; all: whatever is cheap; budget: as auto, for --memory-budget");
DEFINE_string(memory_budget, "", "bytes that training may take in all: 900MiB, 2GiB (default: what is free)");
DEFINE_double(max_grad_norm, 1.0, "gradients of a larger global norm are scaled down to it; 0: never");
DEFINE_double(clip_value, 0, "elements of a gradient beyond ± this are cut to it; 0: never. Alone it replaces --max-grad-norm");
DEFINE_double(agc, 0, "adaptive clipping: an output unit's gradient is at most so many times as long as its weights; 0: never. Alone it "
              "replaces --max-grad-norm");
DEFINE_string(optimizer, "adamw", "sgd, adam, adamw, rmsprop, adagrad, lion, lamb, lars or adafactor");
DEFINE_string(lr, "auto",
              "learning rate; auto: 1e-3 for random weights, 1e-4 for a pre-trained model, 2e-5 for a transformer; "
              "a new head of a pre-trained model gets 10 times that; GLOB=X: of these weights; repeatable");
DEFINE_string(momentum, "auto", "of sgd, rmsprop and lars; auto: 0, of lars 0.9");
DEFINE_double(dampening, 0, "of the momentum of sgd");
DEFINE_bool(nesterov, false, "sgd looks ahead along its momentum");
DEFINE_string(betas, "auto", "of adam, adamw, lamb, lion; rmsprop takes the second; auto: 0.9,0.999, of lion and rmsprop 0.9,0.99");
DEFINE_string(eps, "auto", "beside the root that updates are divided by; auto: 1e-8, of adagrad 1e-10, of lamb 1e-6");
DEFINE_double(weight_decay, 0, "decoupled for adamw, L2 for the others");
DEFINE_string(no_decay, "auto", "auto: rank ≤ 1 and names ending in bias; none; or a glob of weights");
DEFINE_string(lr_scale, "none",
              "the rate grows with the batch: linear (× batch/base), sqrt (× √(batch/base)) or auto (linear for sgd and lars, sqrt for the others)");
DEFINE_int64(lr_scale_base, 256, "the --batch-size that --lr is meant for");
DEFINE_double(layer_lr_decay, 1, "each layer learns slower than the one behind it by this factor, in graph order");
DEFINE_string(monitor, "loss:min", "what --lr-scheduler plateau looks at after an evaluation: loss, accuracy or one of --metrics, to :min or :max");
DEFINE_double(ema_decay, 0, "keeps a moving average of the weights, e = d·e + (1 − d)·p after each update, which evaluations use; 0: none");
DEFINE_string(export_weights, "auto", "which weights are written: last, ema (needs --ema-decay); auto: ema where there is one");
DEFINE_string(metrics, "", "what evaluations tell besides the loss: accuracy, topK (top5), f1, f1_macro, auc, perplexity, mae; of one of "
              "several outputs: f1@OUTPUT");
DEFINE_string(lr_scheduler, "constant",
              "constant, linear, cosine, cosine_restarts, polynomial, step, multistep, exponential, inverse_sqrt, plateau, one_cycle, wsd, wsd_cosine "
              "or wsd_sqrt, with its options: step:size=1000,gamma=0.5");
DEFINE_double(warmup, 0, "updates over which the rate rises from 0; below 1: that part of the run");
DEFINE_double(min_lr, 0, "the rate does not fall below it; where linear, cosine, polynomial and wsd end");
DEFINE_double(label_smoothing, 0, "of cross_entropy");
DEFINE_string(class_weights, "", "what a target of each class counts (cross_entropy, nll): one number for each, in order");
DEFINE_int64(ignore_index, -100, "the label that does not count (cross_entropy, nll)");
DEFINE_int64(epochs, 3, "passes over the data");
DEFINE_int64(max_steps, 0, "stop after this many updates; without --epochs: train exactly so many");
DEFINE_string(max_time, "", "stop after this time: 90s, 10m, 2h");
DEFINE_int64(seed, 42, "of data order, dropout, new weights and synthetic data");

DEFINE_string(backend, "auto", "auto (torch where there is a GPU, else cpu), cpu or torch");
DEFINE_string(device, "auto", "auto, cpu or cuda:N");
DEFINE_int64(threads, 0, "CPU threads (default: what affinity, cgroup and OMP_NUM_THREADS allow)");
DEFINE_string(log_every, "auto",
              "updates (500), epochs (0.1ep) or time (10m) between progress lines; auto: about 20 an epoch");
DEFINE_string(eval_every, "1ep", "updates (500), epochs (1ep) or time (10m) between evaluations");
DEFINE_bool(quiet, false, "no start page and no progress");
DEFINE_bool(json, false, "the result as JSON on stdout");
DEFINE_bool(steps_only, false, "time whole steps and nothing else");
DEFINE_string(plot, "", "draw live memory over the step as an SVG");
DEFINE_string(require, "", "exit 3 unless the result meets it: 'accuracy>=0.97'; repeatable");
DEFINE_string(reference, "", "an .npz of outputs by name, loss and grad:NAME from elsewhere to check against (as grad writes it)");
DEFINE_int64(gradcheck, 0, "check N coordinates per parameter against float64 central differences");

namespace onnxtrain::cli {
namespace {

enum CommandBit : unsigned {
  kTrain = 1,
  kEval = 2,
  kPredict = 4,
  kGrad = 8,
  kInspect = 16,
  kCompare = 32,
  kExport = 64,
  kReads = kTrain | kEval | kPredict | kGrad | kCompare,  // those that read data
  kGradients = kTrain | kGrad | kCompare,                 // those that differentiate
  kBench = 128,
  kPlan = 256,
  kTrial = kBench | kPlan,   // those that make samples up
  kSteps = kTrain | kTrial,  // those that make updates, or plan them
  kSurgery = kTrain | kInspect | kExport,  // those that change the model's structure first
  kAll = 511,
};

struct CommandName {
  std::string_view name;
  unsigned bit;
};
constexpr CommandName kCommands[] = {{"train", kTrain},  {"eval", kEval},       {"predict", kPredict},
                                     {"grad", kGrad},    {"inspect", kInspect}, {"compare", kCompare},
                                     {"export", kExport},   {"bench", kBench},     {"plan", kPlan}};

constexpr double kInf = std::numeric_limits<double>::infinity();

struct FlagRow {
  const char* group;
  const char* name;
  unsigned commands;
  const char* value;  // what --help shows for it; "" for switches
  double min = -kInf, max = kInf;
  bool repeatable = false;
  const char* choices = "";  // "a|b|c": nothing else is allowed
};

constexpr FlagRow kFlags[] = {
    {"model", "model", kAll, "FILE"},
    {"model", "out", kTrain | kPredict | kGrad | kExport, "PATH"},
    {"model", "overwrite", kTrain, ""},
    {"model", "weights", kExport, "FILE"},
    {"model", "export_weights", kTrain, "WHICH", -kInf, kInf, false, "auto|last|ema|best"},
    {"model", "loss", kReads | kInspect | kTrial, "NAME"},
    {"model", "logits", kReads | kInspect | kTrial, "NAME"},
    {"model", "train", kGradients | kInspect | kTrial, "GLOB", -kInf, kInf, true},
    {"model", "freeze", kGradients | kInspect | kTrial, "GLOB", -kInf, kInf, true},
    {"model", "reinit", kSurgery, "GLOB", -kInf, kInf, true},
    {"model", "num_classes", kSurgery, "N|auto"},
    {"model", "head", kSurgery, "HOW", -kInf, kInf, false, "cls|mean|max"},
    {"model", "batch_norm", kGradients | kTrial, "MODE", -kInf, kInf, false, "train|frozen"},
    {"model", "dropout", kGradients | kTrial, "P", 0, 0.999999},
    {"model", "dim", kReads | kInspect | kTrial | kExport, "NAME=N", -kInf, kInf, true},
    {"data", "data", kReads, "PATH"},
    {"data", "eval_data", kTrain, "PATH"},
    {"data", "eval_split", kTrain, "F|last:F|COLUMN"},
    {"data", "input", kReads, "MODEL_INPUT=COLUMN[,…]", -kInf, kInf, true},
    {"data", "label", kReads, "COLUMN[,…]"},
    {"data", "header", kReads, "WHETHER", -kInf, kInf, false, "auto|yes|no"},
    {"data", "normalize", kReads, "HOW"},
    {"data", "shuffle", kTrain, ""},
    {"data", "drop_last", kTrain, ""},
    {"data", "num_workers", kTrain | kEval, "N|auto"},
    {"data", "prefetch_factor", kTrain, "N", 1, 1024},
    {"step", "batch_size", kReads | kTrial, "N", 1, 1 << 24},
    {"step", "micro_batch_size", kSteps | kGrad, "N|auto"},
    {"step", "gradient_accumulation_steps", kSteps, "N", 1, 1 << 20},
    {"step", "mixed_precision", kSteps, "PRECISION", -kInf, kInf, false, "no|bf16|fp16|auto"},
    {"step", "loss_scale", kSteps, "dynamic|X"},
    {"step", "on_nonfinite", kTrain, "WHAT", -kInf, kInf, false, "skip|abort"},
    {"step", "gradient_checkpointing", kSteps, "HOW", -kInf, kInf, false, "none|auto|sqrt|all|budget"},
    {"step", "memory_budget", kSteps, "BYTES"},
    {"step", "max_grad_norm", kSteps, "X", 0},
    {"step", "clip_value", kSteps, "X", 0},
    {"step", "agc", kSteps, "RATIO", 0},
    {"step", "optimizer", kSteps, "NAME", -kInf, kInf, false, "sgd|adam|adamw|rmsprop|adagrad|lion|lamb|lars|adafactor"},
    {"step", "lr", kTrain, "[GLOB=]X", -kInf, kInf, true},
    {"step", "momentum", kTrain, "X"},
    {"step", "dampening", kTrain, "X", 0, 1},
    {"step", "nesterov", kTrain, ""},
    {"step", "betas", kTrain, "A,B"},
    {"step", "eps", kTrain, "X"},
    {"step", "weight_decay", kSteps, "X", 0},
    {"step", "no_decay", kTrain, "auto|none|GLOB"},
    {"step", "lr_scale", kTrain, "HOW", -kInf, kInf, false, "none|linear|sqrt|auto"},
    {"step", "lr_scale_base", kTrain, "N", 1, 1 << 24},
    {"step", "layer_lr_decay", kTrain, "D", 1e-6, 1},
    {"step", "ema_decay", kTrain, "D", 0, 0.9999999999},
    {"step", "lr_scheduler", kTrain, "NAME[:OPTIONS]"},
    {"step", "warmup", kTrain, "N|RATIO", 0},
    {"step", "min_lr", kTrain, "X", 0},
    {"step", "label_smoothing", kTrain | kEval | kGrad | kCompare, "X", 0, 0.999999999},
    {"step", "class_weights", kTrain | kEval | kGrad | kCompare, "W0,W1,…"},
    {"step", "ignore_index", kTrain | kEval | kGrad | kCompare, "LABEL"},
    {"step", "epochs", kTrain, "N", 1, 1e9},
    {"step", "max_steps", kTrain | kBench, "N", 1, 1e15},
    {"step", "max_time", kTrain, "TIME"},
    {"step", "seed", kGradients | kTrial | kSurgery, "N", 0},
    {"run", "backend", kSteps | kEval | kPredict | kGrad, "NAME", -kInf, kInf, false, "auto|cpu|torch"},
    {"run", "device", kReads | kTrial, "NAME"},
    {"run", "threads", kReads | kTrial, "N", 1, 4096},
    {"run", "log_every", kTrain, "INTERVAL"},
    {"run", "eval_every", kTrain, "INTERVAL"},
    {"run", "quiet", kReads | kBench, ""},
    {"run", "json", kSteps | kEval | kInspect | kCompare, ""},
    {"run", "steps_only", kBench, ""},
    {"run", "monitor", kTrain, "METRIC[:min|:max]"},
    {"run", "metrics", kTrain | kEval, "NAME[,…]"},
    {"run", "plot", kPlan, "FILE"},
    {"run", "require", kTrain | kEval, "'METRIC>=X'", -kInf, kInf, true},
    {"run", "reference", kCompare, "FILE"},
    {"run", "gradcheck", kCompare, "N", 1, 1 << 20},
};

std::multimap<std::string, std::string, std::less<>>& Said() {
  static auto* said = new std::multimap<std::string, std::string, std::less<>>;
  return *said;
}

unsigned BitOf(std::string_view command) {
  for (const CommandName& c : kCommands) {
    if (c.name == command) return c.bit;
  }
  return 0;
}

const FlagRow& RowOf(std::string_view name) {
  return *std::find_if(std::begin(kFlags), std::end(kFlags), [&](const FlagRow& r) { return r.name == name; });
}

gflags::CommandLineFlagInfo InfoOf(const char* name) { return gflags::GetCommandLineFlagInfoOrDie(name); }

bool IsChoice(std::string_view choices, std::string_view value) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

std::string Number(double x) { return absl::StrFormat("%.15g", x); }

absl::Status CheckRange(const FlagRow& row, const std::string& value) {
  const double x = std::atof(value.c_str());
  if (x >= row.min && x <= row.max && x < kInf && x > -kInf) return absl::OkStatus();
  std::string range;
  if (row.min > -kInf) StrAppend(&range, " of at least ", Number(row.min));
  if (row.max < kInf) StrAppend(&range, range.empty() ? " of" : " and", " at most ", Number(row.max));
  return Invalid(Shown(row.name), ": expected a number", range, ", got ", value);
}

absl::Status SetFlag(const GivenFlag& flag) {
  const FlagRow& row = RowOf(flag.name);
  const std::string type = InfoOf(row.name).type;
  if (*row.choices != 0 && !IsChoice(row.choices, flag.value)) {
    const std::vector<std::string> choices = [&] {
      std::vector<std::string> list(1);
      for (char c : std::string_view(row.choices)) c == '|' ? list.emplace_back() : list.back().append(1, c);
      return list;
    }();
    const std::string near = Nearest(flag.value, choices);
    return Invalid(Shown(row.name), ": expected one of ", row.choices, ", got '", flag.value, "'",
                   near.empty() ? "" : StrCat("; did you mean ", near, "?"));
  }
  if (gflags::SetCommandLineOption(row.name, flag.value.c_str()).empty()) {
    return Invalid(Shown(row.name), ": expected ", type == "int64" ? "a whole number" : "a number", ", got '",
                   flag.value, "'");
  }
  return type == "int64" || type == "double" ? CheckRange(row, flag.value) : absl::OkStatus();
}

// Wishes of one call, not properties of what it does.
bool IsOfOneCall(std::string_view name) { return name == "quiet" || name == "json" || name == "overwrite"; }

// Columns on a terminal: UTF-8's continuation bytes take none.
size_t Columns(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string HelpLine(const FlagRow& row) {
  const auto info = InfoOf(row.name);
  std::string left = StrCat("  ", Shown(row.name));
  if (info.type == "bool") {
    left = StrCat("  --[no-]", Shown(row.name).substr(2));
  } else {
    StrAppend(&left, " ", row.value);
  }
  std::string right = info.description;
  const bool meaningless = info.default_value.empty() || (row.min > 0 && info.default_value == "0") || row.repeatable;
  if (!meaningless && std::string_view(row.name) != "dropout") StrAppend(&right, " (default ", info.default_value, ")");
  constexpr size_t kColumn = 38, kWidth = 120;
  const size_t used = Columns(left);
  left += used < kColumn ? std::string(kColumn - used, ' ') : "\n" + std::string(kColumn, ' ');
  // The description, wrapped.
  size_t column = kColumn;
  for (size_t begin = 0; begin < right.size();) {
    const size_t end = std::min(right.find(' ', begin), right.size());
    const std::string_view word = std::string_view(right).substr(begin, end - begin);
    const bool breaks = begin > 0 && column + 1 + Columns(word) > kWidth;
    if (breaks) column = kColumn;
    StrAppend(&left, begin == 0 ? "" : breaks ? "\n" + std::string(kColumn, ' ') : " ", word);
    column += Columns(word) + 1;
    begin = end + 1;
  }
  return left + "\n";
}

}  // namespace

std::vector<FlagSpec> FlagsOf(std::string_view command) {
  std::vector<FlagSpec> specs;
  for (const FlagRow& row : kFlags) {
    if ((row.commands & BitOf(command)) == 0) continue;
    specs.push_back({row.name, InfoOf(row.name).type == "bool", row.repeatable});
  }
  return specs;
}

absl::Status SetFlags(const Arguments& args) {
  for (const GivenFlag& flag : args.flags) {
    const absl::Status status = SetFlag(flag);
    if (!status.ok()) return Annotate(status, flag.place.empty() ? "" : StrCat(flag.place, ": "));
    Said().emplace(flag.name, flag.value);
  }
  return absl::OkStatus();
}

bool Given(std::string_view flag) { return Said().find(flag) != Said().end(); }

std::vector<std::string> Values(std::string_view flag) {
  std::vector<std::string> values;
  const auto [begin, end] = Said().equal_range(flag);
  for (auto it = begin; it != end; ++it) values.push_back(it->second);
  return values;
}

std::vector<FlagDefault> Defaults(std::string_view command) {
  std::vector<FlagDefault> defaults;
  for (const FlagRow& row : kFlags) {
    if ((row.commands & BitOf(command)) == 0 || Given(row.name) || IsOfOneCall(row.name)) continue;
    const auto info = InfoOf(row.name);
    if (!info.default_value.empty()) defaults.push_back({row.name, info.default_value});
  }
  return defaults;
}

std::string FlagFileText(std::string_view command, const std::vector<FlagDefault>& resolved) {
  std::string text = StrCat("# onnxtrain ", command, " --flagfile THIS\n");
  for (const FlagRow& row : kFlags) {
    if ((row.commands & BitOf(command)) == 0 || IsOfOneCall(row.name)) continue;
    bool known = false;
    for (const FlagDefault& d : resolved) {
      if (d.name != row.name) continue;
      known = true;
      StrAppend(&text, Shown(row.name), "=", d.value, "\n");
    }
    if (known) continue;
    if (row.repeatable) {
      for (const std::string& value : Values(row.name)) StrAppend(&text, Shown(row.name), "=", value, "\n");
    } else if (Given(row.name)) {
      StrAppend(&text, Shown(row.name), "=", Values(row.name).back(),
                "\n");  // as it was typed: 0.9, not 0.90000000000000002
    }
  }
  return text;
}

std::string FlagHelp(std::string_view command) {
  std::string text;
  for (const char* group : {"model", "data", "step", "run"}) {
    std::string lines;
    for (const FlagRow& row : kFlags) {
      if ((row.commands & BitOf(command)) != 0 && std::string_view(row.group) == group)
        StrAppend(&lines, HelpLine(row));
    }
    if (std::string_view(group) == "run") {
      StrAppend(&lines,
                "  --flagfile FILE                     more flags, one a line; what is typed here wins; repeatable\n",
                "  --help, --version\n");
    }
    if (!lines.empty()) StrAppend(&text, "\n", group, "\n", lines);
  }
  return text;
}

}  // namespace onnxtrain::cli
