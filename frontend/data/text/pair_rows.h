// Pairs of rows of tokens: a chosen and a rejected answer to one prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/data/text/token_rows.h"

namespace onnxtrain {

// Keys of BoundData::own_labels: the labels of rejected rows, and the reference's log-probabilities of both rows.
inline constexpr char kRejectedLabel[] = "rejected.labels", kReferenceLabel[] = "reference";

// A data set with the columns of TokenBlocks for the chosen row, the same columns for the rejected one, "rejected.…",
// and a column "reference" [2] of zeros. Both rows of a sample have the length of the longer one.
class PairRows : public Dataset {
 public:
  // `chosen` and `rejected` have the same number of rows. `options.length` is at least the longest row.
  PairRows(std::shared_ptr<const TokenRows> chosen, std::shared_ptr<const TokenRows> rejected,
           const BlockOptions& options, bool fixed);

  int64_t size() const override { return chosen_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override;
  int64_t Length(int64_t i) const override { return std::max(chosen_->Length(i), rejected_->Length(i)); }
  std::string Describe(int64_t i) const override { return chosen_->Describe(i); }
  int64_t memory_bytes() const override { return chosen_->memory_bytes() + rejected_->memory_bytes(); }

 private:
  std::shared_ptr<const TokenRows> chosen_, rejected_;
  std::vector<Column> columns_;
};

// Returns a view whose column "reference" has these values, two per sample.
std::shared_ptr<const Dataset> WithReference(std::shared_ptr<const Dataset> data, std::vector<float> values);

}  // namespace onnxtrain
