// Prints the token ids of texts, for compare_ids.py: tokenizer_ids TOKENIZER FILE [--time]. Texts end with the byte
// 0x1e; each becomes a line of ids without special tokens. With --time, prints the speed by CPU time instead.
#include <cstdio>
#include <ctime>
#include <string>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {
namespace {

constexpr char kEnd = 0x1e;

template <typename Visit>
absl::Status EncodeAll(const Tokenizer& tokenizer, const std::string& texts, Visit visit) {
  TokenizerScratch scratch;
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = std::min(texts.find(kEnd, begin), texts.size());
    ids.clear();
    RETURN_IF_ERROR(tokenizer.Encode(std::string_view(texts).substr(begin, end - begin), &scratch, &ids));
    visit(ids);
    begin = end + 1;
  }
  return absl::OkStatus();
}

void PrintIds(const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) std::printf("%d ", id);
  std::printf("\n");
}

absl::Status PrintSpeed(const Tokenizer& tokenizer, const std::string& texts) {
  size_t tokens = 0;
  const std::clock_t start = std::clock();
  RETURN_IF_ERROR(EncodeAll(tokenizer, texts, [&](const auto& ids) { tokens += ids.size(); }));
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%zu tokens, %.1f MB/s\n", tokens, static_cast<double>(texts.size()) / seconds / 1e6);
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  if (argc < 3) return Invalid("usage: tokenizer_ids TOKENIZER FILE [--time]");
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(argv[1]));
  ASSIGN_OR_RETURN(const std::string texts, ReadTextFile(argv[2], int64_t{1} << 32));
  if (argc > 3) return PrintSpeed(*tokenizer, texts);
  return EncodeAll(*tokenizer, texts, PrintIds);
}

}  // namespace
}  // namespace onnxtrain

int main(int argc, char** argv) {
  const absl::Status status = onnxtrain::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
