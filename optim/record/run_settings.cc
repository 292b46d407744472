#include "optim/record/run_settings.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"

namespace onnxtrain {
namespace {

absl::Status WriteTokenizer(const TrainingRun& run, const OutputFolder& run_folder) {
  const auto tokenizer = FindTokenizer(run);
  if (tokenizer == nullptr) return absl::OkStatus();
  const std::string folder = run_folder.File(kTokenizerFolder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, bytes] : tokenizer->files()) RETURN_IF_ERROR(WriteTextFile(StrCat(folder, "/", name), bytes));
  return absl::OkStatus();
}

}  // namespace

Preprocess MakePreprocess(const TrainingRun& run) {
  Preprocess p = DescribeBinding(run.data.train);
  p.loss = run.session->loss().name;
  p.output = run.session->loss().output();
  p.reference_model = NameReferenceModel(run.config, run.session->loss());
  return p;
}

std::shared_ptr<const Tokenizer> FindTokenizer(const TrainingRun& run) {
  const OpenedData& data = run.data.train;
  const auto takes_ids = [](const FeedSpec& feed) { return !IsFloat(feed.sample.dtype); };
  if (data.text.tokenizer != nullptr || std::ranges::none_of(data.bound.feeds, takes_ids)) return data.text.tokenizer;
  const std::string folder = FindTokenizerFolder(run.config.model);
  if (folder.empty()) return nullptr;
  auto tokenizer = LoadTokenizer(folder);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

absl::Status WriteSettings(const TrainingRun& run, const TrainConfig& resolved, const std::string& origin,
                           const OutputFolder& folder) {
  const std::string top = origin.empty() ? "" : StrCat("# ", origin, "\n");
  RETURN_IF_ERROR(WriteTextFile(folder.File("config.flags"), top + ToFlags(resolved, kTaskTrain)));
  RETURN_IF_ERROR(WriteTextFile(folder.File("config.yaml"), top + ToYaml(resolved, kTaskTrain)));
  if (run.data.has_samples())
    RETURN_IF_ERROR(WriteTextFile(folder.File("preprocess.json"), ToJson(MakePreprocess(run))));
  return WriteTokenizer(run, folder);
}

}  // namespace onnxtrain
