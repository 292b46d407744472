// Columns, classes and values of data for a model that has been trained.
#include "optim/plan/data_setup.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/ops/builder.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/training_run.h"
#include "tests/frontend/data/image/recorded.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"
#include "tests/tools/token_models.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A model of four features and three classes, trained on the columns b, a, c, d and the label "kind".
class DataSetupTest : public Scratch {
 protected:
  DataSetupTest() {
    tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
    Preprocess before{.inputs = {{"x", {"b", "a", "c", "d"}}}, .label = {"kind"}, .classes = {"u", "v", "w"}};
    Write("preprocess.json", ToJson(before));
    config_.model = Path("m.onnx");
  }

  void Write(const std::string& name, const std::string& text) { std::ofstream(Path(name)) << text; }

  absl::StatusOr<ModelAndData> Open(const std::string& csv, bool want_label = true) {
    Write("d.csv", csv);
    config_.data = Path("d.csv");
    return OpenModelAndData(config_, true, want_label);
  }
  std::string Error(const std::string& csv, bool want_label = true) {
    const auto opened = Open(csv, want_label);
    return opened.ok() ? "" : std::string(ToStd(opened.status().message()));
  }
  double Value(const BoundData& data, int feed, int element) {
    const auto loader = *Loader::Create(data.dataset, data.feeds, {.batch_size = 1, .num_workers = 0});
    return (*loader->Next())->tensors[feed].At(element);
  }

  TrainConfig config_;
};

TEST_F(DataSetupTest, TakesTheColumnsOfTraining) {
  const auto opened = Open("kind,a,b,c,d,e\nw,1,2,3,4,5\nu,1,2,3,4,5\n");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const BoundData& bound = opened->data.bound;
  EXPECT_EQ(Value(bound, 0, 0), 2);
  EXPECT_EQ(Value(bound, 0, 1), 1);
  EXPECT_EQ(bound.label.info.min_value, 0);
  EXPECT_EQ(bound.label.info.max_value, 2);  // "w" is class 2, though only two names are there
}

TEST_F(DataSetupTest, AMissingColumnIsAnErrorThatNamesIt) {
  EXPECT_THAT(Error("a,b,c,e,kind\n1,2,3,4,u\n"), HasSubstr("there is no column 'd', which input 'x' was trained on"));
  EXPECT_THAT(Error("a,b,c,d,e\n1,2,3,4,5\n"), HasSubstr("there is no column 'kind', the label in training"));
  EXPECT_EQ(Error("a,b,c,d\n1,2,3,4\n", false), "");  // prediction needs no label
  config_.input = {"x=a,b,c,e"};
  EXPECT_EQ(Error("a,b,c,e,kind\n1,2,3,4,u\n"), "");
}

TEST_F(DataSetupTest, ArraysOfTestDataMayBeNamedSo) {
  Write("preprocess.json", ToJson({.inputs = {{"x", {"x_train"}}}, .label = {"y_train"}}));
  const HostTensor x({DType::kFloat32, {2, 4}}), y({DType::kInt64, {2}});
  ASSERT_TRUE(WriteNpz(Path("t.npz"), {{"x_test", x}, {"y_test", y}}).ok());
  config_.data = Path("t.npz");
  const auto opened = OpenModelAndData(config_, true, true);
  EXPECT_TRUE(opened.ok()) << opened.status();
}

// preprocess.json describes the training data; it does not bind arrays that fit the model as they are.
TEST_F(DataSetupTest, ColumnsWithTheNamesOfInputsFeedThem) {
  const std::vector<double> values = {1, 2, 3, 4};
  ASSERT_TRUE(WriteNpz(Path("t.npz"), {{"x", HostTensor::FromDoubles({DType::kFloat32, {1, 4}}, values)},
                                       {"labels", HostTensor::FromInts({2})}})
                  .ok());
  config_.data = Path("t.npz");
  for (const bool want_label : {true, false}) {
    const auto opened = OpenModelAndData(config_, true, want_label);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(Value(opened->data.bound, 0, 0), 1);
    EXPECT_EQ(opened->data.bound.label.info.max_value, want_label ? 2 : 0);
  }
  // A feature of that name is none.
  EXPECT_THAT(Error("a,b,c,e,kind\n1,2,3,4,u\n"), HasSubstr("there is no column 'd', which input 'x' was trained on"));
}

TEST_F(DataSetupTest, ColumnsOfTokensReplaceTheTextsOfTraining) {
  SaveTextClassifier(Path("m.onnx"), 7, 2);
  Write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n");
  const auto tokenizer = LoadTokenizer(Path("vocab.txt"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  Write("preprocess.json", ToJson({.inputs = {{"input_ids", {"text.ids"}}},
                                   .text = {.columns = {"text"},
                                            .tokenizer = "vocab.txt",
                                            .sha256 = TokenizerDigest(**tokenizer),
                                            .max_length = 16},
                                   .label = {"label"}}));
  const HostTensor ids = HostTensor::FromInts({DType::kInt64, {2, 3}}, std::vector<int64_t>{2, 4, 3, 2, 5, 3});
  ASSERT_TRUE(WriteNpz(Path("t.npz"), {{"input_ids", ids}, {"label", HostTensor::FromInts({0, 1})}}).ok());
  config_.data = Path("t.npz");
  const auto opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Value(opened->data.bound, 0, 1), 4);
  EXPECT_THAT(opened->data.bound.notes, testing::Contains(HasSubstr("there is no column 'text' of text")));
  EXPECT_EQ(Error("text,label\na b,0\nc,1\n"), "");
  EXPECT_THAT(Error("words,label\na b,0\nc,1\n"), HasSubstr("there is no column 'text'"));
  config_.text = {"text"};
  config_.data = Path("t.npz");
  EXPECT_THAT(std::string(ToStd(OpenModelAndData(config_, true, true).status().message())),
              HasSubstr("there is no column 'text'"));
}

TEST_F(DataSetupTest, TheTokenizerBesideTheModelReadsTexts) {
  std::filesystem::remove(Path("preprocess.json"));
  SaveTextClassifier(Path("m.onnx"), 7, 2);
  config_.text = {"text"};
  EXPECT_THAT(Error("text,label\na b,0\nc,1\n"), HasSubstr("needs a `tokenizer`"));
  Write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n");
  const auto opened = Open("text,label\na b,0\nc,1\n");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Value(opened->data.bound, 0, 1), 4);
  EXPECT_THAT(opened->data.bound.notes, testing::Contains(HasSubstr("the tokenizer is the one in ")));
}

// The four features are a grey picture of 2 × 2.
TEST_F(DataSetupTest, FoldersOfPicturesFollowTheModelAndItsClasses) {
  Write("preprocess.json", ToJson({.classes = {"10", "9", "2"}}));
  const std::vector<uint8_t> file = ReadRecordedPictures().front().file;
  for (const char* folder : {"2", "10"}) {
    std::filesystem::create_directories(Path(StrCat("p/", folder)));
    Write(StrCat("p/", folder, "/1"), {file.begin(), file.end()});
  }
  config_.data = Path("p");
  config_.resize = "stretch";
  const auto opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const BoundData& bound = opened->data.bound;
  EXPECT_EQ(bound.feeds[0].sample.shape, Shape{4});
  EXPECT_TRUE(bound.has_images);
  EXPECT_EQ(bound.label.info.max_value, 2);
  const PicturePreprocess wanted{
      .height = 2, .width = 2, .channels = 1, .layout = "nchw", .resize = "stretch", .channel_order = "rgb"};
  EXPECT_EQ(DescribeBinding(opened->data).pictures, wanted);
  std::filesystem::create_directories(Path("p/11"));
  Write("p/11/1", {file.begin(), file.end()});
  const auto other = OpenModelAndData(config_, true, true);
  EXPECT_THAT(std::string(ToStd(other.status().message())),
              HasSubstr("the folder '11' is none of the model's 3 classes"));
}

// Both columns are folders below the data; the label says so by its name.
TEST_F(DataSetupTest, PicturesAndMasksAreFolders) {
  Write("preprocess.json", "{}");
  const auto pictures = ReadRecordedPictures();
  const auto grey = std::ranges::find(pictures, "palette4.png", &RecordedPicture::name);
  for (const char* name : {"images/a.png", "masks/a.png"}) {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    Write(name, {grey->file.begin(), grey->file.end()});
  }
  config_.data = folder_;
  config_.input = {"x=images/"};
  config_.label = {"kind=masks/"};
  const auto opened = OpenModelAndData(config_, true, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const BoundData& bound = opened->data.bound;
  EXPECT_EQ(bound.label.info.sample, (Type{DType::kUInt8, {2, 2}}));
  EXPECT_EQ(DescribeBinding(opened->data).label, std::vector<std::string>{"kind"});
  EXPECT_EQ(DescribeBinding(opened->data).pictures->folders.size(), 2u);
}

TEST_F(DataSetupTest, NamesOfFewerClassesAreNotGuessed) {
  std::filesystem::remove(Path("preprocess.json"));
  const auto opened = Open("a,b,c,d,kind\n1,2,3,4,u\n1,2,3,4,w\n");
  ASSERT_TRUE(opened.ok()) << opened.status();
  LossChoice loss;
  loss.terms = {{.feed = kLabelFeed}};
  loss.feeds = {{.name = kLabelFeed, .num_classes = 3}};
  EXPECT_THAT(DescribeGuessedClasses(opened->data.bound, loss), HasSubstr("2 names and the model 3 classes"));
  loss.feeds[0].num_classes = 2;
  EXPECT_EQ(DescribeGuessedClasses(opened->data.bound, loss), "");
}

// Gather(table [10,3], ids + 2) and an input whose NaN is replaced.
TEST(ValueChecks, FollowFromTheGraph) {
  ImportedModel model;
  Builder b(&model.graph);
  const Val ids = b.Input(InputKind::kFeed, "ids", {DType::kInt32, {2, 5}});
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  const Val table = b.Input(InputKind::kParameter, "table", {DType::kFloat32, {10, 3}});
  const Val index = Cast(Reshape(ids, {10}), DType::kInt64) + 2.0;
  model.graph.AddOutput("rows", b.Op("Gather", {table, index}, {{"axis", int64_t{0}}}).id());
  model.graph.AddOutput("filled", Where(b.Op("IsNaN", {x}), b.Scalar(DType::kFloat32, 0), x).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  std::vector<FeedSpec> feeds = {{.feed = "ids"}, {.feed = "x"}};
  AddValueChecks(model, &feeds);
  ASSERT_TRUE(feeds[0].range.has_value());
  EXPECT_EQ(feeds[0].range->min, -12);
  EXPECT_EQ(feeds[0].range->max, 7);
  EXPECT_THAT(feeds[0].range->what, HasSubstr("the 10 rows of 'table'"));
  EXPECT_FALSE(feeds[0].allow_nan);
  EXPECT_TRUE(feeds[1].allow_nan);
  EXPECT_FALSE(feeds[1].range.has_value());
}

class DataHintsTest : public Scratch {
 protected:
  std::vector<std::string> Hints(double scale) {
    tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
    HostTensor x({DType::kFloat32, {33, 4}}), y({DType::kInt64, {33}});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, scale * static_cast<double>(i % 5));
    for (int64_t i = 0; i < 33; ++i) y.SetInt(i, i % 3);
    return HintsOf(x, y);
  }

  // Of the model in m.onnx.
  std::vector<std::string> HintsOf(const HostTensor& x, const HostTensor& label) {
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
    TrainConfig config;
    config.model = Path("m.onnx");
    config.data = Path("d.npz");
    const auto run = PrepareTraining(config);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? run->warnings : std::vector<std::string>();
  }
};

TEST_F(DataHintsTest, LargeInputsAreNamed) {
  EXPECT_THAT(Hints(1), IsEmpty());
  EXPECT_THAT(Hints(1e5), ElementsAre(HasSubstr("has values up to 4e+05")));
}

TEST_F(DataHintsTest, LabelsOfTwoValuesMayBeClasses) {
  tiny::Mlp(3, "").Save(Path("m.onnx"));
  const auto hints = [&](double low, double high, int64_t every) {
    HostTensor x({DType::kFloat32, {33, 4}}), y({DType::kFloat32, {33, 3}});
    for (int64_t i = 0; i < y.size(); ++i) y.Set(i, i % every == 0 ? high : low);
    return HintsOf(x, y);
  };
  EXPECT_THAT(hints(0, 1, 3), ElementsAre(HasSubstr("one-hot: `loss` ce")));
  EXPECT_THAT(hints(0, 1, 2), ElementsAre(HasSubstr("0 or 1: `loss` bce")));
  EXPECT_THAT(hints(-1, 1, 2), ElementsAre(HasSubstr("-1 or 1: `loss` bce trains a classifier on labels 0 and 1")));
  EXPECT_THAT(hints(0.5, 0.5, 2), IsEmpty());
}

}  // namespace
}  // namespace onnxtrain
