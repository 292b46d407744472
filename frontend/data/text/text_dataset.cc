#include "frontend/data/text/text_dataset.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>

#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"

namespace onnxtrain {
namespace {

// Tokens of samples one behind the other.
struct TokenTable {
  std::vector<int64_t> offsets = {0};
  std::vector<TokenId> ids;
  std::vector<uint8_t> types;                 // empty: all 0
  std::map<int64_t, std::string> unreadable;  // by sample
  int64_t truncated = 0;

  void Add(const EncodedSample& sample) {
    const auto typed = [](int32_t type) { return type != 0; };
    const bool has_types = !types.empty() || std::ranges::any_of(sample.types, typed);
    if (has_types) types.resize(ids.size());
    if (has_types) types.insert(types.end(), sample.types.begin(), sample.types.end());
    ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    truncated += sample.truncated ? 1 : 0;
  }

  // Appends the samples of another table.
  void Append(const TokenTable& other) {
    if (types.empty() && !other.types.empty()) types.resize(ids.size());
    const auto samples = static_cast<int64_t>(offsets.size()) - 1;
    for (size_t i = 1; i < other.offsets.size(); ++i)
      offsets.push_back(other.offsets[i] + static_cast<int64_t>(ids.size()));
    ids.insert(ids.end(), other.ids.begin(), other.ids.end());
    types.insert(types.end(), other.types.begin(), other.types.end());
    if (!types.empty()) types.resize(ids.size());
    for (const auto& [sample, why] : other.unreadable) unreadable[samples + sample] = why;
    truncated += other.truncated;
  }
};

class TokenDataset : public DatasetView {
 public:
  TokenDataset(std::shared_ptr<const Dataset> source, TokenTable table, TokenId pad, const TextOptions& options)
      : DatasetView(std::move(source)), table_(std::move(table)), pad_(pad), columns_(source_->columns()) {
    own_ = static_cast<int>(columns_.size());
    for (int64_t i = 0; i < size(); ++i) longest_ = std::max(longest_, Length(i));
    const int64_t extent = options.fixed_length > 0 ? options.fixed_length : longest_;
    for (const TokenRoleName& role : kTokenRoles) {
      columns_.push_back({.name = StrCat(options.columns[0], ".", role.name),
                          .sample = {DType::kInt64, {extent}},
                          .measured = false,
                          .variable = true});
    }
  }

  const std::vector<Column>& columns() const override { return columns_; }
  int64_t longest() const { return longest_; }
  int64_t Length(int64_t i) const override { return table_.offsets[i + 1] - table_.offsets[i]; }
  int64_t memory_bytes() const override {
    return source_->memory_bytes() + static_cast<int64_t>(table_.ids.size() * sizeof(TokenId) + table_.types.size() +
                                                          table_.offsets.size() * sizeof(int64_t));
  }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c < own_) return source_->Read(i, c, pass, out);
    if (const auto bad = table_.unreadable.find(i); bad != table_.unreadable.end()) return Invalid(bad->second);
    const auto length = static_cast<int64_t>(out.size() / sizeof(int64_t));
    auto* values = reinterpret_cast<int64_t*>(out.data());
    for (int64_t k = 0; k < length; ++k) values[k] = Value(kTokenRoles[c - own_].role, i, k);
    return absl::OkStatus();
  }

 private:
  int64_t Value(TokenRole role, int64_t i, int64_t k) const {
    const bool padding = k >= Length(i);
    const int64_t at = table_.offsets[i] + k;
    switch (role) {
      case TokenRole::kIds:
        return padding ? pad_ : table_.ids[at];
      case TokenRole::kMask:
        return padding ? 0 : 1;
      case TokenRole::kPadding:
        return padding ? 1 : 0;
      case TokenRole::kTypes:
        return padding || table_.types.empty() ? 0 : table_.types[at];
      case TokenRole::kPositions:
        return k;
    }
    return 0;
  }

  TokenTable table_;
  TokenId pad_;
  std::vector<Column> columns_;
  int own_ = 0;
  int64_t longest_ = 0;
};

}  // namespace

absl::Status NoTextColumn(const std::string& name, const std::vector<Column>& columns) {
  constexpr size_t kMost = 8;
  std::string list;
  for (size_t c = 0; c < std::min(columns.size(), kMost); ++c)
    StrAppend(&list, c == 0 ? "'" : ", '", columns[c].name, "'");
  return Invalid("there is no column '", name, "' (`text` NAME names the texts); the columns are ", list,
                 columns.size() > kMost ? ", …" : "");
}

absl::Status NoText(const Column& column) {
  return Invalid("column '", column.name, "' is no text", column.problem.empty() ? "" : ": ", column.problem);
}

namespace {

absl::StatusOr<int> FindTextColumn(const Dataset& data, const std::string& name) {
  const std::vector<Column>& columns = data.columns();
  const auto found = std::ranges::find(columns, name, &Column::name);
  if (found == columns.end()) return NoTextColumn(name, columns);
  if (!found->text) return NoText(*found);
  return static_cast<int>(found - columns.begin());
}

// Tokenizes a range of samples on one thread.
class RangeTokenizer {
 public:
  RangeTokenizer(const Dataset& data, const Tokenizer& tokenizer, std::vector<int> columns, int64_t max_length)
      : data_(data), tokenizer_(tokenizer), columns_(std::move(columns)), max_length_(max_length) {}

  void Run(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const absl::Status status = Encode(i);
      if (!status.ok()) {
        table.unreadable[i - begin] =
            StrCat(data_.Describe(i), ", column '", data_.columns()[columns_[0]].name, "': ", status.message());
        sample_ = {};
      }
      if (sample_.ids.empty()) sample_ = {.ids = {tokenizer_.pad()}, .types = {0}, .truncated = sample_.truncated};
      table.Add(sample_);
    }
  }

  TokenTable table;

 private:
  absl::StatusOr<std::vector<TokenId>> EncodeColumn(int64_t i, int c) {
    ASSIGN_OR_RETURN(const std::string text, data_.ReadText(i, c));
    std::vector<TokenId> ids;
    RETURN_IF_ERROR(tokenizer_.Encode(text, &scratch_, &ids));
    return ids;
  }

  absl::Status Encode(int64_t i) {
    ASSIGN_OR_RETURN(std::vector<TokenId> first, EncodeColumn(i, columns_[0]));
    std::vector<TokenId> second;
    if (columns_.size() > 1) {
      ASSIGN_OR_RETURN(second, EncodeColumn(i, columns_[1]));
    }
    return FillTemplate(columns_.size() > 1 ? tokenizer_.pair() : tokenizer_.single(), std::move(first),
                        std::move(second), max_length_, &sample_);
  }

  const Dataset& data_;
  const Tokenizer& tokenizer_;
  std::vector<int> columns_;
  int64_t max_length_;
  TokenizerScratch scratch_;
  EncodedSample sample_;
};

}  // namespace

absl::StatusOr<TokenizedText> TokenizeColumns(std::shared_ptr<const Dataset> source, const Tokenizer& tokenizer,
                                              const TextOptions& options) {
  std::vector<int> columns;
  for (const std::string& name : options.columns) {
    ASSIGN_OR_RETURN(const int c, FindTextColumn(*source, name));
    columns.push_back(c);
  }
  const int64_t size = source->size();
  const int64_t parts = std::clamp<int64_t>(size / 256, 1, std::max(1, options.threads));
  std::vector<RangeTokenizer> ranges(parts, RangeTokenizer(*source, tokenizer, columns, options.max_length));
  const auto begin = [&](int64_t part) { return size * part / parts; };
  RunParts(parts, [&](int64_t p) { ranges[p].Run(begin(p), begin(p + 1)); });
  TokenTable table;
  for (RangeTokenizer& range : ranges) table.Append(std::exchange(range.table, {}));
  if (!options.skip_bad && !table.unreadable.empty()) return Invalid(table.unreadable.begin()->second);
  TokenizedText text{.first_column = static_cast<int>(source->columns().size()),
                     .tokens = static_cast<int64_t>(table.ids.size()),
                     .truncated = table.truncated};
  const auto dataset = std::make_shared<TokenDataset>(std::move(source), std::move(table), tokenizer.pad(), options);
  text.longest = dataset->longest();
  text.dataset = dataset;
  return text;
}

}  // namespace onnxtrain
