#include "frontend/data/text/token_rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "frontend/base/log.h"
#include "frontend/base/strings.h"
#include "frontend/data/text/block_columns.h"

namespace onnxtrain {

int64_t AnsweredSample::CountTrained() const {
  return trained.empty() ? 0 : std::accumulate(trained.begin() + 1, trained.end(), int64_t{0});
}

void AnsweredSamples::Add(const AnsweredSample& sample, int64_t source_row) {
  CHECK(!sample.ids.empty() && sample.ids.size() == sample.trained.size());
  ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
  const size_t first = flags.size();
  for (const uint8_t trained : sample.trained) flags.push_back(trained != 0 ? kTrainedToken : 0);
  flags[first] &= ~kTrainedToken;
  flags.back() |= kLastToken;
  ends.push_back(std::ssize(ids));
  source_rows.push_back(source_row);
}

void AnsweredSamples::Append(const AnsweredSamples& other) {
  const int64_t tokens = std::ssize(ids);
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
  flags.insert(flags.end(), other.flags.begin(), other.flags.end());
  source_rows.insert(source_rows.end(), other.source_rows.begin(), other.source_rows.end());
  for (const int64_t end : other.ends) ends.push_back(tokens + end);
}

std::vector<std::vector<int64_t>> PackSamples(const std::vector<int64_t>& lengths, int64_t length) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](int64_t i) { return lengths[i]; });
  std::vector<std::vector<int64_t>> rows;
  std::set<std::pair<int64_t, int64_t>> room;  // the room of each row, and the row
  for (const int64_t i : order) {
    auto place = room.lower_bound({lengths[i], 0});
    if (place == room.end()) {
      rows.emplace_back();
      place = room.emplace(length, std::ssize(rows) - 1).first;
    }
    const auto [left, row] = *place;
    rows[row].push_back(i);
    room.erase(place);
    room.emplace(left - lengths[i], row);
  }
  return rows;
}

TokenRows::TokenRows(std::shared_ptr<const Dataset> source, AnsweredSamples samples,
                     std::vector<std::vector<int64_t>> rows, const BlockOptions& options, bool fixed)
    : source_(std::move(source)),
      samples_(std::move(samples)),
      rows_(std::move(rows)),
      options_(options),
      fixed_(fixed) {
  int64_t longest = 1;
  for (int64_t i = 0; i < size(); ++i) longest = std::max(longest, CountTokens(i));
  CHECK_GE(options.length, longest);
  columns_ = MakeBlockColumns(options, fixed ? options.length : longest, !fixed);
}

int64_t TokenRows::CountTokens(int64_t i) const {
  int64_t tokens = 0;
  for (const int64_t sample : rows_[i]) tokens += samples_.Length(sample);
  return tokens;
}

int64_t TokenRows::Length(int64_t i) const { return fixed_ ? 0 : CountTokens(i); }

absl::Status TokenRows::Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const {
  std::vector<int64_t> tokens;
  std::vector<uint8_t> flags;
  for (const int64_t sample : rows_[i]) {
    const int64_t end = samples_.ends[sample], begin = end - samples_.Length(sample);
    tokens.insert(tokens.end(), samples_.ids.begin() + begin, samples_.ids.begin() + end);
    flags.insert(flags.end(), samples_.flags.begin() + begin, samples_.flags.begin() + end);
  }
  FillBlockColumn(c, {tokens, CountPositions(c, out.size()), options_, flags}, out);
  return absl::OkStatus();
}

std::string TokenRows::Describe(int64_t i) const {
  const std::string first = source_->Describe(samples_.source_rows[rows_[i][0]]);
  return rows_[i].size() == 1 ? first : StrCat(first, " and ", rows_[i].size() - 1, " more");
}

int64_t TokenRows::memory_bytes() const {
  return static_cast<int64_t>(samples_.ids.size() * (sizeof(TokenId) + 1) + samples_.ends.size() * 2 * sizeof(int64_t));
}

}  // namespace onnxtrain
