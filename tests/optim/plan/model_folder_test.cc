#include "optim/plan/folders.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ModelFolder : public Scratch {
 protected:
  void Touch(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    WriteAll(Path(name), "{}");
  }
  std::string Find(const std::string& folder) {
    const auto found = FindModelFile(Path(folder));
    return found.ok() ? found->path : std::string(ToStd(found.status().message()));
  }
};

TEST_F(ModelFolder, HoldsTheModelWhereExportersWriteIt) {
  Touch("a/model.onnx");
  Touch("a/other.onnx");
  EXPECT_EQ(Find("a"), Path("a/model.onnx"));
  Touch("b/onnx/model.onnx");
  Touch("b/onnx/model_fp16.onnx");
  EXPECT_EQ(Find("b"), Path("b/onnx/model.onnx"));
  Touch("c/net.onnx");
  EXPECT_EQ(Find("c"), Path("c/net.onnx"));
  Touch("d/onnx/net.onnx");
  EXPECT_EQ(Find("d"), Path("d/onnx/net.onnx"));
  EXPECT_EQ(Find("a/other.onnx"), Path("a/other.onnx"));
  EXPECT_EQ(Find("nothing.onnx"), Path("nothing.onnx"));  // which opening it refuses
}

TEST_F(ModelFolder, ListsSeveralModels) {
  Touch("a/encoder_model.onnx");
  Touch("a/onnx/decoder_model.onnx");
  const std::string error = Find("a");
  EXPECT_THAT(error, HasSubstr("several models, name one: "));
  EXPECT_THAT(error, HasSubstr(Path("a/encoder_model.onnx") + ", " + Path("a/onnx/decoder_model.onnx")));
  Touch("b/readme.txt");
  EXPECT_THAT(Find("b"), HasSubstr("holds no .onnx file"));
}

TEST_F(ModelFolder, HoldsATokenizerBesideTheModel) {
  Touch("a/onnx/model.onnx");
  EXPECT_EQ(FindTokenizerFolder(Path("a/onnx/model.onnx")), "");
  Touch("a/tokenizer.json");
  EXPECT_EQ(FindTokenizerFolder(Path("a/onnx/model.onnx")), Path("a"));
  EXPECT_EQ(FindTokenizerFolder(Path("a/model.onnx")), Path("a"));
  EXPECT_EQ(FindTokenizerFolder(Path("a/other/model.onnx")), "");
  EXPECT_EQ(FindTokenizerFolder(""), "");
}

TEST_F(ModelFolder, NamesTheClasses) {
  Touch("a/onnx/model.onnx");
  const auto names = [&](const std::string& config) {
    WriteAll(Path("a/config.json"), config);
    return ReadClassNames(Path("a/onnx/model.onnx"));
  };
  EXPECT_THAT(names(R"({"id2label": {"1": "good", "0": "bad"}})"), ElementsAre("bad", "good"));
  for (const char* none : {R"({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})", R"({"id2label": {"0": "a", "2": "b"}})",
                           R"({"id2label": {"0": "a", "1": "a"}})", R"({"id2label": ["a", "b"]})",
                           R"({"id2label": {"0": 1}})", R"({"id2label": {"0": "a"}})", "{}", "[]", "{"})
    EXPECT_THAT(names(none), IsEmpty()) << none;
  EXPECT_THAT(ReadClassNames(Path("b/model.onnx")), IsEmpty());
}

}  // namespace
}  // namespace onnxtrain
