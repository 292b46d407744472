#include "frontend/data/bind/channel_axis.h"

#include <cstring>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/data_view.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostChannels = 4;

// Transposes a matrix of values of `size` bytes.
void Transpose(std::span<const std::byte> from, size_t rows, size_t columns, size_t size, std::span<std::byte> to) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c)
      std::memcpy(to.data() + (c * rows + r) * size, from.data() + (r * columns + c) * size, size);
  }
}

class Moved : public DatasetView {
 public:
  Moved(std::shared_ptr<const Dataset> source, std::map<int, ChannelMove> moves)
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
  return std::make_shared<Moved>(std::move(source), std::move(moves));
}

}  // namespace onnxtrain
