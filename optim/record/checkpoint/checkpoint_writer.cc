#include "optim/record/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "optim/record/checkpoint/run_state.h"
#include "optim/record/checkpoint/write_together.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {
namespace {

// The step that the link `best` points to; -1: none.
int64_t LinkedBest(const CheckpointFolder& folder) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(folder.handle() + "/best", error).filename().string();
  for (const int64_t step : ListCheckpoints(folder.handle())) {
    if (!error && CheckpointName(step) == target) return step;
  }
  return -1;
}

// Was no evaluation before that of this checkpoint better?
bool WasBest(const CheckpointFolder& folder, int64_t step) {
  const auto text = ReadTextFile(StrCat(folder.handle(), "/", CheckpointName(step), "/state.json"), int64_t{1} << 24);
  if (!text.ok()) return false;
  const auto state = ParseRunState(*text);
  return state.ok() && state->position.best.step == step;
}

// The checkpoints of best evaluations that earlier processes have written, the best one last.
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
  } catch (const std::system_error&) {  // the system gives no thread: the first copy takes longer
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
  if (options_.group == nullptr) RETURN_IF_ERROR(taken);  // else the others have to know
  last_step_ = step;
  const auto write = [this, taken, content = std::move(content), best] {
    status_ = WriteAndRotate(taken, content, best);
  };
  if (in_place) return write(), before;  // before the state changes
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error&) {  // the system gives no thread
    write();
  }
  return before;
}

// What the parts of all ranks make up.
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

// What becomes of older checkpoints is the business of rank 0.
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
  // The link may have pointed to a checkpoint that this run has not made.
  return best_.empty() || LinkedBest(folder_) == best_.back() ? absl::OkStatus() : folder_.Link("best", best_.back());
}

}  // namespace onnxtrain
