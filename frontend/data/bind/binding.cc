#include "frontend/data/bind/binding.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/bind/binder.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/token_blocks.h"

namespace onnxtrain {

std::string DimsText(const std::vector<int64_t>& dims, const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::string name = i < names.size() && !names[i].empty() ? names[i] : "?";
    StrAppend(&text, i == 0 ? "" : ",", dims[i] >= 0 ? StrCat(dims[i]) : name);
  }
  return text + "]";
}

std::string InputText(const ModelInput& input) {
  return StrCat("'", input.name, "' ", TypeText(input),
                input.has_shape ? DimsText(input.dims, input.dim_names) : "[…]");
}

std::string ColumnText(const Column& c) {
  return StrCat("'", c.name, "' ", c.problem.empty() ? ToString(c.sample) : "(unusable)");
}

namespace {

Shape WithoutOnes(const Shape& shape) {
  Shape out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](int64_t d) { return d != 1; });
  return out;
}

bool Compatible(const Shape& data, const Shape& fixed) {
  return std::equal(data.begin(), data.end(), fixed.begin(), fixed.end(),
                    [](int64_t d, int64_t f) { return f < 0 || d == f; });
}

// Returns the shapes of rank `rank` that differ from `data` only by axes of extent 1.
std::vector<Shape> Views(const Shape& data, size_t rank) {
  std::vector<Shape> views;
  if (data.size() == rank) views.push_back(data);
  if (data.size() + 1 == rank) {
    for (size_t i = 0; i < rank; ++i) {
      Shape view = data;
      view.insert(view.begin() + static_cast<std::ptrdiff_t>(i), 1);
      views.push_back(std::move(view));
    }
  }
  if (const Shape squeezed = WithoutOnes(data); squeezed.size() == rank) views.push_back(squeezed);
  return views;
}

}  // namespace

bool AcceptsVectors(const ModelInput& input, const Shape& fixed) { return IsFloat(input.dtype) && fixed == Shape{-1}; }

Shape JoinedShape(const std::vector<Column>& all, const std::vector<int>& columns) {
  Shape shape = all[columns[0]].sample.shape;
  if (columns.size() > 1) shape.push_back(static_cast<int64_t>(columns.size()));
  return shape;
}

Shape Binder::DataShape(const std::vector<int>& columns) const { return JoinedShape(columns_, columns); }

// Returns the extents of an input without the batch axis, with the values of named dimensions filled in.
absl::StatusOr<Shape> Binder::FixedDims(const ModelInput& input) const {
  Shape fixed;
  if (input.has_shape && input.dims.empty()) {
    return Invalid("input ", InputText(input), " has no batch axis: it cannot be fed with samples");
  }
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? spec_.dims.find(input.dim_names[i]) : spec_.dims.end();
    fixed.push_back(input.dims[i] < 0 && it != spec_.dims.end() ? it->second : input.dims[i]);
  }
  return fixed;
}

namespace {

// Sets the height axis of a feed of pictures of several sizes. Fails if the input fixes the width, or another height.
absl::Status SetHeightAxis(const Column& column, const Shape& fixed, FeedSpec* feed) {
  if (column.height_axis < 0) return absl::OkStatus();
  feed->height_axis = FindHeightAxis(column, feed->sample.shape);
  const int a = feed->height_axis;
  const bool open =
      a >= 0 && (fixed.empty() || ((fixed[a] < 0 || fixed[a] == feed->sample.shape[a]) && fixed[a + 1] < 0));
  if (open && feed->columns.size() == 1) return absl::OkStatus();
  return Invalid("input '", feed->feed, "' takes no pictures of several sizes (`image_size` makes them one size)");
}

}  // namespace

absl::StatusOr<FeedSpec> Binder::MakeFeed(const ModelInput& input, const std::vector<int>& columns) {
  const std::vector<Column>& all = out_.dataset->columns();
  FeedSpec feed{.feed = input.name, .columns = columns, .allow_nan = input.takes_missing};
  Shape data = all[columns[0]].sample.shape;
  if (columns.size() > 1) data.push_back(static_cast<int64_t>(columns.size()));
  feed.sample = {input.dtype, data};
  Shape fixed;
  if (input.has_shape) {
    ASSIGN_OR_RETURN(fixed, FixedDims(input));
    auto fitted = FitSample(data, fixed);
    if (!fitted.ok() && AcceptsVectors(input, fixed) && !all[columns[0]].variable) fitted = Shape{NumElements(data)};
    if (!fitted.ok()) {
      // The column may list picture files that are not in the folder of the table.
      if (data.empty() && fixed.size() >= 3)
        return Invalid("input ", InputText(input), " takes arrays, column '", all[columns[0]].name,
                       "' has single values (a column of file names, with or without ending, is one of pictures or "
                       "sounds where the files are beside the table or in a folder beside it)");
      const bool sounds = all[columns[0]].sample_rate > 0 && data.size() == 1 && fixed.size() == 2;
      return Invalid("input ", InputText(input), " and column '", all[columns[0]].name, "'",
                     columns.size() > 1 ? StrCat(" and ", columns.size() - 1, " more") : "", ": ",
                     fitted.status().message(),
                     sounds ? " (`spectrogram` STYLE, if the model takes spectrograms)" : "");
    }
    feed.sample.shape = *fitted;
    const Column& column = all[columns[0]];
    feed.length_axis = column.length_axis;
    feed.variable = column.variable && columns.size() == 1 && fixed.size() == column.sample.shape.size() &&
                    fixed[column.length_axis] < 0;
  }
  RETURN_IF_ERROR(SetHeightAxis(all[columns[0]], fixed, &feed));
  const bool free =
      !input.has_shape || std::any_of(input.dims.begin() + 1, input.dims.end(), [](int64_t d) { return d < 0; });
  if (free) {
    Shape& shape = out_.input_shapes[input.name] = {-1};
    shape.insert(shape.end(), feed.sample.shape.begin(), feed.sample.shape.end());
  }
  return feed;
}

// Transposes pictures in arrays if the input has its channels on another axis.
absl::Status Binder::PlaceChannels() {
  std::map<int, ChannelMove> moves;
  for (const auto& input : inputs_) {
    const std::vector<int>& columns = bound_.at(input.name);
    if (!input.has_shape || columns.size() != 1 || columns[0] >= std::ssize(columns_)) continue;
    ASSIGN_OR_RETURN(const Shape fixed, FixedDims(input));
    if (const auto move = FindChannelMove(columns_[columns[0]], fixed)) moves.emplace(columns[0], *move);
  }
  for (const auto& [c, move] : moves) {
    Column& column = columns_[c];
    const std::string from = ToString(column.sample);
    column.sample.shape = MoveChannels(column.sample.shape, move);
    out_.notes.push_back(StrCat("column '", column.name, "' ", from, " is transposed to ", ToString(column.sample),
                                ": the channels of the input are along its ",
                                move == ChannelMove::kToFirst ? "first" : "last", " axis"));
  }
  out_.dataset = WithMovedChannels(out_.dataset, std::move(moves));
  return absl::OkStatus();
}

absl::Status Binder::AddFeeds() {
  out_.dataset = WithConstants(out_.dataset, constants_);
  std::vector<int> numbers;  // byte columns that are not pixels
  for (const auto& input : inputs_) {
    const std::vector<int>& columns = bound_.at(input.name);
    ASSIGN_OR_RETURN(FeedSpec feed, MakeFeed(input, columns));
    const Column& first = out_.dataset->columns()[columns[0]];
    const bool pixels = FeedsImage(columns) && HoldsPixels(input.name, columns[0]);
    if (pixels) {
      out_.has_images = true;
      RETURN_IF_ERROR(SetPixelScale(spec_.pixels, &feed));
    } else if (FeedsImage(columns)) {
      numbers.push_back(columns[0]);
    }
    if (columns[0] < static_cast<int>(columns_.size())) {
      out_.notes.push_back(StrCat("input '", input.name, "' ", ToString(feed.sample), " ← ",
                                  columns.size() == 1 ? StrCat("column '", first.name, "' ", ToString(first.sample))
                                                      : StrCat(columns.size(), " columns '", first.name, "' … '",
                                                               out_.dataset->columns()[columns.back()].name, "'")));
    }
    out_.feeds.push_back(std::move(feed));
  }
  out_.dataset = WithoutPixels(out_.dataset, numbers);
  return absl::OkStatus();
}

absl::StatusOr<BoundData> Binder::Run() {
  RETURN_IF_ERROR(BindExplicit());
  RETURN_IF_ERROR(FindLabel());
  BindByName();
  RETURN_IF_ERROR(BindTokens());
  RETURN_IF_ERROR(BindRest());
  // A single remaining column is the label.
  if (const std::vector<int> left = FreeColumns(); out_.label.columns.empty() && spec_.want_label && left.size() == 1) {
    out_.label.columns = left;
  }
  if (spec_.read_labels) RETURN_IF_ERROR(NumberClasses());
  RETURN_IF_ERROR(PlaceChannels());
  RETURN_IF_ERROR(AddFeeds());
  if (spec_.read_labels) RETURN_IF_ERROR(DescribeLabels());
  WarnOfDefaultLabel();
  return std::move(out_);
}

absl::Status SetPixelScale(const PixelScale& pixels, FeedSpec* feed) {
  feed->scale = pixels.scale;
  feed->mean = pixels.mean;
  feed->std = pixels.std;
  if (pixels.mean.size() <= 1) return absl::OkStatus();
  const auto channels = static_cast<int64_t>(pixels.mean.size());
  const Shape& shape = feed->sample.shape;
  if (!shape.empty() && shape.front() == channels) return absl::OkStatus();
  feed->channel_axis = static_cast<int>(shape.size()) - 1;
  if (!shape.empty() && shape.back() == channels) return absl::OkStatus();
  return Invalid("`normalize` gives ", channels, " channels, but input '", feed->feed, "' is ", ToString(feed->sample));
}

absl::StatusOr<Shape> FitSample(const Shape& data, const Shape& fixed) {
  const auto differ = [&] {
    return Invalid("a sample is ", ToString(data), ", which does not fit ", DimsText(fixed, {}));
  };
  for (const Shape& view : Views(data, fixed.size())) {
    if (Compatible(view, fixed)) return view;
  }
  const auto free = std::count_if(fixed.begin(), fixed.end(), [](int64_t d) { return d < 0; });
  if (free > 0) return differ();
  if (NumElements(data) != NumElements(fixed)) return differ();
  const Shape a = WithoutOnes(data), b = WithoutOnes(fixed);
  if (a == b || a.size() <= 1 || b.size() <= 1) return fixed;
  return Invalid("a sample is ", ToString(data), ", the model wants ", ToString(fixed),
                 ": as many values in another order; transpose the data");
}

absl::StatusOr<BoundData> BindData(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset,
                                   const BindSpec& spec) {
  return Binder(inputs, std::move(dataset), spec).Run();
}

namespace {

constexpr int64_t kMostChannels = 4;

// Transposes a rows × columns matrix of elements of `size` bytes.
void Transpose(std::span<const std::byte> from, size_t rows, size_t columns, size_t size, std::span<std::byte> to) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c)
      std::memcpy(to.data() + (c * rows + r) * size, from.data() + (r * columns + c) * size, size);
  }
}

class MovedChannels : public DatasetView {
 public:
  MovedChannels(std::shared_ptr<const Dataset> source, std::map<int, ChannelMove> moves)
      : DatasetView(std::move(source)), moves_(std::move(moves)), columns_(source_->columns()) {
    for (const auto& [c, move] : moves_) columns_[c].sample.shape = MoveChannels(columns_[c].sample.shape, move);
  }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }
  std::vector<std::string> notes() const override { return source_->notes(); }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const auto move = moves_.find(c);
    if (move == moves_.end()) return source_->Read(i, c, pass, out);
    thread_local std::vector<std::byte> sample;
    sample.resize(out.size());
    RETURN_IF_ERROR(source_->Read(i, c, pass, sample));
    const Type& own = source_->columns()[c].sample;
    const auto elements = static_cast<size_t>(own.elements());
    const bool to_first = move->second == ChannelMove::kToFirst;
    const size_t columns = to_first ? own.shape[2] : own.shape[1] * own.shape[2];
    if (columns > 0) Transpose(sample, elements / columns, columns, DTypeSize(own.dtype), out);
    return absl::OkStatus();
  }

 private:
  std::map<int, ChannelMove> moves_;
  std::vector<Column> columns_;
};

}  // namespace

Shape MoveChannels(const Shape& s, ChannelMove move) {
  return move == ChannelMove::kToFirst ? Shape{s[2], s[0], s[1]} : Shape{s[1], s[2], s[0]};
}

std::optional<ChannelMove> FindChannelMove(const Column& column, const Shape& fixed) {
  const Shape& s = column.sample.shape;
  const bool array = !column.picture && !column.text && !column.variable && column.height_axis < 0 &&
                     column.sample_rate == 0 && column.problem.empty();
  if (!array || s.size() != 3 || fixed.size() != 3 || FitSample(s, fixed).ok()) return std::nullopt;
  for (const ChannelMove move : {ChannelMove::kToFirst, ChannelMove::kToLast}) {
    const int64_t channels = move == ChannelMove::kToFirst ? s[2] : s[0];
    if (channels <= kMostChannels && FitSample(MoveChannels(s, move), fixed).ok()) return move;
  }
  return std::nullopt;
}

std::shared_ptr<const Dataset> WithMovedChannels(std::shared_ptr<const Dataset> source,
                                                 std::map<int, ChannelMove> moves) {
  if (moves.empty()) return source;
  return std::make_shared<MovedChannels>(std::move(source), std::move(moves));
}

}  // namespace onnxtrain
