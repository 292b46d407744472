#include "frontend/data/text/documents.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "frontend/base/log.h"
#include "frontend/base/parallel_parts.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
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
