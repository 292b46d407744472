#include "frontend/data/text/text_dataset.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>

#include "frontend/base/log.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

// The concatenated tokens of samples.
struct TokenTable {
  std::vector<int64_t> offsets = {0};
  std::vector<TokenId> ids;
  std::vector<uint8_t> types;                 // empty: all 0
  std::map<int64_t, std::string> unreadable;  // reason, by sample
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

absl::Status UnknownTextColumnError(const std::string& name, const std::vector<Column>& columns) {
  constexpr size_t kMaxItems = 8;
  std::string list;
  for (size_t c = 0; c < std::min(columns.size(), kMaxItems); ++c)
    StrAppend(&list, c == 0 ? "'" : ", '", columns[c].name, "'");
  return Invalid("there is no column '", name, "' (`text` NAME names the texts); the columns are ", list,
                 columns.size() > kMaxItems ? ", …" : "");
}

absl::Status NotTextError(const Column& column) {
  return Invalid("column '", column.name, "' is no text", column.problem.empty() ? "" : ": ", column.problem);
}

namespace {

absl::StatusOr<int> FindTextColumn(const Dataset& data, const std::string& name) {
  const std::vector<Column>& columns = data.columns();
  const auto found = std::ranges::find(columns, name, &Column::name);
  if (found == columns.end()) return UnknownTextColumnError(name, columns);
  if (!found->text) return NotTextError(*found);
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

namespace {

void Append(DocumentTokens part, DocumentTokens* all) {
  all->ids.insert(all->ids.end(), part.ids.begin(), part.ids.end());
  all->unreadable.insert(all->unreadable.end(), part.unreadable.begin(), part.unreadable.end());
  all->documents += part.documents;
  all->bytes += part.bytes;
  all->characters += part.characters;
}

}  // namespace

std::optional<TokenId> FindEndOfText(const Tokenizer& tokenizer) {
  for (const char* name :
       {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>", "[EOS]", "<EOS>", "[SEP]"}) {
    if (const auto id = tokenizer.FindToken(name)) return id;
  }
  return std::nullopt;
}

DocumentTokenizer::DocumentTokenizer(const Dataset& data, int column, const Tokenizer& tokenizer, bool skip_bad,
                                     int threads)
    : data_(data),
      column_(column),
      tokenizer_(tokenizer),
      end_(FindEndOfText(tokenizer)),
      skip_bad_(skip_bad),
      threads_(std::max(1, threads)) {}

absl::Status EncodeOnThreads(const Tokenizer& tokenizer, std::string_view text, int threads, size_t part_bytes,
                             std::vector<TokenId>* ids) {
  ASSIGN_OR_RETURN(const std::vector<TextPart> parts, tokenizer.Cut(text, part_bytes));
  std::vector<std::vector<TokenId>> encoded(parts.size());
  std::atomic<size_t> next = 0;
  RunParts(std::min<int64_t>(threads, std::ssize(parts)), [&](int64_t) {
    TokenizerScratch scratch;
    for (size_t p; (p = next++) < parts.size();) tokenizer.EncodePart(parts[p], &scratch, &encoded[p]);
  });
  size_t count = 0;
  for (const std::vector<TokenId>& part : encoded) count += part.size();
  ids->reserve(count);
  for (std::vector<TokenId>& part : encoded) {
    ids->insert(ids->end(), part.begin(), part.end());
    part = {};
  }
  return tokenizer.CheckKnown(*ids);
}

absl::Status DocumentTokenizer::Append(int64_t row, int threads, TokenizerScratch* scratch,
                                       DocumentTokens* tokens) const {
  constexpr size_t kPartBytes = size_t{1} << 20;
  ASSIGN_OR_RETURN(const std::string text, data_.ReadText(row, column_));
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(threads > 1 && text.size() > 2 * kPartBytes
                      ? EncodeOnThreads(tokenizer_, text, threads, kPartBytes, &ids)
                      : tokenizer_.Encode(text, scratch, &ids));
  EncodedSample sample;
  RETURN_IF_ERROR(FillTemplate(tokenizer_.single(), std::move(ids), {}, 0, &sample));
  tokens->ids.insert(tokens->ids.end(), sample.ids.begin(), sample.ids.end());
  const bool ended = !sample.ids.empty() && sample.ids.back() == end_;
  if (end_.has_value() && !ended) tokens->ids.push_back(*end_);
  ++tokens->documents;
  tokens->bytes += static_cast<int64_t>(text.size());
  tokens->characters += static_cast<int64_t>(CountColumns(text));
  return absl::OkStatus();
}

absl::StatusOr<DocumentTokens> DocumentTokenizer::Run(std::span<const int64_t> rows) const {
  const int64_t parts = std::clamp<int64_t>(std::ssize(rows), 1, threads_);
  const int of_document = threads_ / static_cast<int>(parts);
  std::vector<DocumentTokens> tokens(parts);
  std::vector<absl::Status> failed(parts);
  RunParts(parts, [&](int64_t p) {
    TokenizerScratch scratch;
    const int64_t begin = std::ssize(rows) * p / parts, end = std::ssize(rows) * (p + 1) / parts;
    for (int64_t i = begin; i < end && failed[p].ok(); ++i) {
      const absl::Status status = Append(rows[i], of_document, &scratch, &tokens[p]);
      if (!status.ok() && skip_bad_) tokens[p].unreadable.push_back(rows[i]);
      if (!status.ok() && !skip_bad_) failed[p] = Annotate(status, StrCat(data_.Describe(rows[i]), ": "));
    }
  });
  DocumentTokens all;
  for (int64_t p = 0; p < parts; ++p) {
    RETURN_IF_ERROR(failed[p]);
    onnxtrain::Append(std::exchange(tokens[p], {}), &all);
  }
  return all;
}

std::shared_ptr<const Dataset> MakeTokenSequence(const std::string& name, const std::vector<TokenId>& ids) {
  HostTensor tensor({DType::kInt32, {std::ssize(ids)}});
  std::memcpy(tensor.mutable_bytes().data(), ids.data(), ids.size() * sizeof(TokenId));
  auto dataset = InMemoryDataset(name, {"tokens"}, {std::move(tensor)});
  CHECK(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

}  // namespace onnxtrain
