// The same command gives the same bits, whatever memory held before, however threads are asked for and however data is
// read.
#include <nlohmann/json.hpp>
#include <vector>

#include "frontend/base/strings.h"
#include "tests/paths.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// Losses and gradient norms of every step, and the trained model.
struct Bits {
  std::vector<double> numbers;
  std::string model;

  bool operator==(const Bits&) const = default;
};

class Repeat : public Scratch {
 protected:
  Repeat() {
    const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/tools/export_models.py"), " ", folder_);
    EXPECT_EQ(std::system(command.c_str()), 0) << "python3-torch is needed";
  }

  // A run that hangs fails: it waits within a step, where nothing asks for a signal.
  Bits Train(const std::string& flags, const std::string& environment = "", int threads = 2) const {
    const Outcome o =
        RunProcess(StrCat("--backend cpu --threads ", threads, " --log-every 1 --quiet --overwrite --out r ", flags),
                   StrCat("env ", environment, " timeout -s KILL 120"));
    EXPECT_EQ(o.code, 0) << flags << " " << environment << ": " << o.err;
    Bits bits;
    std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] != "step") continue;
      bits.numbers.push_back(event["loss"]);
      bits.numbers.push_back(event["grad_norm"]);
    }
    EXPECT_FALSE(bits.numbers.empty());
    for (const auto& entry : std::filesystem::directory_iterator(Path("r"))) {
      if (entry.path().extension() == ".onnx") bits.model = ReadAll(entry.path());
    }
    EXPECT_FALSE(bits.model.empty());
    return bits;
  }

  static std::string Filled(int byte) {
    return StrCat("MALLOC_PERTURB_=", byte);
  }  // what glibc writes into memory that it gives and takes
};

constexpr const char* kModels[] = {"resnet", "encoder", "lstm"};
constexpr const char* kWays[] = {"", "--mixed-precision bf16", "--gradient-accumulation-steps 4",
                                 "--gradient-checkpointing all --ema-decay 0.9"};

TEST_F(Repeat, WhateverMemoryHeld) {
  for (const char* model : kModels) {
    for (const char* way : kWays) {
      const std::string flags = StrCat("--model ", model, ".onnx --max-steps 3 --batch-size 32 ", way);
      EXPECT_TRUE(Train(flags, Filled(1)) == Train(flags, Filled(170))) << flags;
    }
  }
}

TEST_F(Repeat, WithDropout) {
  tiny::Deep(true).Save(Path("dropout.onnx"));
  const std::string flags = "--model dropout.onnx --max-steps 3 --batch-size 32 --dropout 0.3";
  EXPECT_TRUE(Train(flags) == Train(flags));
  EXPECT_FALSE(Train(flags) == Train(StrCat(flags, " --seed 43")));
}

// As many threads take part as were there when products were prepared, else they would wait for each other for ever.
TEST_F(Repeat, HoweverThreadsAreLimited) {
  const std::string flags = "--model resnet.onnx --max-steps 2 --batch-size 32";
  const Bits two = Train(flags), one = Train(flags, "", 1);
  ASSERT_FALSE(one == two);
  EXPECT_TRUE(Train(flags, "OMP_DYNAMIC=true") == two);
  EXPECT_TRUE(Train(flags, "OMP_THREAD_LIMIT=1") == one);
  EXPECT_TRUE(Train(flags, "OMP_SCHEDULE=dynamic OMP_PROC_BIND=true OMP_MAX_ACTIVE_LEVELS=4") == two);
}

// Made-up data is made from the seed.
TEST_F(Repeat, FromTheFlagsThatARunWrote) {
  const Bits want = Train("--model encoder.onnx --max-steps 3 --batch-size 32 --mixed-precision bf16");
  std::filesystem::rename(Path("r"), Path("first"));
  EXPECT_TRUE(Train("--flagfile first/config.flags") == want);
}

TEST_F(Repeat, HoweverDataIsRead) {
  const std::string flags =
      "--model encoder.onnx --data train.npz --batch-size 32 --max-steps 20 --micro-batch-size 16 ";
  const Bits want = Train(StrCat(flags, "--num-workers 0"));
  for (const char* way :
       {"--num-workers 1", "--num-workers 3 --prefetch-factor 1", "--num-workers 2 --prefetch-factor 5"}) {
    EXPECT_TRUE(Train(StrCat(flags, way)) == want) << way;
  }
}

}  // namespace
}  // namespace onnxtrain
