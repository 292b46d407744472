#include "optim/record/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {

absl::StatusOr<std::unique_ptr<SavingGroup>> SavingGroup::Create(Collectives& training) {
  ASSIGN_OR_RETURN(auto ranks, NewGroupOfAll(training, "checkpoints"));
  return std::unique_ptr<SavingGroup>(new SavingGroup(training, std::move(ranks)));
}

absl::Status SavingGroup::Renew() {
  constexpr char kBegin[] = "begin of a save";
  double failed = ranks_->Barrier(kBegin).ok() ? 0 : 1;
  RETURN_IF_ERROR(AllReduce(training_, kBegin, {&failed, 1}, Reduction::kMax));
  if (failed == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(ranks_, NewGroupOfAll(training_, StrCat("checkpoints", ++renewals_)));
  return absl::OkStatus();
}

namespace {

constexpr char kBegin[] = "begin of a checkpoint", kParts[] = "exchange of the parts of a checkpoint",
               kEnd[] = "end of a checkpoint", kSharing[] = "search for a common folder";

absl::StatusOr<std::vector<std::string>> WriteParts(Collectives& ranks, const absl::Status& ready,
                                                    const CheckpointContent& content, CheckpointFolder* folder) {
  const bool begins = ranks.rank() == 0 && ready.ok();
  RETURN_IF_ERROR(AgreeOnStatus(ranks, kBegin, begins ? folder->Begin(content) : ready));
  const auto written = folder->WriteParts(content, ranks.rank(), ranks.size());
  RETURN_IF_ERROR(AgreeOnStatus(ranks, kParts, written.status()));
  return AllGatherText(ranks, kParts, *written);
}

std::string MakeToken() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// Returns whether a rank other than 0 found the text of rank 0 in its folder and wrote its own file there.
bool FindsToken(const std::string& file, const std::string& token, int rank) {
  const auto found = ReadTextFile(file, 64);
  const std::string own = StrCat(file, "-", rank);
  const bool shared = found.ok() && *found == token && WriteTextFile(own, token).ok();
  std::remove(own.c_str());
  return shared;
}

}  // namespace

absl::Status WriteTogether(Collectives& ranks, const absl::Status& ready, const CheckpointContent& content,
                           CheckpointFolder* folder) {
  const bool leads = ranks.rank() == 0;
  const auto written = WriteParts(ranks, ready, content, folder);
  if (!written.ok() && leads) folder->Discard(content.step);
  RETURN_IF_ERROR(written.status());
  const absl::Status completed = leads ? folder->Complete(content, *written) : absl::OkStatus();
  const absl::Status agreed = AgreeOnStatus(ranks, kEnd, completed);
  return leads ? completed : agreed;  // for rank 0 it is complete even if the others could not be told
}

absl::StatusOr<bool> IsSharedFolder(Collectives& ranks, const std::string& path) {
  const bool leads = ranks.rank() == 0;
  ASSIGN_OR_RETURN(const std::string token, BroadcastText(ranks, kSharing, leads ? MakeToken() : ""));
  const std::string file = StrCat(path, "/.tmp-shared-", token);
  double shared = leads ? WriteTextFile(file, token).ok() : 1;
  RETURN_IF_ERROR(ranks.Barrier(kSharing));
  if (!leads) shared = FindsToken(file, token, ranks.rank());
  const absl::Status met = AllReduce(ranks, kSharing, {&shared, 1}, Reduction::kMin);
  if (leads) std::remove(file.c_str());
  RETURN_IF_ERROR(met);
  return shared == 1;
}

namespace {

constexpr size_t kLeastPart = size_t{1} << 20;  // bytes; starting a thread takes as long as copying some of them

absl::StatusOr<std::vector<StateTensor>> ListTensors(Session& session, bool parts) {
  return parts ? session.StateParts() : session.State();
}

void AppendTensor(const StateTensor& tensor, HostTensor value, CheckpointContent* content) {
  (tensor.of_model ? content->model : content->optimizer).emplace_back(tensor.name, std::move(value));
}

}  // namespace

absl::Status AppendViews(Session& session, bool parts, CheckpointContent* content) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, ListTensors(session, parts));
  for (const StateTensor& tensor : tensors) {
    const Region& region = tensor.region;
    const bool empty = region.type.elements() == 0;
    AppendTensor(tensor, empty ? HostTensor(region.type) : HostTensor(region.type, nullptr, HostMemory(region)),
                 content);
  }
  return absl::OkStatus();
}

absl::Status StateCopy::Reserve(Session& session) {
  ASSIGN_OR_RETURN(tensors_, ListTensors(session, parts_only_));
  for (const StateTensor& tensor : tensors_) copies_.emplace_back(tensor.region.type);
  SplitAmongThreads();
  return absl::OkStatus();
}

void StateCopy::Touch() {
  constexpr size_t kPage = 4096;
  for (HostTensor& copy : copies_) {
    const std::span<std::byte> bytes = copy.mutable_bytes();
    for (size_t at = 0; at < bytes.size(); at += kPage) static_cast<volatile std::byte&>(bytes[at]) = std::byte{0};
  }
}

void StateCopy::SplitAmongThreads() {
  size_t total = 0, filled = 0;
  for (const HostTensor& copy : copies_) total += copy.bytes().size();
  const size_t part = std::max(kLeastPart, total / static_cast<size_t>(std::max(1, threads_)) + 1);
  parts_.assign(1, {});
  for (size_t i = 0; i < copies_.size(); ++i) {
    for (size_t begin = 0, end = 0; begin < copies_[i].bytes().size(); begin = end) {
      if (filled == part) parts_.emplace_back(), filled = 0;
      end = std::min(copies_[i].bytes().size(), begin + part - filled);
      parts_.back().push_back({i, begin, end});
      filled += end - begin;
    }
  }
}

absl::Status StateCopy::Read(const Range& range) {
  const BufferView& view = tensors_[range.tensor].region.view;
  const std::span<std::byte> to = copies_[range.tensor].mutable_bytes().subspan(range.begin, range.end - range.begin);
  return view.buffer->Read(view.offset + range.begin, to);
}

absl::Status StateCopy::Update(Session& session) {
  if (copies_.empty()) RETURN_IF_ERROR(Reserve(session));
  ASSIGN_OR_RETURN(tensors_, ListTensors(session, parts_only_));  // waits for queued work
  std::vector<absl::Status> read(parts_.size());
  RunParts(static_cast<int64_t>(parts_.size()), [&](int64_t part) {
    for (const Range& range : parts_[part]) read[part].Update(Read(range));
  });
  for (const absl::Status& status : read) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

void StateCopy::AppendTo(CheckpointContent* content) const {
  for (size_t i = 0; i < tensors_.size(); ++i) AppendTensor(tensors_[i], copies_[i], content);
}

namespace {

// Returns the step that the link `best` points to, or -1.
int64_t LinkedBest(const CheckpointFolder& folder) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(folder.handle() + "/best", error).filename().string();
  for (const int64_t step : ListCheckpoints(folder.handle())) {
    if (!error && CheckpointName(step) == target) return step;
  }
  return -1;
}

// Returns true if the checkpoint had the best evaluation when it was written.
bool WasBest(const CheckpointFolder& folder, int64_t step) {
  const auto text = ReadTextFile(StrCat(folder.handle(), "/", CheckpointName(step), "/state.json"), int64_t{1} << 24);
  if (!text.ok()) return false;
  const auto state = ParseRunState(*text);
  return state.ok() && state->position.best.step == step;
}

// Returns the steps up to `last` whose checkpoints had the best evaluation when they were written, the best one last.
std::vector<int64_t> FindBest(const CheckpointFolder& folder, int64_t last) {
  const int64_t linked = LinkedBest(folder);
  std::vector<int64_t> best;
  for (const int64_t step : ListCheckpoints(folder.handle())) {
    if (step <= last && (step == linked || WasBest(folder, step))) best.push_back(step);
  }
  return best;
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder* folder, const CheckpointOptions& options, int64_t first_step)
    : folder_(*folder),
      options_(options),
      copy_(options.copy_threads, options.group != nullptr),
      best_(FindBest(*folder, first_step)),
      newest_written_(first_step) {}

absl::Status CheckpointWriter::CheckRoom(Session& session, int64_t model_bytes) const {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session.State());
  int64_t bytes = 0;
  for (const StateTensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.region.type.bytes());
  RETURN_IF_ERROR(folder_.CheckRoom(bytes));
  if (folder_.CheckRoom(bytes + model_bytes).ok()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: a checkpoint and the model take %.1f MiB, the disk has less left", folder_.path(),
                      static_cast<double>(bytes + model_bytes) / (1 << 20)));
}

absl::Status CheckpointWriter::MakeRoom(int64_t bytes) {
  for (const int64_t step : ListCheckpoints(folder_.handle())) {
    if (folder_.CheckRoom(bytes).ok()) return absl::OkStatus();
    if (step == newest_written_ || std::ranges::find(best_, step) != best_.end()) continue;
    RETURN_IF_ERROR(folder_.Remove(step));
    ++removed_early_;
  }
  return folder_.CheckRoom(bytes);
}

absl::Status CheckpointWriter::Reserve(Session& session) {
  if (options_.method != SaveMethod::kCopy) return absl::OkStatus();
  RETURN_IF_ERROR(copy_.Reserve(session));
  try {
    thread_ = std::thread([this] { copy_.Touch(); });
  } catch (const std::system_error&) {  // no thread available: the first copy takes longer
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::TakeState(Session& session, bool in_place, CheckpointContent* content) {
  if (in_place) return AppendViews(session, options_.group != nullptr, content);
  RETURN_IF_ERROR(copy_.Update(session));
  copy_.AppendTo(content);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Save(Session& session, int64_t step, std::string state, bool best, bool last) {
  const absl::Status before = Finish();
  if (options_.group != nullptr) RETURN_IF_ERROR(options_.group->Renew());
  const bool in_place = options_.on_host && (last || options_.method == SaveMethod::kInPlace);
  CheckpointContent content{.step = step, .state = std::move(state), .compressed = options_.compressed};
  absl::Status taken = TakeState(session, in_place, &content);
  if (taken.ok()) taken = ListWhole(session, &content);
  if (options_.group == nullptr) RETURN_IF_ERROR(taken);  // with a group, WriteTogether reports it to the others
  last_step_ = step;
  const auto write = [this, taken, content = std::move(content), best] {
    status_ = WriteAndRotate(taken, content, best);
  };
  if (in_place) return write(), before;  // before the state changes
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error&) {  // no thread available
    write();
  }
  return before;
}

// Lists on rank 0 the whole tensors that the parts of all ranks form.
absl::Status CheckpointWriter::ListWhole(Session& session, CheckpointContent* content) const {
  if (options_.group == nullptr || !leads()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session.State());
  for (const StateTensor& tensor : tensors)
    content->whole.push_back({tensor.name, tensor.of_model, tensor.region.type});
  return absl::OkStatus();
}

absl::Status CheckpointWriter::MarkBest(int64_t step) {
  RETURN_IF_ERROR(Finish());
  return LinkBest(step);
}

absl::Status CheckpointWriter::Finish() {
  Join();
  return std::exchange(status_, absl::OkStatus());
}

void CheckpointWriter::Join() {
  if (thread_.joinable()) thread_.join();
}

absl::Status CheckpointWriter::Write(const absl::Status& taken, const CheckpointContent& content) {
  const absl::Status ready = taken.ok() && leads() ? MakeRoom(content.bytes()) : taken;
  if (options_.group != nullptr) return WriteTogether(options_.group->ranks(), ready, content, &folder_);
  return ready.ok() ? folder_.Write(content) : ready;
}

// Writes the checkpoint; rank 0 then updates links and removes old ones.
absl::Status CheckpointWriter::WriteAndRotate(const absl::Status& taken, const CheckpointContent& content, bool best) {
  const Span span(trace_, Trace::kCheckpoints, "write checkpoint");
  RETURN_IF_ERROR(Write(taken, content));
  if (!leads()) return absl::OkStatus();
  newest_written_ = content.step;
  if (best && options_.keep_best > 0) RETURN_IF_ERROR(LinkBest(content.step));
  return Rotate(content.step);
}

absl::Status CheckpointWriter::LinkBest(int64_t step) {
  std::erase(best_, step);
  best_.push_back(step);
  return folder_.Link("best", step);
}

absl::Status CheckpointWriter::Rotate(int64_t written) {
  const size_t kept = std::min(best_.size(), static_cast<size_t>(std::max<int64_t>(options_.keep_best, 0)));
  best_.erase(best_.begin(), best_.end() - static_cast<std::ptrdiff_t>(kept));
  const std::vector<int64_t> steps = ListCheckpoints(folder_.handle());
  const auto end = std::ranges::upper_bound(steps, written);
  const auto first_kept = end - std::min<std::ptrdiff_t>(end - steps.begin(), std::max<int64_t>(options_.keep_last, 1));
  for (auto step = steps.begin(); step != steps.end(); ++step) {
    const bool recent = step >= first_kept && step < end;
    if (!recent && std::ranges::find(best_, *step) == best_.end()) RETURN_IF_ERROR(folder_.Remove(*step));
  }
  // Restores the link if it pointed to a checkpoint of an earlier run that was just removed.
  return best_.empty() || LinkedBest(folder_) == best_.back() ? absl::OkStatus() : folder_.Link("best", best_.back());
}

}  // namespace onnxtrain
