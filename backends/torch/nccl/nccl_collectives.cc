#include "backends/torch/nccl/nccl_collectives.h"

#include <dlfcn.h>

#include <chrono>
#include <thread>
#include <utility>

#include "backends/torch/find_symbol.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

bool FindAll(void* library, Nccl* nccl) {
  return FindSymbol(library, "ncclGetErrorString", &nccl->describe) &&
         FindSymbol(library, "ncclGetUniqueId", &nccl->get_unique_id) &&
         FindSymbol(library, "ncclCommInitRank", &nccl->init_rank) &&
         FindSymbol(library, "ncclCommAbort", &nccl->abort) &&
         FindSymbol(library, "ncclCommGetAsyncError", &nccl->get_async_error) &&
         FindSymbol(library, "ncclAllReduce", &nccl->all_reduce) &&
         FindSymbol(library, "ncclBroadcast", &nccl->broadcast) &&
         FindSymbol(library, "ncclAllGather", &nccl->all_gather) && FindSymbol(library, "ncclSend", &nccl->send) &&
         FindSymbol(library, "ncclRecv", &nccl->receive) && FindSymbol(library, "ncclGroupStart", &nccl->group_start) &&
         FindSymbol(library, "ncclGroupEnd", &nccl->group_end);
}

}  // namespace

absl::StatusOr<const Nccl*> LoadNccl(std::span<const std::string> folders) {
  constexpr char kName[] = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  for (auto folder = folders.begin(); library == nullptr && folder != folders.end(); ++folder)
    library = dlopen(StrCat(*folder, "/", kName).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(StrCat(kName, " was not found"));
  auto* const nccl = new Nccl;
  if (!FindAll(library, nccl)) return absl::NotFoundError(StrCat(kName, " is too old: version 2.7 or later is needed"));
  return nccl;
}

namespace {

using Clock = std::chrono::steady_clock;

Nccl::DataType ToNcclType(DType dtype) {
  return dtype == DType::kFloat64 ? Nccl::kFloat64 : dtype == DType::kInt64 ? Nccl::kInt64 : Nccl::kFloat32;
}

Nccl::Operation ToNcclOperation(Reduction op) {
  return op == Reduction::kSum ? Nccl::kSum : op == Reduction::kMin ? Nccl::kMin : Nccl::kMax;
}

// The result of a transfer between two ranks, which this group does not support.
class NoTransfer : public Transfer {
 public:
  explicit NoTransfer(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  const absl::Status status_;
};

class NcclCollectives : public Collectives {
 public:
  NcclCollectives(const Nccl& nccl, Nccl::Communicator communicator, std::unique_ptr<DeviceQueue> queue,
                  Collectives& host)
      : nccl_(nccl), communicator_(communicator), queue_(std::move(queue)), host_(host) {}

  ~NcclCollectives() override { Abort(); }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  bool on_device() const override { return true; }
  double timeout() const override { return host_.timeout(); }

  absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) override {
    const size_t count = values.size() / DTypeSize(dtype);
    return Run(what, [&](void* stream) {
      return nccl_.all_reduce(values.data(), values.data(), count, ToNcclType(dtype), ToNcclOperation(op),
                              communicator_, stream);
    });
  }

  absl::Status Broadcast(std::string_view what, int root, std::span<std::byte> bytes) override {
    return Run(what, [&](void* stream) {
      return nccl_.broadcast(bytes.data(), bytes.data(), bytes.size(), Nccl::kUint8, root, communicator_, stream);
    });
  }

  absl::Status AllGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all) override {
    return Run(what, [&](void* stream) { return Gather(own, all, stream); });
  }

  // Queues the gathers; the order of the device queue makes later kernels wait for them.
  void BeginGather(std::string_view what, std::span<const std::byte> own, std::span<std::byte> all,
                   size_t rows) override {
    for (size_t row = 0; row < rows; ++row) {
      const size_t part = own.size() / rows, whole = all.size() / rows;
      Start(what, [&](void* stream) {
        return Gather(own.subspan(row * part, part), all.subspan(row * whole, whole), stream);
      });
    }
    begun_ = what;
  }

  absl::Status AwaitGather() override { return Wait(begun_); }

  absl::Status AllToAll(std::string_view what, std::span<const std::byte> own, std::span<std::byte> parts) override {
    return Run(what, [&](void* stream) { return Exchange(own, parts, stream); });
  }

  absl::Status Barrier(std::string_view what) override { return failure_.ok() ? host_.Barrier(what) : failure_; }

  void Close(const absl::Status& why) override {
    Abort();
    if (failure_.ok()) failure_ = absl::UnavailableError(why.message());
    host_.Close(why);
  }

  bool closed() const override { return host_.closed(); }
  bool reports() const override { return host_.reports(); }

  absl::StatusOr<std::unique_ptr<Collectives>> NewGroup(std::string_view name, const std::vector<int>&) override {
    return absl::UnimplementedError(StrCat("group ", name, ": groups meet on the hosts"));
  }
  std::unique_ptr<Transfer> StartSend(std::string_view what, int, std::span<const std::byte>) override {
    return RefuseTransfer(what);
  }
  std::unique_ptr<Transfer> StartReceive(std::string_view what, int, std::span<std::byte>) override {
    return RefuseTransfer(what);
  }

 private:
  static std::unique_ptr<Transfer> RefuseTransfer(std::string_view what) {
    return std::make_unique<NoTransfer>(absl::UnimplementedError(StrCat(what, ": transfers are those of hosts")));
  }

  Nccl::Result Gather(std::span<const std::byte> own, std::span<std::byte> all, void* stream) {
    return nccl_.all_gather(own.data(), all.data(), own.size(), Nccl::kUint8, communicator_, stream);
  }

  Nccl::Result Exchange(std::span<const std::byte> own, std::span<std::byte> parts, void* stream) {
    const size_t part = own.size() / size();
    Nccl::Result result = nccl_.group_start();
    for (int r = 0; r < size() && result == Nccl::kSuccess; ++r) {
      result = nccl_.send(own.data() + r * part, part, Nccl::kUint8, r, communicator_, stream);
      if (result == Nccl::kSuccess)
        result = nccl_.receive(parts.data() + r * part, part, Nccl::kUint8, r, communicator_, stream);
    }
    const Nccl::Result ended = nccl_.group_end();
    return result == Nccl::kSuccess ? ended : result;
  }

  // Submits an operation. An error is stored, and Wait returns it.
  template <typename Queue>
  void Start(std::string_view what, Queue queue) {
    if (!failure_.ok()) return;
    Nccl::Result result = Nccl::kSuccess;
    queue_->Submit([&](void* stream) { result = queue(stream); });
    if (result != Nccl::kSuccess) Fail(what, nccl_.describe(result)).IgnoreError();
  }

  template <typename Queue>
  absl::Status Run(std::string_view what, Queue queue) {
    Start(what, queue);
    return Wait(what);
  }

  // Waits until all submitted operations have finished.
  absl::Status Wait(std::string_view what) {
    if (!failure_.ok()) return failure_;
    if (const absl::Status marked = queue_->Mark(); !marked.ok()) return Fail(what, ToStd(marked.message()));
    const auto start = Clock::now();
    for (;;) {
      const absl::StatusOr<bool> reached = queue_->ReachedMark();
      if (!reached.ok()) return Fail(what, ToStd(reached.status().message()));
      if (*reached) return absl::OkStatus();
      Nccl::Result error = Nccl::kSuccess;
      const Nccl::Result asked = nccl_.get_async_error(communicator_, &error);
      if (asked != Nccl::kSuccess) error = asked;
      if (error != Nccl::kSuccess && error != Nccl::kInProgress) return Fail(what, nccl_.describe(error));
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (waited.count() > timeout()) return Fail(what, StrCat("no answer within ", timeout(), " s"));
      if (waited > kSpin) std::this_thread::sleep_for(kPause);
    }
  }

  // Aborts the connections, so that the other ranks fail too, and returns an error in which the host group names lost
  // ranks.
  absl::Status Fail(std::string_view what, std::string_view error) {
    Abort();
    failure_ = host_.Barrier(what);
    if (failure_.ok()) failure_ = absl::UnavailableError(StrCat(what, ": NCCL: ", error));
    return failure_;
  }

  void Abort() {
    if (communicator_ != nullptr) nccl_.abort(std::exchange(communicator_, nullptr));
  }

  static constexpr auto kSpin = std::chrono::milliseconds(1);  // most operations take less
  static constexpr auto kPause = std::chrono::microseconds(100);

  const Nccl& nccl_;
  Nccl::Communicator communicator_;  // null after a failure
  const std::unique_ptr<DeviceQueue> queue_;
  Collectives& host_;
  absl::Status failure_;
  std::string begun_;  // `what` of the last BeginGather
};

constexpr char kMeeting[] = "meeting over NCCL";

// Returns true if no rank has an error; otherwise logs a warning that names the first one.
absl::StatusOr<bool> AllCan(Collectives& host, const absl::Status& own) {
  const absl::Status agreed = AgreeOnStatus(host, kMeeting, own);
  if (agreed.ok()) return true;
  if (host.closed() || absl::IsUnavailable(agreed)) return agreed;
  LOG(WARNING) << agreed.message() << "; the ranks exchange through the memory of the hosts";
  return false;
}

absl::Status ToStatus(const Nccl& nccl, Nccl::Result result) {
  if (result == Nccl::kSuccess) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("NCCL: ", nccl.describe(result)));
}

absl::StatusOr<Nccl::UniqueId> ShareUniqueId(const Nccl& nccl, Collectives& host) {
  struct Shared {
    Nccl::Result result = Nccl::kSuccess;
    Nccl::UniqueId id = {};
  } shared;
  if (host.rank() == 0) shared.result = nccl.get_unique_id(&shared.id);
  RETURN_IF_ERROR(host.Broadcast(kMeeting, 0, std::as_writable_bytes(std::span(&shared, 1))));
  RETURN_IF_ERROR(ToStatus(nccl, shared.result));
  return shared.id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> MeetOverNccl(const absl::StatusOr<const Nccl*>& nccl,
                                                          std::unique_ptr<DeviceQueue> queue, Collectives& host) {
  ASSIGN_OR_RETURN(const bool loaded, AllCan(host, nccl.status()));
  if (!loaded) return nullptr;
  const absl::StatusOr<Nccl::UniqueId> id = ShareUniqueId(**nccl, host);
  Nccl::Communicator communicator = nullptr;
  absl::Status met = id.status();
  if (met.ok()) {
    queue->Submit(
        [&](void*) { met = ToStatus(**nccl, (*nccl)->init_rank(&communicator, host.size(), *id, host.rank())); });
  }
  auto group = std::make_unique<NcclCollectives>(**nccl, met.ok() ? communicator : nullptr, std::move(queue), host);
  ASSIGN_OR_RETURN(const bool all_met, AllCan(host, met));
  if (!all_met) return nullptr;
  return group;
}

}  // namespace onnxtrain::aten
