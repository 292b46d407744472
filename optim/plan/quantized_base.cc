#include "optim/plan/quantized_base.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/updated_weight.h"
#include "optim/config/weight_globs.h"
#include "optim/plan/adapter_init.h"

namespace onnxtrain {
namespace {

const HostTensor& WeightOf(const OnnxModel& model, const std::string& name) {
  return model.parsed().graph.initializers.at(name);
}

// Returns the weights to quantize, each once.
absl::StatusOr<std::vector<LowRankTarget>> ChooseWeights(const TrainConfig& config, const OnnxModel& model,
                                                         const AdapterPlan& plan) {
  std::vector<LowRankTarget> chosen;
  std::set<std::string> seen;
  for (LowRankTarget& target : ListAdapterTargets(model)) {
    if (!target.kernel.empty() || target.experts > 0 || target.output_layer || TrainsWhole(config, target)) continue;
    if (plan.whole.contains(target.weight) || !seen.insert(target.weight).second) continue;
    if (!IsFloat(WeightOf(model, target.weight).dtype()))
      return Invalid("`quantize_base` ", config.quantize_base, ": the weight of '", Printable(target.module),
                     "' is quantized in the file already");
    chosen.push_back(std::move(target));
  }
  if (chosen.empty())
    return Invalid("`quantize_base` ", config.quantize_base, ": the model has no matrix product but its output layer");
  return chosen;
}

// Fails on updates that start from the singular values of a float weight.
absl::Status CheckUpdates(const TrainConfig& config, const BaseBlocks& blocks, const AdapterPlan& plan) {
  for (const LowRankUpdate& update : plan.updates) {
    if (update.has_first() && blocks.contains(update.weight))
      return Invalid("`quantize_base` ", config.quantize_base, ": `lora_init` pissa needs the floats of '",
                     Printable(update.module), "'");
  }
  return absl::OkStatus();
}

// Reads rows of a matrix of the file.
void ReadFloats(const HostTensor& weight, int64_t row, int64_t count, std::span<float> out) {
  const int64_t columns = weight.shape()[1];
  std::vector<double> values(static_cast<size_t>(columns));
  for (int64_t r = 0; r < count; ++r) {
    weight.Read((row + r) * columns, values);
    std::ranges::copy(values, out.begin() + r * columns);
  }
}

absl::StatusOr<StoredBlocks> QuantizeWeight(const BlockFormat& format, const HostTensor& weight, bool outputs_first) {
  const auto read = [&](int64_t row, int64_t count, std::span<float> out) { ReadFloats(weight, row, count, out); };
  auto blocks = QuantizeBlocks(format, weight.shape()[0], weight.shape()[1], outputs_first, read);
  ReleaseMappedPages(weight.bytes());
  return blocks;
}

}  // namespace

absl::StatusOr<BaseBlocks> QuantizeBase(const TrainConfig& config, const OnnxModel& model, const AdapterPlan& plan) {
  ASSIGN_OR_RETURN(const std::vector<LowRankTarget> targets, ChooseWeights(config, model, plan));
  BaseBlocks blocks;
  for (const LowRankTarget& target : targets) blocks[target.weight] = nullptr;
  RETURN_IF_ERROR(CheckUpdates(config, blocks, plan));
  const BlockFormat& format = *FindBlockFormat(config.quantize_base);
  std::vector<absl::StatusOr<StoredBlocks>> results(targets.size(), absl::InternalError(""));
  std::atomic<size_t> next = 0;
  const int64_t threads = config.threads > 0 ? config.threads : CpuCount();
  RunParts(std::min(threads, std::ssize(targets)), [&](int64_t) {
    for (size_t i = next++; i < targets.size(); i = next++)
      results[i] = QuantizeWeight(format, WeightOf(model, targets[i].weight), targets[i].outputs_first);
  });
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!results[i].ok())
      return Annotate(results[i].status(), StrCat("`quantize_base` ", config.quantize_base, ": the weight of '",
                                                  Printable(targets[i].module), "' "));
    blocks[targets[i].weight] = std::make_shared<const StoredBlocks>(*std::move(results[i]));
  }
  return blocks;
}

void StartFromBlocks(const BaseBlocks& blocks, AdapterPlan* plan) {
  for (LowRankUpdate& update : plan->updates) {
    const auto found = blocks.find(update.weight);
    if (!update.has_magnitude() || found == blocks.end()) continue;
    update.magnitude = MakeMagnitude(ReadFloats(found->second), update, update.magnitude.type());
  }
}

BaseSummary SummarizeBase(const BaseBlocks& blocks, const OnnxModel& model) {
  BaseSummary base{.weights = std::ssize(blocks)};
  for (const auto& [name, stored] : blocks) {
    base.bytes += stored->bytes();
    base.file_bytes += std::ssize(WeightOf(model, name).bytes());
    if (stored->error < base.worst_error) continue;
    base.worst_error = stored->error;
    base.worst = name;
  }
  return base;
}

std::string DescribeBase(const TrainConfig& config, const BaseSummary& base) {
  return StrCat("base: ", base.weights, " weights in memory as ", config.quantize_base, ": ",
                FormatBytes(static_cast<double>(base.bytes)), " instead of ",
                FormatBytes(static_cast<double>(base.file_bytes)), "; largest relative error ",
                absl::StrFormat("%.3g", base.worst_error), ", of '", Printable(base.worst), "' (`quantize_base`)");
}

}  // namespace onnxtrain
