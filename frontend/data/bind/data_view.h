// Views of data sets: subsets, constant columns.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Forwards everything to another data set; views override what they change.
class DatasetView : public Dataset {
 public:
  explicit DatasetView(std::shared_ptr<const Dataset> source) : source_(std::move(source)) {}
  int64_t size() const override { return source_->size(); }
  const std::vector<Column>& columns() const override { return source_->columns(); }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    return source_->Read(i, c, pass, out);
  }
  absl::StatusOr<std::string> ReadText(int64_t i, int c) const override { return source_->ReadText(i, c); }
  int64_t Length(int64_t i) const override { return source_->Length(i); }
  PictureExtents Extents(int64_t i) const override { return source_->Extents(i); }
  std::string Describe(int64_t i) const override { return source_->Describe(i); }
  bool streams() const override { return source_->streams(); }
  int64_t memory_bytes() const override { return source_->memory_bytes(); }

 protected:
  std::shared_ptr<const Dataset> source_;
};

// The samples `rows` of `source`, in that order.
std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows);

struct ConstantColumn {
  std::string name;
  HostTensor sample;  // the same for every sample
};
// `source` with constant columns appended.
std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants);

// `source` with these notes in front of its own.
std::shared_ptr<const Dataset> WithNotes(std::shared_ptr<const Dataset> source, std::vector<std::string> notes);

// `source` with these columns as numbers that are no pixels (Column::image).
std::shared_ptr<const Dataset> WithoutPixels(std::shared_ptr<const Dataset> source, const std::vector<int>& columns);

// The columns of `first`, then those of `second` but `leave_out` (-1: none): samples of the same numbers, which are
// named and described as `first` does.
std::shared_ptr<const Dataset> JoinColumns(std::shared_ptr<const Dataset> first, std::shared_ptr<const Dataset> second,
                                           int leave_out);

}  // namespace onnxtrain
