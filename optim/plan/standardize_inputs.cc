#include <algorithm>

#include "frontend/base/status.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/open_data.h"

namespace onnxtrain {
namespace {

// Returns true if --standardize applies: float inputs from numeric columns of the file.
bool IsStandardized(const OpenedData& data, const FeedSpec& feed) {
  const std::vector<Column>& columns = data.bound.dataset->columns();
  const auto measured = [&](int c) { return columns[c].measured && !columns[c].image && c < data.own_columns; };
  return IsFloat(feed.sample.dtype) && std::ranges::any_of(feed.columns, measured);
}

absl::Status FitStandardizations(const TrainConfig& config, OpenedData* data) {
  std::shared_ptr<const Dataset> training = data->bound.dataset;
  if (data->held_out.has_value()) training = SubsetDataset(training, data->held_out->rows.train);
  int64_t fitted = 0;
  for (FeedSpec& feed : data->bound.feeds) {
    if (!IsStandardized(*data, feed)) continue;
    ASSIGN_OR_RETURN(Standardization standardization, FitStandardization(*training, feed.columns));
    feed.shift = std::move(standardization.shift);
    feed.divisor = std::move(standardization.divisor);
    fitted += static_cast<int64_t>(feed.columns.size());
  }
  RETURN_IF_ERROR(RefuseUnused(config, {.has_numbers = fitted > 0}));
  data->bound.notes.push_back(StrCat("standardized: ", fitted, fitted == 1 ? " column" : " columns"));
  return absl::OkStatus();
}

}  // namespace

absl::Status SetStandardization(const TrainConfig& config, const std::optional<Preprocess>& before,
                                const DataRequest& request, OpenedData* data) {
  if (request.fit && config.standardize) return FitStandardizations(config, data);
  if (!before.has_value()) return absl::OkStatus();
  for (FeedSpec& feed : data->bound.feeds) {
    const auto known = before->standardize.find(feed.feed);
    if (known == before->standardize.end() || !IsStandardized(*data, feed)) continue;
    feed.shift = known->second.shift;
    feed.divisor = known->second.divisor;
    data->bound.notes.push_back(StrCat("input '", feed.feed, "' is standardized as in training"));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
