// Collectives over c10d's Gloo, on the memory of the host.
#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "backends/collectives.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

// How long the ranks that an operation has failed on wait for each other, to find the ones that are gone.
constexpr std::chrono::seconds kRollCall{2};
constexpr std::chrono::milliseconds kPoll{20};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

c10::intrusive_ptr<c10d::Store> OpenStore(const CollectivesOptions& o) {
  if (!o.file.empty()) return c10::make_intrusive<c10d::FileStore>(o.file, o.size);
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<uint16_t>(o.port);
  tcp.isServer = o.rank == 0;
  tcp.numWorkers = o.size;
  tcp.waitWorkers = false;  // the group waits for them anyway
  tcp.timeout = Milliseconds(o.timeout);
  return c10::make_intrusive<c10d::TCPStore>(o.host, tcp);
}

std::shared_ptr<gloo::transport::Device> OpenDevice(const std::string& interface) {
  using Group = c10d::ProcessGroupGloo;
  if (interface.empty()) return Group::createDefaultDevice();
  const bool is_address =
      interface.find_first_not_of("0123456789.") == std::string::npos || interface.find(':') != std::string::npos;
  return is_address ? Group::createDeviceForHostname(interface) : Group::createDeviceForInterface(interface);
}

at::ScalarType ToScalarType(DType dtype) {
  return dtype == DType::kFloat32   ? at::kFloat
         : dtype == DType::kFloat64 ? at::kDouble
         : dtype == DType::kInt64   ? at::kLong
                                    : at::kByte;
}

c10d::ReduceOp::RedOpType ToReduceOp(Reduction op) {
  return op == Reduction::kSum   ? c10d::ReduceOp::SUM
         : op == Reduction::kMin ? c10d::ReduceOp::MIN
                                 : c10d::ReduceOp::MAX;
}

// The first line, without the place in Gloo's source.
std::string FirstLine(std::string_view what) {
  what = what.substr(0, what.find('\n'));
  if (const size_t end = what.find("] "); what.starts_with('[') && end != what.npos) what.remove_prefix(end + 2);
  return std::string(what);
}

std::string DescribeLost(const std::vector<int>& lost) {
  if (lost.empty()) return "";
  std::string text = lost.size() == 1 ? "rank " : "ranks ";
  for (const int r : lost) StrAppend(&text, r == lost[0] ? "" : ", ", r);
  return text + (lost.size() == 1 ? " does not answer" : " do not answer");
}

std::vector<int> ListRanks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string ReportKey(int rank) { return StrCat("failed/", rank); }

// Returns those of `missing` that do not report the failure of an operation, as those do that have only waited.
std::vector<int> CallRoll(c10d::Store& store, int own, std::vector<int> missing) {
  const ptrdiff_t others = std::ssize(missing);
  try {
    store.set(ReportKey(own), {1});
    for (const auto end = Clock::now() + kRollCall; !missing.empty() && Clock::now() < end;) {
      std::erase_if(missing, [&](int r) { return store.check({ReportKey(r)}); });
      std::this_thread::sleep_for(kPoll);
    }
  } catch (const std::exception&) {  // rank 0 has the store, and may have left after all others had reported
    if (std::ssize(missing) == others) missing = {0};
  }
  return missing;
}

class GlooCollectives;

class GlooTransfer : public Transfer {
 public:
  // `tensors`: of which the engine keeps no copy until the work has finished.
  GlooTransfer(GlooCollectives* ranks, std::string_view what, std::vector<at::Tensor> tensors)
      : ranks_(*ranks), what_(what), tensors_(std::move(tensors)) {}
  std::vector<at::Tensor>& tensors() { return tensors_; }
  void Begin(c10::intrusive_ptr<c10d::Work> work) { work_ = std::move(work); }
  absl::Status Wait() override;

 private:
  GlooCollectives& ranks_;
  const std::string what_;
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10d::Work> work_;  // null where the start has failed
};

class GlooCollectives : public Collectives {
 public:
  explicit GlooCollectives(const CollectivesOptions& options)
      : GlooCollectives(options, OpenStore(options), "gloo", ListRanks(options.size)) {}

  // `members`: ranks of `options`.
  GlooCollectives(const CollectivesOptions& options, c10::intrusive_ptr<c10d::Store> store, const std::string& name,
                  std::vector<int> members)
      : options_(options), name_(name), members_(std::move(members)), store_(std::move(store)) {
    rank_ = static_cast<int>(std::ranges::find(members_, options.rank) - members_.begin());
    store_->setTimeout(Milliseconds(options.timeout));
    auto gloo = c10d::ProcessGroupGloo::Options::create(Milliseconds(options.timeout));
    gloo->devices.push_back(OpenDevice(options.interface));
    gloo->threads = 2;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store_), rank_,
                                                         size(), gloo);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) override {
    const at::ScalarType type = ToScalarType(dtype);
    CHECK(type != at::kByte) << "AllReduce of " << ToString(dtype);
    std::vector<at::Tensor> tensors = {View(values, type)};
    c10d::AllreduceOptions options;
    options.reduceOp = ToReduceOp(op);
    return Run(what, [&] { return group_->allreduce(tensors, options); });
  }

  absl::Status Broadcast(std::string_view what, int root, std::span<std::byte> bytes) override {
    std::vector<at::Tensor> tensors = {View(bytes, at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return Run(what, [&] { return group_->broadcast(tensors, options); });
  }

  absl::Status AllGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all) override {
    std::vector<at::Tensor> input = {View({const_cast<std::byte*>(own.data()), own.size()}, at::kByte)};
    std::vector<std::vector<at::Tensor>> output(1);
    for (int r = 0; r < size(); ++r) output[0].push_back(View(all.subspan(r * own.size(), own.size()), at::kByte));
    return Run(what, [&] { return group_->allgather(output, input); });
  }

  absl::Status AllToAll(std::string_view what, std::span<const std::byte> own, std::span<std::byte> parts) override {
    at::Tensor input = View({const_cast<std::byte*>(own.data()), own.size()}, at::kByte),
               output = View(parts, at::kByte);
    std::vector<int64_t> equal;  // counts: none
    return Run(what, [&] { return group_->alltoall_base(output, input, equal, equal); });
  }

  absl::Status Barrier(std::string_view what) override {
    return Run(what, [&] { return group_->barrier(); });
  }

  absl::StatusOr<std::unique_ptr<Collectives>> NewGroup(std::string_view name,
                                                        const std::vector<int>& members) override {
    std::vector<int> own;
    for (const int member : members) own.push_back(members_.at(member));
    CHECK(std::ranges::find(own, options_.rank) != own.end()) << "rank " << options_.rank << " is no member";
    if (group_ == nullptr) return failure_;
    try {
      return std::make_unique<GlooCollectives>(options_, store_, StrCat(name_, "/", name), std::move(own));
    } catch (const std::exception& error) {
      return Fail(StrCat("meeting of group ", name), error.what());
    }
  }

  std::unique_ptr<Transfer> StartSend(std::string_view what, int to, std::span<const std::byte> bytes) override {
    const std::span<std::byte> memory(const_cast<std::byte*>(bytes.data()), bytes.size());
    return Start(what, memory, [&](std::vector<at::Tensor>& tensors) { return group_->send(tensors, to, 0); });
  }

  std::unique_ptr<Transfer> StartReceive(std::string_view what, int from, std::span<std::byte> bytes) override {
    return Start(what, bytes, [&](std::vector<at::Tensor>& tensors) { return group_->recv(tensors, from, 0); });
  }

  absl::Status Finish(std::string_view what, c10d::Work* work) {
    return Run(what, [&] { return work; });
  }

 private:
  // What fails here fails again in Wait.
  template <typename Function>
  std::unique_ptr<Transfer> Start(std::string_view what, std::span<std::byte> bytes, Function start) {
    auto transfer = std::make_unique<GlooTransfer>(this, what, std::vector<at::Tensor>{View(bytes, at::kByte)});
    if (group_ == nullptr) return transfer;
    const c10::InferenceMode writable(false);
    try {
      transfer->Begin(start(transfer->tensors()));
    } catch (const c10::Error& error) {
      Fail(what, error.what_without_backtrace()).IgnoreError();
    } catch (const std::exception& error) {
      Fail(what, error.what()).IgnoreError();
    }
    return transfer;
  }

  static at::Tensor View(std::span<std::byte> bytes, at::ScalarType type) {
    const c10::InferenceMode writable(false);
    const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
    return at::from_blob(bytes.data(), {count}, at::TensorOptions(type));
  }

  template <typename Start>
  absl::Status Run(std::string_view what, Start start) {
    if (group_ == nullptr) return failure_;
    // Programs of libtorch run in inference mode; the engine's threads could not write to tensors of that mode.
    const c10::InferenceMode writable(false);
    try {
      start()->wait();
      return absl::OkStatus();
    } catch (const c10::Error& error) {
      return Fail(what, error.what_without_backtrace());
    } catch (const std::exception& error) {
      return Fail(what, error.what());
    }
  }

  // Closes the connections first: the ranks that wait for this one then notice at once. Operations that follow return
  // the same failure.
  absl::Status Fail(std::string_view what, std::string_view error) {
    group_.reset();
    const std::vector<int> lost = FindLost();
    const std::string who = DescribeLost(lost);
    failure_ = absl::UnavailableError(StrCat(what, ": ", who, who.empty() ? "" : ": ", FirstLine(error)));
    bool lowest = options_.rank > 0;
    for (int r = 0; r < options_.rank; ++r) lowest &= std::ranges::find(lost, r) != lost.end();
    if (lowest) failure_.SetPayload(kReporter, absl::Cord());
    return failure_;
  }

  // The store of a rank 0 that hangs answers no question: another thread asks, and is left to its wait.
  std::vector<int> FindLost() {
    std::vector<int> others = members_;
    std::erase(others, options_.rank);
    std::packaged_task<std::vector<int>()> ask(
        [store = store_, own = options_.rank, others] { return CallRoll(*store, own, others); });
    std::future<std::vector<int>> lost = ask.get_future();
    std::thread(std::move(ask)).detach();
    return lost.wait_for(2 * kRollCall) == std::future_status::ready ? lost.get() : std::vector<int>{0};
  }

  const CollectivesOptions options_;
  const std::string name_;          // of the connections, in the store
  const std::vector<int> members_;  // by rank of this group: the rank in all
  int rank_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;  // null after a failure
  absl::Status failure_;
};

absl::Status GlooTransfer::Wait() { return ranks_.Finish(what_, work_.get()); }

std::string MeetingPoint(const CollectivesOptions& o) { return o.file.empty() ? StrCat(o.host, ":", o.port) : o.file; }

absl::Status DescribeFailure(const CollectivesOptions& o, std::string_view error) {
  return absl::UnavailableError(StrCat("rank ", o.rank, " of ", o.size, " did not meet the others at ", MeetingPoint(o),
                                       o.interface.empty() ? "" : StrCat(" through ", o.interface), ": ",
                                       FirstLine(error)));
}

}  // namespace
}  // namespace onnxtrain

extern "C" __attribute__((visibility("default"))) onnxtrain::Collectives* onnxtrain_create_collectives(
    const onnxtrain::CollectivesOptions& options, absl::Status* status) {
  try {
    return new onnxtrain::GlooCollectives(options);
  } catch (const c10::Error& error) {
    *status = onnxtrain::DescribeFailure(options, error.what_without_backtrace());
  } catch (const std::exception& error) {
    *status = onnxtrain::DescribeFailure(options, error.what());
  }
  return nullptr;
}
