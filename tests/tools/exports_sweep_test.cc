// tools/exports_sweep.py: compares recorded exports with the program. The records are NumPy's, of y = x w + b.
#include "tests/paths.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// Records batch, loss and gradients of OUT/model.onnx; the arguments are a further parameter that the file lacks, and
// whether it belongs to a BatchNorm.
constexpr char kRecord[] = R"(
import json, pathlib, sys
import numpy as np
tools, folder, further, batch_norm = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4] == 'yes'
sys.path.insert(0, tools)
from exports.records import Record, targets_like
w, b = np.fromfile(folder / 'w', np.float32).reshape(4, 2), np.fromfile(folder / 'b', np.float32)
x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
y = x @ w + b
targets = targets_like({'y': y})
error = y - targets['y']
gradients = {'w': x.T @ error * (2 / y.size), 'b': error.sum(0) * (2 / y.size)}
if further:
    gradients[further] = np.zeros(2, np.float32)
record = Record(folder, 'model')
record.set_inputs({'x': x})
record.set_targets(targets, {'y': y})
record.set_results((error ** 2).mean(), gradients, batch_norm=[further] if batch_norm else [], train=False)
record.write()
(folder / 'done.json').write_text(json.dumps({'status': 'exported'}))
)";

class ExportsSweep : public Scratch {
 protected:
  // Records the export as one of pyg/GCNConv by the exporter, and compares it. Returns the exit code.
  int Sweep(const std::string& exporter, const std::string& further = "", const std::string& batch_norm = "no") {
    const std::string folder = Path("sweep/exports/pyg/GCNConv/" + exporter);
    std::filesystem::create_directories(folder);
    const tiny::Weight w{"w", {4, 2}, tiny::Uniform(8, 1, 5)}, b{"b", {2}, tiny::Uniform(2, 1, 6)};
    for (const tiny::Weight& weight : {w, b}) {
      WriteAll(StrCat(folder, "/", weight.name),
               std::string(reinterpret_cast<const char*>(weight.values.data()), weight.values.size() * sizeof(float)));
    }
    tiny::Model{.nodes = {{"MatMul", {"x", "w"}, {"h"}}, {"Add", {"h", "b"}, {"y"}}}, .weights = {w, b}}.Save(
        folder + "/model.onnx");
    WriteAll(Path("record.py"), kRecord);
    EXPECT_EQ(std::system(StrCat("/usr/bin/python3 ", Path("record.py"), " ", RepoPath("tools"), " ", folder, " '",
                                 further, "' ", batch_norm)
                              .c_str()),
              0);
    return Compare(exporter);
  }

  int Compare(const std::string& exporter) {
    const int status =
        std::system(StrCat("/usr/bin/python3 ", RepoPath("tools/exports_sweep.py"), " ", Path("sweep"), " --tool ",
                           BinaryPath("bin/onnxtrain"), " --only pyg/GCNConv --exporter ", exporter, " > ", Path("out"))
                        .c_str());
    out_ = ReadAll(Path("out"));
    return WEXITSTATUS(status);
  }

  bool Says(const std::string& text) const { return out_.find(text) != std::string::npos; }

  std::string out_;
};

TEST_F(ExportsSweep, FindsEqualNumbers) {
  EXPECT_EQ(Sweep("dynamo"), 0);
  EXPECT_TRUE(Says("equal        dynamo             pyg/GCNConv model\n")) << out_;
  EXPECT_TRUE(Says("| dynamo | 1 | 1 | 0 | 0 | 0 | 0 | 0 |")) << out_;
  // The row is kept, and not compared again with the same program.
  EXPECT_EQ(Compare("dynamo"), 0);
  EXPECT_FALSE(Says("equal        dynamo")) << out_;
  EXPECT_TRUE(Says("| dynamo | 1 | 1 | 0 | 0 | 0 | 0 | 0 |")) << out_;
}

TEST_F(ExportsSweep, NamesParametersThatAreNotTrained) {
  EXPECT_EQ(Sweep("dynamo", "norm.scale"), 1);
  EXPECT_TRUE(Says("pyg/GCNConv model: trains 10 values instead of 12; without `norm.scale`\n")) << out_;
  EXPECT_TRUE(Says("| dynamo | 1 | 0 | 1 | 0 | 0 | 0 | 0 |")) << out_;
}

TEST_F(ExportsSweep, KnowsReasons) {
  EXPECT_EQ(Sweep("dynamo-optimize", "bn.weight", "yes"), 0);
  EXPECT_TRUE(Says("trains 10 values instead of 12; without parameters of BatchNorm\n")) << out_;
  EXPECT_TRUE(Says("| dynamo-optimize | 1 | 0 | 0 | 1 | 0 | 0 | 0 |")) << out_;
}

}  // namespace
}  // namespace onnxtrain
