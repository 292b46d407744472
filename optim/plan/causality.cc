#include "optim/plan/causality.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "frontend/base/status.h"
#include "optim/plan/data_setup.h"

namespace onnxtrain {
namespace {

// Of the change behind: what rounding may do to a model that sees nothing of it, as one that computes by FFT.
constexpr double kRounding = 1e-5;
constexpr int64_t kSamples = 1;

// Replaces the tokens from position `from` on by one of `count` ids, another than the first of them has: a permutation
// of the tokens could leave what a model pools over them.
HostTensor ReplaceTokens(const HostTensor& ids, int64_t from, int64_t count) {
  HostTensor replaced = ids.Clone();
  const int64_t length = ids.shape()[1];
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t first = ids.IntAt(i / length * length + from);
    if (i % length >= from) replaced.SetInt(i, (first + 1) % count);
  }
  return replaced;
}

struct Changes {
  double before = 0, behind = 0;  // the greatest change of a value before position `at`, and from there on
};
Changes CompareHalves(const HostTensor& a, const HostTensor& b, int64_t at) {
  Changes changes;
  const int64_t length = a.shape()[1], inner = a.size() / (a.shape()[0] * length);
  for (int64_t i = 0; i < a.size(); ++i) {
    double& change = i / inner % length < at ? changes.before : changes.behind;
    change = std::max(change, std::abs(a.At(i) - b.At(i)));  // NaN changes nothing
  }
  return changes;
}

std::optional<size_t> FindFeed(const TrainData& data, const std::string& name) {
  const auto feed = std::ranges::find(data.specs, name, &FeedSpec::feed);
  return feed == data.specs.end() ? std::nullopt : std::optional<size_t>(feed - data.specs.begin());
}

// Ids that the input may have; 0: unknown.
int64_t CountIds(const FeedSpec& feed, const HostTensor& ids) {
  if (feed.range.has_value()) return static_cast<int64_t>(feed.range->max) + 1;
  int64_t max = 0;
  for (int64_t i = 0; i < ids.size(); ++i) max = std::max(max, ids.IntAt(i));
  return max + 1;
}

// Keeps no other output; a scalar where there is none of this name.
absl::StatusOr<HostTensor> PredictOutput(Session& session, const GlobalBatch& batch, const std::string& output) {
  ASSIGN_OR_RETURN(Evaluation e, session.Predict(batch));
  const auto found = e.outputs.find(output);
  return found == e.outputs.end() ? HostTensor::Scalar(DType::kFloat32, 0) : std::move(found->second);
}

bool HasTokens(const HostTensor& output, const HostTensor& ids) {
  return output.type().rank() >= 3 && output.size() > 0 && output.shape()[0] == ids.shape()[0] &&
         output.shape()[1] == ids.shape()[1];
}

}  // namespace

absl::Status CheckCausal(Session& session, const TrainData& data, const std::string& ids) {
  const auto feed = FindFeed(data, ids);
  if (!feed.has_value()) return absl::OkStatus();
  const int64_t samples = session.fixed_batch() > 0 ? session.fixed_batch() : std::min(session.micro_batch(), kSamples);
  ASSIGN_OR_RETURN(GlobalBatch batch, ReadGlobalBatch(data, samples));
  const HostTensor tokens = batch.tensor(*feed).Clone();
  const int64_t count = CountIds(data.specs[*feed], tokens), half = tokens.shape()[1] / 2;
  if (half == 0 || count < 2) return absl::OkStatus();
  const std::string& output = session.loss().output();
  ASSIGN_OR_RETURN(const HostTensor as_read, PredictOutput(session, batch, output));
  if (!HasTokens(as_read, tokens)) return absl::OkStatus();
  batch.Set(*feed, ReplaceTokens(tokens, half, count));
  ASSIGN_OR_RETURN(const HostTensor replaced, PredictOutput(session, batch, output));
  const Changes changes = CompareHalves(as_read, replaced, half);
  if (!(changes.before > kRounding * changes.behind)) return absl::OkStatus();
  return Invalid("output '", output, "' sees the tokens behind each position, so that it would copy its labels, the ",
                 "next tokens, from input '", ids, "': it is no causal language model. A masked language model trains ",
                 "on data that holds tokens with masks and labels (`input` ", ids, "=COLUMN, `label` COLUMN)");
}

}  // namespace onnxtrain
