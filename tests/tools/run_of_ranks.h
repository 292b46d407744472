// Runs of several processes on a small model with dropout, and its data.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "frontend/base/strings.h"
#include "tests/paths.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

inline int FindFreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// Puts a Dropout behind the hidden layer of a tiny::Mlp.
inline tiny::Model WithDropout(tiny::Model m) {
  m.nodes[3].inputs[0] = "dropped";
  m.nodes.insert(m.nodes.begin() + 3, {"Dropout", {"h"}, {"dropped"}});
  return m;
}

class RunOfRanks : public RunScratch {
 protected:
  RunOfRanks() {
    WithDropout(tiny::Mlp(3)).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(50)).ok());
    EXPECT_TRUE(WriteNpz(Path("e.npz"), Blobs(23, {.seed = 8})).ok());
  }

  void SetUp() override {
    if (!std::filesystem::exists(BinaryPath("lib/libonnxtrain_comm.so")))
      GTEST_SKIP() << "built without libtorch (ONNXTRAIN_TORCH)";
  }

  static std::string Launch(int ranks) { return StrCat("launch --nproc ", ranks, " -- "); }

  // Starts the ranks as torchrun does; %R in `flags` is the rank, `environment` of a rank what it is started with.
  // `disturb` is a shell command that runs once rank 0 has trained, or `at_once`; $P0 and $P1 are the processes. Their
  // exit codes go to files c0 and c1, what they print to o0, o1.
  void RunTwo(const std::string& flags, const std::string& disturb, const std::string& more_of_rank_1 = "",
              bool at_once = false, const std::array<std::string, 2>& environment = {}) const {
    const std::string program = BinaryPath("bin/onnxtrain");
    std::string script = StrCat("cd '", folder_, "'\nexport WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 ",
                                "MASTER_PORT=", FindFreePort(), "\n");
    for (int r = 0; r < 2; ++r) {
      StrAppend(&script, environment[r], " RANK=", r, " LOCAL_RANK=", r, " '", program, "' ",
                absl::StrReplaceAll(flags, {{"%R", StrCat(r)}}), r == 1 ? more_of_rank_1 : "", " >o", r,
                " 2>&1 </dev/null &\nP", r, "=$!\n");
    }
    if (at_once) StrAppend(&script, disturb, "\n");
    if (!disturb.empty() && !at_once)
      StrAppend(&script, "for i in $(seq 200); do grep -qs '\"step\",' r/metrics.jsonl && break; sleep 0.1; done\n",
                disturb, "\n");
    script += "wait $P0; echo $? >c0\nwait $P1; echo $? >c1\n";
    WriteAll(Path("script"), script);
    EXPECT_EQ(std::system(StrCat("timeout 100 bash '", Path("script"), "' 2>/dev/null").c_str()), 0);
  }
  int ExitCode(int rank) const { return std::atoi(ReadAll(Path(StrCat("c", rank))).c_str()); }

  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    for (const auto& event : Metrics(run)) losses.push_back(event[event["event"] == "eval" ? "eval_loss" : "loss"]);
    return losses;
  }

  void ExpectSameRun(const std::string& one, const std::string& other) const {
    const std::vector<double> a = Losses(one), b = Losses(other);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << "event " << i;
  }
};

}  // namespace onnxtrain
