// The model and its weights from the artifacts of ONNX Runtime's training API.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "frontend/onnx/import.h"
#include "frontend/onnx/interop/ort_artifacts.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/export.h"
#include "tests/frontend/onnx/model_builder.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kArtifacts[] = "models/ort_training_api";

std::string ReadBytes(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class OrtArtifacts : public testing::Test {
 protected:
  OrtArtifacts() {
    std::string name = (fs::temp_directory_path() / "onnxtrain-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~OrtArtifacts() override { fs::remove_all(folder_); }

  void Copy(const std::string& file, const std::string& as) const {
    fs::copy_file(SharedPath(std::string(kArtifacts) + "/" + file), folder_ / as);
  }
  std::string LoadError(const std::string& file) const {
    const auto model = OnnxModel::Load((folder_ / file).string());
    return model.ok() ? "" : std::string(model.status().message());
  }

  fs::path folder_;
};

// All of the folder, and each of its models, are the model of inference with the weights of the checkpoint.
TEST_F(OrtArtifacts, AreOneModel) {
  SKIP_WITHOUT_SHARED(kArtifacts);
  const std::string folder = SharedPath(kArtifacts);
  for (const char* part : {"", "/eval_model.onnx", "/training_model.onnx"}) {
    const auto model = OnnxModel::Load(folder + part);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->outputs(), std::vector<std::string>{"output-0"});
    ASSERT_EQ((*model)->inputs().size(), 1u);
    EXPECT_EQ((*model)->inputs()[0].name, "input-0");
    const HostTensor* bias = (*model)->Initializer("fc1.bias");
    ASSERT_NE(bias, nullptr);
    EXPECT_EQ(bias->shape(), (Shape{500}));
    for (int64_t i = 0; i < 500; ++i) EXPECT_LT(std::abs(bias->At(i)), 1.0 / 28) << i;  // as PyTorch draws them
    const auto bytes = ExportBytes(**model, {{"fc1.bias", HostTensor::Filled(bias->type(), 3)}});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto again = OnnxModel::LoadBytes(std::as_bytes(std::span(*bytes)), "again");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)->Initializer("fc1.bias")->At(7), 3);
  }
}

TEST_F(OrtArtifacts, NameTheMissingFile) {
  SKIP_WITHOUT_SHARED(kArtifacts);
  Copy("training_model.onnx", "a_training_model.onnx");
  EXPECT_THAT(LoadError("a_training_model.onnx"), HasSubstr("its a_eval_model.onnx, which has the model, is missing"));
  Copy("adamw.onnx", "optimizer_model.onnx");
  EXPECT_THAT(LoadError(""), HasSubstr("its eval_model.onnx, which has the model, is missing"));
  Copy("eval_model.onnx", "eval_model.onnx");
  Copy("nominal_checkpoint", "nominal_checkpoint");  // has names alone
  EXPECT_THAT(LoadError("eval_model.onnx"), HasSubstr("its weights are in a checkpoint of ONNX Runtime, which is"));
  Copy("checkpoint.ckpt", "checkpoint");
  EXPECT_EQ(LoadError("optimizer_model.onnx"), "");
  Copy("checkpoint.ckpt", "other");
  EXPECT_THAT(LoadError(""), HasSubstr("two checkpoints are in its folder: checkpoint and other"));
}

// The values that a body of If reads stay.
TEST_F(OrtArtifacts, BodiesReadValuesOfTheGraph) {
  SKIP_WITHOUT_SHARED(kArtifacts);
  Copy("checkpoint.ckpt", "checkpoint");
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2});
  AddInput(&model, "cond", {}, onnx::TensorProto::BOOL);
  AddNode(&model, "Relu", {"x"}, {"h"});
  onnx::NodeProto* choice = AddNode(&model, "If", {"cond"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::AttributeProto* branch = choice->add_attribute();
    branch->set_name(name);
    branch->set_type(onnx::AttributeProto::GRAPH);
    branch->mutable_g()->set_name(name);
    onnx::NodeProto* node = branch->mutable_g()->add_node();
    node->set_op_type("Neg");
    node->add_input("h");
    node->add_output(name);
    branch->mutable_g()->add_output()->set_name(name);
  }
  AddNode(&model, "ReduceMean", {"y"}, {"loss"});
  AddOutput(&model, "loss");
  auto* outputs = model.add_metadata_props();
  outputs->set_key("InferenceGraphOutputs");
  outputs->set_value("y");
  std::ofstream(folder_ / "eval_model.onnx", std::ios::binary) << model.SerializeAsString();
  const auto loaded = OnnxModel::Load((folder_ / "eval_model.onnx").string());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->outputs(), std::vector<std::string>{"y"});
}

TEST_F(OrtArtifacts, TheirFilesAreThoseOfTheModel) {
  SKIP_WITHOUT_SHARED(kArtifacts);
  for (const char* name : {"eval_model.onnx", "training_model.onnx"}) Copy(name, name);
  Copy("checkpoint.ckpt", "checkpoint");
  std::ofstream(folder_ / "notes") << "other files";
  const std::string eval = (folder_ / "eval_model.onnx").string(),
                    training = (folder_ / "training_model.onnx").string();
  const std::string checkpoint = (folder_ / "checkpoint").string();
  EXPECT_THAT(ListModelFiles(folder_.string()), testing::ElementsAre(eval, checkpoint, folder_.string()));
  EXPECT_THAT(ListModelFiles(training), testing::ElementsAre(eval, checkpoint, training));
}

// A model that only happens to have such a name.

TEST_F(OrtArtifacts, OtherModelsStayAsTheyAre) {
  SKIP_WITHOUT_SHARED("models/mnist_cntk_opset8.onnx");
  for (const char* name : {"eval_model.onnx", "my_training_model.onnx"}) {
    fs::copy_file(SharedPath("models/mnist_cntk_opset8.onnx"), folder_ / name);
    EXPECT_EQ(LoadError(name), "");
  }
}

TEST(OrtCheckpoint, DamageIsAnError) {
  SKIP_WITHOUT_SHARED(kArtifacts);
  const std::string whole = ReadBytes(SharedPath(std::string(kArtifacts) + "/checkpoint.ckpt"));
  const auto parse = [](const std::string& bytes) { return ParseOrtCheckpoint(std::as_bytes(std::span(bytes))); };
  ASSERT_TRUE(parse(whole).ok());
  EXPECT_EQ(parse(whole)->size(), 4u);
  for (size_t size = 0; size < whole.size(); size += 4099) EXPECT_FALSE(parse(whole.substr(0, size)).ok()) << size;
  const std::string nominal = ReadBytes(SharedPath(std::string(kArtifacts) + "/nominal_checkpoint"));
  for (size_t at = 0; at < nominal.size(); ++at) {
    for (const char flip : {'\x01', '\x10', '\x7f', '\xff'}) {
      std::string damaged = nominal;
      damaged[at] ^= flip;
      const auto weights = parse(damaged);  // an error or other weights, but no access beyond the bytes
      EXPECT_LE(weights.ok() ? weights->size() : 0, 4u);
    }
  }
}

}  // namespace
}  // namespace onnxtrain
