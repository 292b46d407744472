#include "optim/record/checkpoint/write_together.h"

#include <cstdio>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"

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

// Has a rank other than 0 found the text of rank 0 in its folder, and written beside it?
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
  return leads ? completed : agreed;  // it is complete, whether the others have heard of it or not
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

}  // namespace onnxtrain
