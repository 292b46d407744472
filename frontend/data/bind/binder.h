// The steps of BindData: columns for inputs (bind_columns.cc), labels (bind_labels.cc), and the resulting feeds
// (binding.cc).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/strings.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Format shapes, inputs and columns for messages: "f32[batch,3]", "'x' f32[batch,3]", "'age' f32[]".
std::string DimsText(const std::vector<int64_t>& dims, const std::vector<std::string>& names);
std::string InputText(const ModelInput& input);
std::string ColumnText(const Column& c);

// Joins the texts of the first 12 items with commas and appends the total number if there are more; "none" if empty.
template <typename T, typename Text>
std::string JoinFirst(const std::vector<T>& items, Text text) {
  std::string out;
  constexpr size_t kMaxItems = 12;
  for (size_t i = 0; i < items.size() && i < kMaxItems; ++i) StrAppend(&out, i == 0 ? "" : ", ", text(items[i]));
  if (items.size() > kMaxItems) StrAppend(&out, ", … (", items.size(), " in all)");
  return out.empty() ? "none" : out;
}

// Returns true if samples of the input are vectors of any length, as pictures are for a model of dense layers.
bool AcceptsVectors(const ModelInput& input, const Shape& fixed);

// Returns the shape of the sample that several columns of equal shapes are concatenated to.
Shape JoinedShape(const std::vector<Column>& all, const std::vector<int>& columns);

// Binds the columns of a data set. Each step handles the inputs and columns that earlier steps left unbound.
class Binder {
 public:
  Binder(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset, const BindSpec& spec)
      : inputs_(inputs), spec_(spec), columns_(dataset->columns()) {
    out_.dataset = std::move(dataset);
  }

  absl::StatusOr<BoundData> Run();

 private:
  absl::StatusOr<int> Resolve(const std::string& name, std::string_view flag) const;
  absl::Status BindExplicit();
  absl::Status FindLabel();
  void BindByName();
  void BindByStem();
  absl::Status BindTokens();
  void BindPairMasks();
  absl::Status BindRest();
  absl::Status BindOnlyInput(const ModelInput& input);
  std::pair<std::vector<int>, std::string> WithoutRowNames(const std::vector<int>& columns) const;
  std::string TableHint(const ModelInput& input) const;
  absl::Status CheckDefaultLabel(int c) const;
  void WarnOfDefaultLabel();
  absl::Status BindDefaults();
  bool FeedsImage(const std::vector<int>& columns) const;
  bool HoldsPixels(const std::string& input, int c) const;
  absl::Status PlaceChannels();
  absl::Status AddFeeds();
  absl::StatusOr<FeedSpec> MakeFeed(const ModelInput& input, const std::vector<int>& columns);
  absl::Status AddLabel(std::string_view what, BoundLabel* label);
  void NoteTextOrder();
  void WarnOfSpellings();
  absl::Status DescribeLabels();
  absl::Status NumberClasses();
  absl::Status MapMasksToClasses();
  absl::StatusOr<MaskEncoding> GetMaskEncoding(int c) const;
  std::set<int> LabelColumns() const;
  absl::StatusOr<std::vector<int>> ResolveLabel(const std::vector<std::string>& names, std::string_view flag) const;
  absl::StatusOr<Shape> FixedDims(const ModelInput& input) const;
  Shape DataShape(const std::vector<int>& columns) const;
  std::vector<const ModelInput*> Unbound() const;
  std::vector<int> FreeColumns() const;
  bool IsLeftOut(int c) const { return !spec_.leave_out.empty() && columns_[c].name == spec_.leave_out; }
  // Returns true for text and tokens, which can only feed the inputs of a text model.
  bool IsText(int c) const { return columns_[c].text || (columns_[c].variable && columns_[c].sample_rate == 0); }
  int LastColumn() const;
  bool IsTable() const;
  std::string Choices() const;

  const std::vector<ModelInput>& inputs_;
  const BindSpec& spec_;
  std::vector<Column> columns_;  // columns of the data set, without constants
  std::map<std::string, std::vector<int>> bound_;
  std::vector<ConstantColumn> constants_;
  bool label_is_last_ = false;  // the label was chosen only because it is the last column
  BoundData out_;
};

}  // namespace onnxtrain
