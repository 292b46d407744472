// Models that exporters wrote: batches of any size have the graphs that imports at these sizes have.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "frontend/onnx/batched_model.h"
#include "optim/plan/model_setup.h"
#include "tests/frontend/onnx/describe_import.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSizes[] = {2, 3, 5, 7, 1};

struct Counts {
  int models = 0, served = 0;  // without further imports
};

// Compares a model with its imports, once it was imported for 16 and 6 samples. Leaves out those that have no other
// batch than that of their file.
void CompareBatches(const std::shared_ptr<const OnnxModel>& model, const ImportOptions& options, Counts* counts) {
  BatchedModel batched(model, options);
  if (!batched.At(16).ok() || !batched.At(6).ok()) return;
  for (const int64_t batch : kSizes) {
    ImportOptions sized = options;
    sized.batch = batch;
    for (auto& [name, shape] : sized.input_shapes) std::ranges::replace(shape, int64_t{-1}, batch);
    const auto expected = Import(*model, sized), actual = batched.At(batch);
    ASSERT_EQ(actual.status(), expected.status()) << model->path() << ", batch " << batch;
    if (!actual.ok()) continue;
    ASSERT_EQ(DescribeImport(*actual), DescribeImport(*expected)) << model->path() << ", batch " << batch;
  }
  ++counts->models;
  counts->served += batched.imports() <= 4 ? 1 : 0;  // 16, 6 and 1; 2 where positions in the batch are constants
}

Counts CompareFolder(const std::string& folder) {
  Counts counts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx") continue;
    TrainConfig config;
    config.model = entry.path().string();
    const auto model = LoadModel(config);
    EXPECT_TRUE(model.ok()) << model.status();
    auto options = MakeImportOptions(config, **model);
    EXPECT_TRUE(options.ok()) << options.status();
    for (const bool training : {true, false}) {
      options->training = training;
      CompareBatches(*model, *options, &counts);
    }
  }
  return counts;
}

TEST(BatchedModels, ExportsOfPyTorch) {
  const Counts counts = CompareFolder(RepoPath("tests/models/exports"));
  EXPECT_EQ(counts.served, counts.models);
  EXPECT_GE(counts.models, 34);
}

TEST(BatchedModels, ModelsOfOthers) {
  SKIP_WITHOUT_SHARED("models");
  const Counts counts = CompareFolder(SharedPath("models"));
  EXPECT_EQ(counts.served, counts.models);
  EXPECT_GE(counts.models, 30);
}

}  // namespace
}  // namespace onnxtrain
