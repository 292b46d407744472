#include "frontend/data/text/pair_rows.h"

#include <algorithm>
#include <cstring>

#include "frontend/base/log.h"
#include "frontend/base/strings.h"
#include "frontend/data/text/block_columns.h"

namespace onnxtrain {

PairRows::PairRows(std::shared_ptr<const TokenRows> chosen, std::shared_ptr<const TokenRows> rejected,
                   const BlockOptions& options, bool fixed)
    : chosen_(std::move(chosen)), rejected_(std::move(rejected)) {
  CHECK_EQ(chosen_->size(), rejected_->size());
  columns_ = MakeBlockColumns(options, options.length, !fixed);
  const size_t count = columns_.size();
  for (size_t c = 0; c < count; ++c) {
    Column column = columns_[c];
    column.name = StrCat("rejected", column.name.substr(column.name.find('.')));
    columns_.push_back(std::move(column));
  }
  columns_.push_back({.name = kReferenceLabel, .sample = {DType::kFloat32, {2}}, .measured = false});
}

absl::Status PairRows::Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const {
  const int count = static_cast<int>(columns_.size() / 2);
  if (c < count) return chosen_->Read(i, c, pass, out);
  if (c < 2 * count) return rejected_->Read(i, c - count, pass, out);
  std::ranges::fill(out, std::byte{0});
  return absl::OkStatus();
}

namespace {

class ReferenceView : public DatasetView {
 public:
  ReferenceView(std::shared_ptr<const Dataset> data, std::vector<float> values)
      : DatasetView(std::move(data)), values_(std::move(values)) {
    column_ = static_cast<int>(std::ranges::find(columns(), kReferenceLabel, &Column::name) - columns().begin());
  }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c != column_) return DatasetView::Read(i, c, pass, out);
    std::memcpy(out.data(), values_.data() + 2 * i, out.size());
    return absl::OkStatus();
  }

 private:
  std::vector<float> values_;
  int column_;
};

}  // namespace

std::shared_ptr<const Dataset> WithReference(std::shared_ptr<const Dataset> data, std::vector<float> values) {
  CHECK_EQ(std::ssize(values), 2 * data->size());
  return std::make_shared<const ReferenceView>(std::move(data), std::move(values));
}

}  // namespace onnxtrain
