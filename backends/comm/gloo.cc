// Collectives over c10d's Gloo, on host memory.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
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

// Time that ranks wait for each other after a failed operation, to find lost ranks.
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
  tcp.waitWorkers = false;  // connecting the group waits for them
  tcp.timeout = Milliseconds(o.timeout);
  return c10::make_intrusive<c10d::TCPStore>(o.host, tcp);
}

// Ignores SIGPIPE unless the process handles it, because Gloo writes to connections that another rank may have closed.
void IgnoreClosedConnections() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
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

// Returns the first line of a message, without the position in Gloo's source.
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

// Wraps Store::set, whose overloads differ between versions of libtorch.
void SetBytes(c10d::Store& store, const std::string& key, std::string_view text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

constexpr char kPresent[] = "1";  // value of keys of which only the presence matters

std::string ReportKey(int rank) { return StrCat("failed/", rank); }

// Name of the group of all ranks.
constexpr char kWorld[] = "gloo";

// Returns the store key of the error with which a rank has closed a group.
std::string NoteKey(const std::string& group) { return StrCat("closed/", group); }

// Returns the error with which a rank has closed the group or the group of all ranks, or "" if none has.
std::string FindNote(c10d::Store& store, const std::string& group) {
  for (const std::string& key : {NoteKey(group), NoteKey(kWorld)}) {
    if (!store.check({key})) continue;
    const std::vector<uint8_t> note = store.get(key);
    return {note.begin(), note.end()};
  }
  return "";
}

// Reports the failure of an operation in the store for rank `own`. Returns the ranks of `missing` that do not report it
// within kRollCall; ranks that were only waiting do.
std::vector<int> CallRoll(c10d::Store& store, int own, std::vector<int> missing) {
  const ptrdiff_t others = std::ssize(missing);
  try {
    SetBytes(store, ReportKey(own), kPresent);
    for (const auto end = Clock::now() + kRollCall; !missing.empty() && Clock::now() < end;) {
      std::erase_if(missing, [&](int r) { return store.check({ReportKey(r)}); });
      std::this_thread::sleep_for(kPoll);
    }
  } catch (const std::exception&) {  // rank 0, which holds the store, may have left after the others reported
    if (std::ssize(missing) == others) missing = {0};
  }
  return missing;
}

// The cause of a failed operation.
struct Cause {
  std::string note;       // error of the rank that has closed the group; empty: none has
  std::vector<int> lost;  // ranks that do not answer
};

// Finds the cause of a failure; `others` are the other ranks of the group. If all ranks' group was closed, also reports
// this rank, because rank 0 waits for the reports before it leaves with the store.
Cause FindCause(c10d::Store& store, int own, const std::string& group, const std::vector<int>& others) {
  try {
    if (const std::string note = FindNote(store, group); !note.empty()) {
      if (store.check({NoteKey(kWorld)})) SetBytes(store, ReportKey(own), kPresent);
      return {.note = note, .lost = {}};
    }
  } catch (const std::exception&) {
    return {.note = "", .lost = {0}};
  }
  return {.note = "", .lost = CallRoll(store, own, others)};
}

// Calls `ask` on a detached thread. Returns `otherwise` if the store does not answer in time, for example because rank
// 0 hangs.
template <typename Result>
Result AskStore(std::function<Result()> ask, Result otherwise) {
  std::packaged_task<Result()> task(std::move(ask));
  std::future<Result> answer = task.get_future();
  std::thread(std::move(task)).detach();
  return answer.wait_for(2 * kRollCall) == std::future_status::ready ? answer.get() : otherwise;
}

constexpr uint32_t kTransferTag = 0, kGatherTag = 1;  // tags of messages between two ranks

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// A pending all-gather: one message to and one from every other rank.
struct Gather {
  std::string what;
  Works works;
};

// The connections of a group. Destroying the group and its work closes them, which the other ranks notice.
struct Connections {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;  // null after a failure
  std::deque<Gather> gathers;                        // begun and not yet awaited, oldest first
  absl::Status failure;
  bool closed = false;  // true if a rank has closed the group

  void Drop() {
    gathers.clear();
    group.reset();
  }

  absl::Status Close(std::string_view note) {
    closed = true;
    Drop();
    return failure = absl::UnavailableError(ToAbsl(note));
  }
};

class GlooCollectives;

class GlooTransfer : public Transfer {
 public:
  // Keeps `tensors`, which must live until the work has finished, because Gloo does not keep them.
  GlooTransfer(GlooCollectives* ranks, std::string_view what, std::vector<at::Tensor> tensors)
      : ranks_(*ranks), what_(what), tensors_(std::move(tensors)) {}
  std::vector<at::Tensor>& tensors() { return tensors_; }
  void Begin(c10::intrusive_ptr<c10d::Work> work) { work_ = std::move(work); }
  absl::Status Wait() override;

 private:
  GlooCollectives& ranks_;
  const std::string what_;
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10d::Work> work_;  // null if the start failed
};

class GlooCollectives : public Collectives {
 public:
  explicit GlooCollectives(const CollectivesOptions& options)
      : GlooCollectives(options, OpenStore(options), kWorld, ListRanks(options.size),
                        std::make_shared<std::atomic<bool>>(false)) {}

  // `members` are ranks of the run. `reports` is shared with the group that this one is made from.
  GlooCollectives(const CollectivesOptions& options, c10::intrusive_ptr<c10d::Store> store, const std::string& name,
                  std::vector<int> members, std::shared_ptr<std::atomic<bool>> reports)
      : options_(options),
        name_(name),
        members_(std::move(members)),
        store_(std::move(store)),
        reports_(std::move(reports)) {
    rank_ = static_cast<int>(std::ranges::find(members_, options.rank) - members_.begin());
    store_->setTimeout(Milliseconds(options.timeout));
    auto gloo = c10d::ProcessGroupGloo::Options::create(Milliseconds(options.timeout));
    gloo->devices.push_back(OpenDevice(options.interface));
    gloo->threads = 2;
    connections_->group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(name, store_), rank_, size(), gloo);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  double timeout() const override { return options_.timeout; }

  absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) override {
    const at::ScalarType type = ToScalarType(dtype);
    CHECK(type != at::kByte) << "AllReduce of " << ToString(dtype);
    std::vector<at::Tensor> tensors = {View(values, type)};
    c10d::AllreduceOptions options;
    options.reduceOp = ToReduceOp(op);
    return Run(what, [&] { return connections_->group->allreduce(tensors, options); });
  }

  absl::Status Broadcast(std::string_view what, int root, std::span<std::byte> bytes) override {
    std::vector<at::Tensor> tensors = {View(bytes, at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return Run(what, [&] { return connections_->group->broadcast(tensors, options); });
  }

  absl::Status AllGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all) override {
    Gather gather{std::string(what), {}};
    StartGather(own, all, &gather);
    return Finish(&gather);
  }

  void BeginGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all,
                   size_t rows) override {
    Gather gather{std::string(what), {}};
    for (size_t row = 0; row < rows; ++row) {
      const size_t part = own.size() / rows, whole = all.size() / rows;
      StartGather(own.subspan(row * part, part), all.subspan(row * whole, whole), &gather);
    }
    connections_->gathers.push_back(std::move(gather));
  }

  absl::Status AwaitGather() override {
    CHECK(!connections_->gathers.empty()) << "no gather was begun";
    Gather gather = std::move(connections_->gathers.front());
    connections_->gathers.pop_front();
    return Finish(&gather);
  }

  absl::Status AllToAll(std::string_view what, std::span<const std::byte> own, std::span<std::byte> parts) override {
    at::Tensor input = View({const_cast<std::byte*>(own.data()), own.size()}, at::kByte),
               output = View(parts, at::kByte);
    std::vector<int64_t> equal;  // no counts: all parts are equal
    return Run(what, [&] { return connections_->group->alltoall_base(output, input, equal, equal); });
  }

  absl::Status Barrier(std::string_view what) override {
    return Run(what, [&] { return connections_->group->barrier(); });
  }

  // Stores the error before closing connections, because a rank that finds a closed connection reads the store. Rank 0
  // holds the store and waits for these readers.
  void Close(const absl::Status& why) override {
    if (connections_->group == nullptr) return;
    const std::string note = StrCat("rank ", options_.rank, ": ", ToStd(why.message()));
    const auto write = [store = store_, key = NoteKey(name_), note] {
      try {
        SetBytes(*store, key, note);
      } catch (const std::exception&) {  // rank 0 has left with the store; all ranks will notice
        return false;
      }
      return true;
    };
    AskStore<bool>(write, false);
    connections_->Close(note).IgnoreError();
    for (const std::weak_ptr<Connections>& met : met_) {
      if (const auto connections = met.lock()) connections->Close(note).IgnoreError();
    }
    if (name_ == kWorld && options_.rank == 0) CallRoll(*store_, 0, Others());
  }

  bool closed() const override { return connections_->closed; }
  bool reports() const override { return *reports_; }

  absl::StatusOr<std::unique_ptr<Collectives>> NewGroup(std::string_view name,
                                                        const std::vector<int>& members) override {
    std::vector<int> own;
    for (const int member : members) own.push_back(members_.at(member));
    CHECK(std::ranges::find(own, options_.rank) != own.end()) << "rank " << options_.rank << " is no member";
    if (connections_->group == nullptr) return connections_->failure;
    try {
      auto met =
          std::make_unique<GlooCollectives>(options_, store_, StrCat(name_, "/", name), std::move(own), reports_);
      met_.push_back(met->connections_);
      ForgetFailure();
      return met;
    } catch (const std::exception& error) {
      return Fail(StrCat("meeting of group ", name), error.what());
    }
  }

  std::unique_ptr<Transfer> StartSend(std::string_view what, int to, std::span<const std::byte> bytes) override {
    const std::span<std::byte> memory(const_cast<std::byte*>(bytes.data()), bytes.size());
    return Start(what, memory, [&](std::vector<at::Tensor>& tensors) {
      return connections_->group->send(tensors, to, kTransferTag);
    });
  }

  std::unique_ptr<Transfer> StartReceive(std::string_view what, int from, std::span<std::byte> bytes) override {
    return Start(what, bytes, [&](std::vector<at::Tensor>& tensors) {
      return connections_->group->recv(tensors, from, kTransferTag);
    });
  }

  absl::Status Finish(std::string_view what, c10::intrusive_ptr<c10d::Work>* work) {
    return Run(what, [&] { return std::move(*work); });
  }

 private:
  // Starts a transfer. An error is stored, and Wait returns it.
  template <typename Function>
  std::unique_ptr<Transfer> Start(std::string_view what, std::span<std::byte> bytes, Function start) {
    auto transfer = std::make_unique<GlooTransfer>(this, what, std::vector<at::Tensor>{View(bytes, at::kByte)});
    if (connections_->group == nullptr) return transfer;
    const c10::InferenceMode writable(false);
    if (const auto error = Try([&] { transfer->Begin(start(transfer->tensors())); })) Fail(what, *error).IgnoreError();
    return transfer;
  }

  // Starts messages directly between the buffers of the ranks, because Gloo's all-gather allocates memory for all parts
  // and copies them. An error is stored, and Finish returns it.
  void StartGather(std::span<const std::byte> own, std::span<std::byte> all, Gather* gather) {
    if (connections_->group == nullptr || own.empty()) return;
    std::memmove(all.data() + rank_ * own.size(), own.data(), own.size());
    const c10::InferenceMode writable(false);
    std::vector<at::Tensor> sent = {View({const_cast<std::byte*>(own.data()), own.size()}, at::kByte)};
    const auto error = Try([&] {
      for (int i = 1; i < size(); ++i) {
        const int to = (rank_ + i) % size(), from = (rank_ + size() - i) % size();
        std::vector<at::Tensor> received = {View(all.subspan(from * own.size(), own.size()), at::kByte)};
        gather->works.push_back(connections_->group->recv(received, from, kGatherTag));
        gather->works.push_back(connections_->group->send(sent, to, kGatherTag));
      }
    });
    if (!error) return;
    gather->works.clear();
    Fail(gather->what, *error).IgnoreError();
  }

  // Waits for the messages of a gather. Destroys them before Fail looks for a cause, because they keep connections
  // open.
  absl::Status Finish(Gather* gather) {
    if (connections_->group == nullptr) {
      gather->works.clear();
      return connections_->failure;
    }
    const c10::InferenceMode writable(false);
    const auto error = Try([&] {
      for (const auto& work : gather->works) work->wait();
    });
    gather->works.clear();
    return error ? Fail(gather->what, *error) : absl::OkStatus();
  }

  // Returns the error that Gloo throws, if any.
  template <typename Function>
  static std::optional<std::string> Try(Function function) {
    try {
      function();
      return std::nullopt;
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  static at::Tensor View(std::span<std::byte> bytes, at::ScalarType type) {
    const c10::InferenceMode writable(false);
    const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
    return at::from_blob(bytes.data(), {count}, at::TensorOptions(type));
  }

  template <typename Start>
  absl::Status Run(std::string_view what, Start start) {
    if (connections_->group == nullptr) return connections_->failure;
    // Leaves inference mode, in which torch programs run, because Gloo's threads cannot write to inference tensors.
    const c10::InferenceMode writable(false);
    const auto error = Try([&] { start()->wait(); });
    return error ? Fail(what, *error) : absl::OkStatus();
  }

  // Ends the group with the cause of a failure, which later operations return, too. Closes the connections first, so
  // that ranks that wait for this one notice at once.
  absl::Status Fail(std::string_view what, std::string_view error) {
    connections_->Drop();
    const Cause cause = AskForCause();
    if (!cause.note.empty()) return connections_->Close(cause.note);
    const std::vector<int>& lost = cause.lost;
    const std::string who = DescribeLost(lost);
    connections_->failure = absl::UnavailableError(StrCat(what, ": ", who, who.empty() ? "" : ": ", FirstLine(error)));
    bool lowest = options_.rank > 0;
    for (int r = 0; r < options_.rank; ++r) lowest &= std::ranges::find(lost, r) != lost.end();
    if (lowest) *reports_ = true;
    return connections_->failure;
  }

  // Withdraws the report of an earlier failure once the ranks have connected again, so that it does not hide the next
  // one.
  void ForgetFailure() {
    store_->deleteKey(ReportKey(options_.rank));
    *reports_ = false;
  }

  std::vector<int> Others() const {
    std::vector<int> others = members_;
    std::erase(others, options_.rank);
    return others;
  }

  Cause AskForCause() const {
    const auto ask = [store = store_, own = options_.rank, group = name_, others = Others()] {
      return FindCause(*store, own, group, others);
    };
    return AskStore<Cause>(ask, {.note = "", .lost = {0}});
  }

  const CollectivesOptions options_;
  const std::string name_;          // prefix of the connections in the store
  const std::vector<int> members_;  // ranks of the run, by rank of this group
  int rank_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<std::atomic<bool>> reports_;  // shared by all groups of this rank and their threads
  const std::shared_ptr<Connections> connections_ = std::make_shared<Connections>();
  std::vector<std::weak_ptr<Connections>> met_;  // of groups made by NewGroup
};

absl::Status GlooTransfer::Wait() { return ranks_.Finish(what_, &work_); }

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
  onnxtrain::IgnoreClosedConnections();
  try {
    return new onnxtrain::GlooCollectives(options);
  } catch (const c10::Error& error) {
    *status = onnxtrain::DescribeFailure(options, error.what_without_backtrace());
  } catch (const std::exception& error) {
    *status = onnxtrain::DescribeFailure(options, error.what());
  }
  return nullptr;
}
