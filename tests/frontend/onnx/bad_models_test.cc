// Loads hostile models in this process and with the tool: each is answered in bounded time and memory, without a
// signal.
#include "bad_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "frontend/base/strings.h"
#include "model_builder.h"
#include "tests/paths.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

struct Outcome {
  int code = -1;  // negative: the signal
  double seconds = 0;
  int64_t peak_bytes = 0;
  std::string err;
};

Outcome RunTool(std::vector<std::string> words) {
  const std::string program = BinaryPath("bin/onnxtrain"), err = TestFolder() + "/err";
  words.insert(words.begin(), program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stdout) == nullptr || freopen(err.c_str(), "w", stderr) == nullptr) _exit(99);
    execv(program.c_str(), arguments.data());
    _exit(98);
  }
  int status = 0;
  struct rusage use = {};
  wait4(child, &status, 0, &use);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), seconds.count(), use.ru_maxrss * 1024,
          ReadFile(err)};
}

// Checks time, memory and the exit code. A rejected model has one line of error that names the file.
void ExpectOutcome(int code, const std::string& path, const std::string& what) {
  const Outcome o = RunTool({"inspect", "--model", path});
  EXPECT_EQ(o.code, code) << what << ": " << o.err;
  EXPECT_LE(o.seconds, 10) << what;
  const auto size = static_cast<int64_t>(std::filesystem::is_regular_file(path) ? std::filesystem::file_size(path) : 0);
#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer itself takes more
  EXPECT_LE(o.peak_bytes, 4 * size + (int64_t{256} << 20)) << what;
#endif
  if (code == 0) return;
  EXPECT_THAT(o.err, HasSubstr("onnxtrain: error: ")) << what;
  EXPECT_THAT(o.err, HasSubstr(std::filesystem::path(path).filename().string())) << what;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << what << ": " << o.err;
}

void ExpectRejected(const std::string& path, const std::string& what) { ExpectOutcome(1, path, what); }

TEST(Bombs, AreRefusedOrStayExpressions) {
  WriteFile("small.bin", std::string(4096, '\0'));
  for (const BadModel& bad : OversizedModels()) {
    const std::string path = Save(bad.model);
    const auto start = std::chrono::steady_clock::now();
    const int64_t before = PeakMemory(true);
    auto model = OnnxModel::Load(path);
    const absl::Status status = model.ok() ? Import(**model, {}).status() : model.status();
    EXPECT_LE(PeakMemory(false) - before, int64_t{256} << 20) << bad.what;
    EXPECT_LE(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << bad.what;
    EXPECT_EQ(status.ok(), bad.imports) << bad.what << ": " << status;
    if (status.ok()) continue;
    EXPECT_THAT(Message(status), testing::AnyOf(HasSubstr("bomb"), HasSubstr("big"), HasSubstr("input '"))) << bad.what;
  }
}

TEST(Program, InspectSurvivesBombs) {
  WriteFile("small.bin", std::string(4096, '\0'));
  for (const BadModel& bad : OversizedModels()) ExpectOutcome(bad.is_read ? 0 : 1, Save(bad.model), bad.what);
}

TEST(Program, InspectSurvivesFilesThatAreNoModels) {
  ExpectRejected(WriteFile("empty.onnx", ""), "zero bytes");
  ExpectRejected(WriteFile("picture.onnx", "\x89PNG\r\n\x1a\n" + std::string(1000, 'x')), "a picture");
  ExpectRejected(TestFolder(), "a folder");
  ExpectRejected(TestFolder() + "/nothing.onnx", "no file");
  const std::string big = WriteFile("big.onnx", "");
  std::filesystem::resize_file(big, (uint64_t{2} << 30) + 1);  // a sparse file
  ExpectRejected(big, "more than 2 GiB");
  const std::string whole = LinearModel().SerializeAsString();
  for (size_t n = 1; n < whole.size(); n += 13)
    ExpectRejected(WriteFile("cut.onnx", whole.substr(0, n)), StrCat("cut at ", n));
}

TEST(Program, InspectSurvivesBadStructure) {
  onnx::ModelProto cycle = LinearModel();
  cycle.mutable_graph()->mutable_node(0)->set_input(0, "y");
  ExpectRejected(Save(cycle), "a cycle");
  onnx::ModelProto empty = LinearModel();
  empty.mutable_graph()->Clear();
  ExpectRejected(Save(empty), "an empty graph");
  onnx::ModelProto deep = LinearModel();
  onnx::GraphProto* graph = deep.mutable_graph();
  for (int i = 0; i < 1000; ++i) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type("If");
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    graph = attribute->mutable_g();
  }
  ExpectRejected(Save(deep), "1000 deep");
  onnx::ModelProto recursive = LinearModel();
  onnx::FunctionProto* function = recursive.add_functions();
  function->set_domain("mine"), function->set_name("f");
  function->add_input("a"), function->add_output("r");
  onnx::NodeProto* call = function->add_node();
  call->set_domain("mine"), call->set_op_type("f");
  call->add_input("a"), call->add_output("r");
  ExpectRejected(Save(recursive), "a function that calls itself");
}

// Models that crashed other readers: inspect describes those that can be read, and training says why it cannot.
struct KnownModel {
  const char *file, *error;  // null: it is valid, and trains
  bool is_read = true;
};

constexpr KnownModel kKnownModels[] = {
    {"30_nested_loops.onnx", "the model has no float output to train on"},
    {"badnames.onnx", "the model has no weights"},
    {"invalid_dim_param_value_repetition.onnx", "the model has no weights"},
    {"model_with_external_initializers.onnx", "external data 'Pads.bin' cannot be opened", false},
    {"ort_github_issue_12151_neg_dq_axis.onnx", "there are no samples to train on"},
    {"stft_negative_frame_step.onnx", "frame_step is -2, it should be at least 1"},
    {"three_layer_nested_subgraph.onnx", nullptr},
    {"torchmlir_BadName.onnx", "the model has no float output to train on"},
    {"transpose_to_reshape_invalid.onnx", "the model has no weights"},
};

TEST(Program, SurvivesTheKnownBadModels) {
  SKIP_WITHOUT_SHARED("bad-inputs/onnx");
  for (const KnownModel& known : kKnownModels) {
    const std::string path = SharedPath(StrCat("bad-inputs/onnx/", known.file));
    ExpectOutcome(known.is_read ? 0 : 1, path, known.file);
    const Outcome training =
        RunTool({"--model", path, "--max-steps", "1", "--overwrite", "--quiet", "--out", TestFolder() + "/run"});
    EXPECT_EQ(training.code, known.error == nullptr ? 0 : 1) << known.file << ": " << training.err;
    EXPECT_THAT(training.err, HasSubstr(known.error == nullptr ? "" : known.error)) << known.file;
  }
}

}  // namespace
}  // namespace onnxtrain
