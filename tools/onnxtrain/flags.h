// Every flag of the program: name, default, limits, which subcommands know it. Values live in gflags; the list of what
// was really said lives here, since a default and the same value typed by hand are not the same thing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gflags/gflags_declare.h"
#include "tools/onnxtrain/flags_prepass.h"

DECLARE_string(model);
DECLARE_string(out);
DECLARE_bool(overwrite);
DECLARE_string(loss);
DECLARE_string(logits);
DECLARE_string(num_classes);
DECLARE_string(head);
DECLARE_string(batch_norm);
DECLARE_double(dropout);
DECLARE_string(weights);
DECLARE_string(data);
DECLARE_string(eval_data);
DECLARE_string(eval_split);
DECLARE_string(label);
DECLARE_string(header);
DECLARE_string(normalize);
DECLARE_bool(shuffle);
DECLARE_bool(drop_last);
DECLARE_string(num_workers);
DECLARE_int64(prefetch_factor);
DECLARE_int64(batch_size);
DECLARE_string(micro_batch_size);
DECLARE_int64(gradient_accumulation_steps);
DECLARE_string(class_weights);
DECLARE_string(mixed_precision);
DECLARE_string(loss_scale);
DECLARE_string(on_nonfinite);
DECLARE_string(gradient_checkpointing);
DECLARE_string(memory_budget);
DECLARE_double(max_grad_norm);
DECLARE_double(clip_value);
DECLARE_double(agc);
DECLARE_string(optimizer);
DECLARE_string(lr);
DECLARE_string(momentum);
DECLARE_double(dampening);
DECLARE_bool(nesterov);
DECLARE_string(betas);
DECLARE_string(eps);
DECLARE_double(weight_decay);
DECLARE_string(no_decay);
DECLARE_double(ema_decay);
DECLARE_string(monitor);
DECLARE_string(lr_scale);
DECLARE_int64(lr_scale_base);
DECLARE_double(layer_lr_decay);
DECLARE_string(export_weights);
DECLARE_string(metrics);
DECLARE_string(lr_scheduler);
DECLARE_double(warmup);
DECLARE_double(min_lr);
DECLARE_double(label_smoothing);
DECLARE_int64(ignore_index);
DECLARE_int64(epochs);
DECLARE_int64(max_steps);
DECLARE_string(max_time);
DECLARE_int64(seed);
DECLARE_string(backend);
DECLARE_string(device);
DECLARE_int64(threads);
DECLARE_string(log_every);
DECLARE_string(eval_every);
DECLARE_bool(quiet);
DECLARE_bool(json);
DECLARE_bool(steps_only);
DECLARE_string(plot);
DECLARE_string(reference);
DECLARE_int64(gradcheck);

namespace onnxtrain::cli {

// The flags of a subcommand, for the pre-pass. Switches are told from gflags' types.
std::vector<FlagSpec> FlagsOf(std::string_view command);

// Stores what was given in gflags and remembers it. Fails on values of the wrong kind or outside their limits.
absl::Status SetFlags(const Arguments& args);

bool Given(std::string_view flag);
// All values of a repeatable flag, in order.
std::vector<std::string> Values(std::string_view flag);

struct FlagDefault {
  std::string name, value;
};
// The flags of a subcommand that were not given and have a default, in table order; without --quiet, --json,
// --overwrite, which say nothing about the result.
std::vector<FlagDefault> Defaults(std::string_view command);
// One line per flag, "--name=value", with `resolved` in place of what gflags holds: reads back as a flag file.
std::string FlagFileText(std::string_view command, const std::vector<FlagDefault>& resolved);

// The page of `onnxtrain COMMAND --help`, without its heading: flags by group, with defaults.
std::string FlagHelp(std::string_view command);

}  // namespace onnxtrain::cli
