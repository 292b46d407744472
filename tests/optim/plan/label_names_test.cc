// Numbers that are names of classes.
#include "optim/plan/data_setup.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/plan/training_run.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class LabelNames : public Scratch {
 protected:
  LabelNames() { config_ = {.model = Path("m.onnx"), .data = Path("d.npz"), .backend = "cpu"}; }

  void SaveModel(int64_t classes, const std::string& tail = "") { tiny::Mlp(classes, tail).Save(Path("m.onnx")); }
  void SaveData(const std::string& name, const HostTensor& labels) const {
    EXPECT_TRUE(
        WriteNpz(Path(name), {{"x", HostTensor({DType::kFloat32, {labels.shape()[0], 4}})}, {"label", labels}}).ok());
  }
  void SaveLabels(const std::vector<int64_t>& labels) { SaveData("d.npz", HostTensor::FromInts(labels)); }

  absl::StatusOr<TrainingRun> Prepare() const { return PrepareTraining(config_); }
  // The classes of the run, which has to begin; its labels as they are fed; or the error.
  struct Seen {
    std::vector<std::string> classes;
    std::vector<double> labels;
    int64_t outputs = 0;
    std::string loss, error;
    std::vector<std::string> notes;
  };
  Seen Look() const {
    auto run = Prepare();
    if (!run.ok()) return {.error = std::string(ToStd(run.status().message()))};
    Seen seen{.classes = run->data.train.bound.classes,
              .outputs = run->session->loss().num_classes(),
              .loss = run->session->loss().leading().function->name.data(),
              .notes = run->data.train.bound.notes};
    const auto batch = ReadGlobalBatch(run->train, run->train.dataset->size());
    EXPECT_TRUE(batch.ok()) << batch.status();
    seen.labels = batch->Find(kLabelFeed)->ToDoubles();
    return seen;
  }

  TrainConfig config_;
};

// AG News numbers its classes 1 to 4, wine has the grades 3 to 9.
TEST_F(LabelNames, AutoMakesAnOutputForEach) {
  SaveModel(10);
  config_.num_classes = TrainConfig::kAuto;
  SaveLabels({4, 1, 2, 3, 1});
  Seen seen = Look();
  EXPECT_EQ(seen.outputs, 4) << seen.error;
  EXPECT_THAT(seen.classes, ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(seen.labels, ElementsAre(3, 0, 1, 2, 0));
  EXPECT_THAT(seen.notes, Contains(HasSubstr("labels 1 to 4 are names of the classes 0 to 3")));
  EXPECT_THAT(seen.notes, Contains(HasSubstr("4 classes: 1, 2, 3, 4")));
  SaveLabels({-1, 1, 10, 100});
  seen = Look();
  EXPECT_EQ(seen.outputs, 4);
  EXPECT_THAT(seen.labels, ElementsAre(0, 1, 2, 3));
  SaveLabels({0, 2, 0});  // a gap
  EXPECT_EQ(Look().outputs, 2);
  SaveLabels({0, 2, 1});  // indices
  seen = Look();
  EXPECT_EQ(seen.outputs, 3);
  EXPECT_THAT(seen.classes, IsEmpty());
  EXPECT_THAT(seen.notes, Not(Contains(HasSubstr("are names"))));
}

TEST_F(LabelNames, AModelWithAsManyOutputsGetsThemInOrder) {
  SaveModel(7);
  SaveLabels({9, 3, 4, 5, 6, 7, 8});
  const Seen seen = Look();
  EXPECT_EQ(seen.outputs, 7) << seen.error;
  EXPECT_THAT(seen.classes, ElementsAre("3", "4", "5", "6", "7", "8", "9"));
  EXPECT_THAT(seen.labels, ElementsAre(6, 0, 1, 2, 3, 4, 5));
}

TEST_F(LabelNames, LabelsThatFitStay) {
  SaveModel(10);
  SaveLabels({1, 2, 3, 4, 5, 6, 7, 8, 9});  // of digits without zeros
  Seen seen = Look();
  EXPECT_THAT(seen.classes, IsEmpty()) << seen.error;
  EXPECT_EQ(seen.labels[0], 1);
  SaveModel(4);
  SaveLabels({1, 3, 0});
  EXPECT_THAT(Look().labels, ElementsAre(1, 3, 0));
}

TEST_F(LabelNames, OtherNumbersThanOutputsAreAnError) {
  SaveModel(4);
  SaveLabels({1, 2, 4});
  EXPECT_THAT(Look().error, HasSubstr("label 4 is outside of the 4 classes 0 to 3"));
  SaveLabels({1, 2, 3, 4, 5});
  EXPECT_THAT(Look().error, HasSubstr("label 4 is outside of the 4 classes 0 to 3"));
}

TEST_F(LabelNames, IgnoredLabelsAreNone) {
  SaveModel(3);
  SaveLabels({-100, 7, 8, 9});
  Seen seen = Look();
  EXPECT_THAT(seen.classes, ElementsAre("7", "8", "9")) << seen.error;
  EXPECT_THAT(seen.labels, ElementsAre(-100, 0, 1, 2));
  config_.ignore_index = -1;
  SaveLabels({-1, 0, 1, 2});
  EXPECT_THAT(Look().classes, IsEmpty());
}

TEST_F(LabelNames, WholeFloatsAreLabelsOfAClassLoss) {
  const auto floats = [&](const std::vector<double>& labels) {
    SaveData("d.npz", HostTensor::FromDoubles({DType::kFloat32, {std::ssize(labels)}}, labels));
  };
  SaveModel(3);
  floats({3, 5, 4});
  EXPECT_THAT(Look().labels, ElementsAre(0, 2, 1));
  config_.num_classes = TrainConfig::kAuto;
  config_.loss = "cross_entropy";
  for (const double first : {0, 3}) {
    floats({first, 2, 1});
    const Seen seen = Look();
    EXPECT_EQ(seen.outputs, 3) << seen.error;
    EXPECT_THAT(seen.labels, ElementsAre(first == 0 ? 0 : 2, first == 0 ? 2 : 1, first == 0 ? 1 : 0));
  }
}

TEST_F(LabelNames, TwoLabelsOfOneProbability) {
  SaveModel(1, "Sigmoid");
  for (const auto& two : {std::vector<int64_t>{2, 1}, {1, -1}, {255, 0}}) {
    SaveLabels({two[0], two[1]});
    const Seen seen = Look();
    EXPECT_EQ(seen.loss, "bce") << seen.error;
    EXPECT_THAT(seen.classes, ElementsAre(StrCat(two[1]), StrCat(two[0])));
    EXPECT_THAT(seen.labels, ElementsAre(1, 0));
  }
  SaveModel(1);
  config_.loss = "bce";
  SaveLabels({2, 1});
  EXPECT_THAT(Look().labels, ElementsAre(1, 0));
}

TEST_F(LabelNames, NumbersToRegressAreNone) {
  SaveModel(1);
  for (const auto& labels : {std::vector<int64_t>{3, 4, 5, 9}, {-1, 1, 1}, {2, 1, 2}}) {
    SaveLabels(labels);
    const Seen seen = Look();
    EXPECT_EQ(seen.loss, "mse") << seen.error;
    EXPECT_THAT(seen.classes, IsEmpty());
    EXPECT_EQ(seen.labels[0], static_cast<double>(labels[0]));
  }
}

TEST_F(LabelNames, LabelsOfPositionsAndSharesOfClassesStay) {
  SaveModel(3);
  SaveData("d.npz", HostTensor::FromInts({DType::kInt64, {2, 3}}, std::vector<int64_t>{0, 1, 0, 1, 0, 0}));  // one-hot
  EXPECT_THAT(Look().classes, IsEmpty());
}

TEST_F(LabelNames, AClassMapDecides) {
  SaveModel(3);
  SaveLabels({5, 6, 7});
  WriteAll(Path("c.txt"), "7\n5\n6\n");
  config_.class_map = Path("c.txt");
  EXPECT_THAT(Look().labels, ElementsAre(1, 2, 0));
}

TEST_F(LabelNames, EvaluationDataHasTheClassesOfTraining) {
  SaveModel(3);
  SaveLabels({5, 6, 7});
  SaveData("e.npz", HostTensor::FromInts({7, 5}));
  config_.eval_data = Path("e.npz");
  auto run = Prepare();
  ASSERT_TRUE(run.ok()) << run.status();
  const auto batch = ReadGlobalBatch(run->eval, 2);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(batch->Find(kLabelFeed)->ToDoubles(), ElementsAre(2, 0));
  SaveData("e.npz", HostTensor::FromInts({7, 8}));
  EXPECT_THAT(Look().error,
              HasSubstr("e.npz: sample 1, column 'label': label 8 is not among the model's classes 5, 6, 7"));
  config_.on_bad_sample = "skip";
  EXPECT_EQ(Look().error, "");
}

// A model that somebody else has trained; and one of a run, whose labels were indices.
TEST_F(LabelNames, EvaluationOfAModelWithoutNames) {
  SaveModel(3);
  SaveLabels({5, 6, 7});
  auto opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(opened->data.bound.classes, ElementsAre("5", "6", "7"));
  WriteAll(Path("preprocess.json"), ToJson(Preprocess{.label = {"label"}}));
  opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(opened->data.bound.classes, IsEmpty());
  WriteAll(Path("preprocess.json"), ToJson(Preprocess{.label = {"label"}, .classes = {"7", "6", "5"}}));
  opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(opened->data.bound.classes, ElementsAre("7", "6", "5"));
}

}  // namespace
}  // namespace onnxtrain
