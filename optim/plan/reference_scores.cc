#include "optim/plan/reference_scores.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/sha256.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/text/pair_rows.h"
#include "optim/config/loss_text.h"
#include "optim/plan/adapters.h"
#include "optim/plan/folders.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/record/checkpoint/resume.h"

namespace onnxtrain {

namespace {

bool Compares(const LossTermSpec& term) { return term.function != nullptr && term.function->pairs; }

}  // namespace

bool ComparesPairs(const LossSpec& loss) {
  const auto terms = ParseLoss(loss.name);
  return terms.ok() && std::ranges::any_of(*terms, Compares);
}

absl::Status ChoosePairLoss(const TrainConfig& config, BoundData* data, LossSpec* loss) {
  const bool pairs = data->own_labels.contains(kRejectedLabel);
  if (!IsSpecified(config, "loss") && ComparesPairs(*loss) != pairs) loss->name = "auto";
  if (pairs && loss->name == "auto") {
    loss->name = "dpo:beta=0.1";
    data->notes.emplace_back("pairs of answers: the loss is dpo:beta=0.1 (`loss`)");
  }
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(loss->name));
  const auto count = std::ranges::count_if(terms, Compares);
  if (pairs && (count != 1 || terms.size() != 1))
    return Invalid("`loss` ", loss->name, ": the data holds pairs of answers: dpo, ipo, simpo or orpo");
  if (!pairs && count > 0)
    return Invalid("`loss` ", loss->name, ": the data has no pairs of answers (columns chosen and rejected)");
  loss->pairs = pairs;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ScoreReference(Session& session, const TrainData& data) {
  Evaluation total;
  int64_t samples = 0;
  EvaluatedBatches batches(session, data, nullptr);
  RETURN_IF_ERROR(batches.Open({.batch_size = session.micro_batch()}));
  RETURN_IF_ERROR(batches.AddAll(&total, &samples));
  const std::vector<double>& scores = total.metrics.stats()[0][0];
  return std::vector<float>(scores.begin(), scores.end());
}

SessionOptions ReferenceOptions(SessionOptions options) {
  options.metrics = {kLogProbabilities};
  options.recompute.memory_budget = 0;
  return options;
}

namespace {

void HashText(const std::string& text, Sha256* hash) { hash->Update(std::as_bytes(std::span(text))); }

// Hashes all samples in batches, to bound the memory.
absl::Status HashSamples(const TrainData& data, Sha256* hash) {
  constexpr int64_t kBatch = 64;
  if (data.dataset == nullptr) return absl::OkStatus();
  HashText(StrCat(data.dataset->size(), "\n"), hash);
  ASSIGN_OR_RETURN(auto loader, Loader::Create(data.dataset, data.specs, {.batch_size = kBatch, .num_workers = 0}));
  while (true) {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    if (batch == nullptr) return absl::OkStatus();
    for (const HostTensor& tensor : batch->tensors) hash->Update(tensor.bytes());
  }
}

}  // namespace

absl::StatusOr<std::string> IdentifyReference(const OnnxModel& model, const std::vector<ImportedWeight>& weights,
                                              const TrainData& train, const TrainData& eval) {
  Sha256 hash;
  HashText(StrCat(model.sha256(), "\n", FindExternalDataDigest(model.path()), "\n"), &hash);
  for (const ImportedWeight& weight : weights) {
    HashText(weight.name + "\n", &hash);
    hash.Update(weight.value.bytes());
  }
  for (const TrainData* data : {&train, &eval}) RETURN_IF_ERROR(HashSamples(*data, &hash));
  return hash.Hex();
}

absl::Status WriteReferenceScores(const ReferenceScores& scores, const std::string& path) {
  HostTensor identity({DType::kUInt8, {std::ssize(scores.identity)}});
  std::ranges::copy(scores.identity, identity.mutable_data<char>().begin());
  const auto table = [](const std::vector<float>& values) {
    HostTensor tensor({DType::kFloat32, {std::ssize(values) / 2, 2}});
    std::ranges::copy(values, tensor.mutable_data<float>().begin());
    return tensor;
  };
  return WriteNpz(path, {{"identity", identity}, {"train", table(scores.train)}, {"eval", table(scores.eval)}});
}

std::optional<ReferenceScores> ReadReferenceScores(const std::string& path, const std::string& identity) {
  const auto arrays = ReadNpz(path);
  if (!arrays.ok()) return std::nullopt;
  ReferenceScores scores;
  for (const auto& [name, value] : *arrays) {
    if (value.dtype() == DType::kUInt8) scores.identity.assign(value.data<char>().begin(), value.data<char>().end());
    if (value.dtype() != DType::kFloat32) continue;
    const std::span<const float> values = value.data<float>();
    (name == "train" ? scores.train : scores.eval).assign(values.begin(), values.end());
  }
  return scores.identity == identity ? std::optional(std::move(scores)) : std::nullopt;
}

absl::StatusOr<std::unique_ptr<Session>> OpenReferenceModel(const TrainConfig& reference, const BoundData& data,
                                                            const SessionOptions& like, Backend* backend) {
  ASSIGN_OR_RETURN(const auto model, LoadRunnableModel(reference));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(reference, *model, data, like.loss, like.micro_batch));
  options.optimizer.rule = "sgd";  // keeps no moments
  options = ReferenceOptions(std::move(options));
  const auto models = std::make_shared<PreparedModels>(model);
  RETURN_IF_ERROR(PrepareFor(*models, data, &options, false).status());
  return Session::Create(models, backend, std::move(options));
}

namespace {

// Returns the settings of `config` for another model.
absl::StatusOr<TrainConfig> WithModel(TrainConfig config, const std::string& path) {
  ASSIGN_OR_RETURN(const FoundModel found, FindModelFile(path));
  config.model = found.path;
  for (auto* globs : {&config.adapter, &config.train, &config.freeze, &config.reinit}) globs->clear();
  return config;
}

}  // namespace

absl::StatusOr<TrainConfig> FindReferenceModel(const TrainConfig& config, const std::optional<Preprocess>& before) {
  if (!config.reference_model.empty()) {
    auto reference = WithModel(config, config.reference_model);
    if (!reference.ok()) return Annotate(reference.status(), "`reference_model` ");
    return reference;
  }
  if (!config.adapter.empty()) return WithModel(config, config.model);
  if (!before.has_value() || before->reference_model.empty())
    return Invalid("`loss` ", config.loss.empty() ? "dpo" : config.loss,
                   ": compares with a reference: which model is it? (`reference_model`)");
  std::error_code ignored;
  if (!std::filesystem::exists(before->reference_model, ignored))
    return Invalid(PreprocessPath(config.model), ": the reference ", before->reference_model,
                   " does not exist from here (`reference_model` names it)");
  return WithModel(config, before->reference_model);
}

std::string NameReferenceModel(const TrainConfig& config, const LossChoice& loss) {
  if (loss.terms.empty() || !loss.leading().function->reference) return "";
  if (!config.reference_model.empty()) return config.reference_model;
  const bool changed = !config.init_from.empty() || !config.adapter.empty() || !config.reinit.empty();
  return changed ? "" : config.model;
}

}  // namespace onnxtrain
