// onnxtrain tokenize: writes text as a shard of token ids.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>

#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/token_shard.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/data/text/text_encoding.h"
#include "optim/plan/text_setup.h"
#include "optim/record/run_folder.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

// Number of documents that all threads together tokenize at a time.
constexpr int64_t kDocuments = 1 << 14;

absl::StatusOr<std::shared_ptr<const Dataset>> OpenText(const TrainConfig& config) {
  RETURN_IF_ERROR(Annotate(CheckEncoding(config.encoding), "`encoding`: "));
  DatasetOptions options{.encoding = config.encoding, .skip_bad = config.on_bad_sample == "skip"};
  options.header = config.header == "yes" ? Header::kYes : config.header == "no" ? Header::kNo : Header::kAuto;
  options.text.names.insert(config.text.begin(), config.text.end());
  auto data = OpenDataset(config.data, options);
  return data.ok() ? data : Annotate(data.status(), "`data`: ");
}

// Returns the column that `text` names, or the only column of text.
absl::StatusOr<int> FindColumn(const TrainConfig& config, const Dataset& data) {
  const std::vector<Column>& columns = data.columns();
  if (config.text.size() > 1) return Invalid("`text`: one column, not ", config.text.size());
  const auto is_asked = [&](const Column& c) {
    return config.text.empty() ? c.text : c.name == ResolveColumns(data, config.text)[0];
  };
  const auto found = std::ranges::find_if(columns, is_asked);
  if (found == columns.end() || std::find_if(found + 1, columns.end(), is_asked) != columns.end())
    return Invalid(config.data, ": which column is text? (`text`)");
  if (!found->text) return Invalid(config.data, ": column '", found->name, "' is no text");
  return static_cast<int>(found - columns.begin());
}

// Writes a file that gets its name when it is complete.
class ShardFile {
 public:
  static absl::StatusOr<std::unique_ptr<ShardFile>> Create(const std::string& path) {
    const std::string part = path + ".part";
    std::FILE* file = std::fopen(part.c_str(), "wb");
    if (file == nullptr) return Invalid(part, ": ", std::strerror(errno));
    return std::unique_ptr<ShardFile>(new ShardFile(path, part, file));
  }
  ~ShardFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(part_.c_str());
  }

  template <typename T>
  absl::Status Write(const std::vector<TokenId>& ids) {
    const std::vector<T> values(ids.begin(), ids.end());
    const size_t written = std::fwrite(values.data(), sizeof(T), values.size(), file_);
    return written == values.size() ? absl::OkStatus() : Fail();
  }
  absl::Status Finish() {
    if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) return Fail();
    std::fclose(std::exchange(file_, nullptr));
    if (std::rename(part_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
    const absl::Status failed = Fail();
    std::remove(part_.c_str());
    return failed;
  }

 private:
  ShardFile(std::string path, std::string part, std::FILE* file)
      : path_(std::move(path)), part_(std::move(part)), file_(file) {}
  absl::Status Fail() const { return Invalid(part_, ": ", std::strerror(errno)); }

  std::string path_, part_;
  std::FILE* file_;
};

absl::StatusOr<ShardInfo> WriteTokens(const TrainConfig& config, const Dataset& data, const Tokenizer& tokenizer,
                                      ShardInfo info) {
  ASSIGN_OR_RETURN(const int column, FindColumn(config, data));
  const int threads = config.threads > 0 ? static_cast<int>(config.threads) : CpuCount();
  const DocumentTokenizer documents(data, column, tokenizer, config.on_bad_sample == "skip", threads);
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardFile> file, ShardFile::Create(config.out));
  if (documents.end_of_text().has_value()) info.end_of_text = *documents.end_of_text();
  int64_t left_out = 0;
  for (int64_t first = 0; first < data.size(); first += kDocuments) {
    std::vector<int64_t> rows(std::min(kDocuments, data.size() - first));
    std::iota(rows.begin(), rows.end(), first);
    ASSIGN_OR_RETURN(const DocumentTokens part, documents.Run(rows));
    for (const TokenId id : part.ids) info.max_id = std::max<int64_t>(info.max_id, id);
    const bool wide = info.dtype == DType::kUInt32;
    RETURN_IF_ERROR(wide ? file->Write<uint32_t>(part.ids) : file->Write<uint16_t>(part.ids));
    info.tokens += std::ssize(part.ids);
    info.documents += part.documents;
    info.bytes += part.bytes;
    left_out += std::ssize(part.unreadable);
    LogInfo(config, StrCat(FormatWithCommas(first + std::ssize(rows)), " of ", FormatWithCommas(data.size()),
                           " documents: ", FormatWithCommas(info.tokens), " tokens"));
  }
  if (left_out > 0) Warn(StrCat("left out ", left_out, " documents that cannot be tokenized (`on_bad_sample` skip)"));
  if (info.tokens == 0) return Invalid(config.data, ": there are no tokens");
  // Writes the information before the shard, so that a complete shard always has it.
  RETURN_IF_ERROR(WriteTextFile(config.out + ".json", ToJson(info)));
  RETURN_IF_ERROR(file->Finish());
  return info;
}

absl::Status CheckOutput(const TrainConfig& config) {
  if (config.data.empty()) return Invalid("`data`: missing (which text?)");
  if (config.tokenizer.empty()) return Invalid("`tokenizer`: missing (tokenizer.json, vocab.txt, …)");
  if (config.out.empty()) return Invalid("`out`: missing (which file is written, shard.bin?)");
  if (!HasSuffix(config.out, {".bin"}, false)) return Invalid("`out` ", config.out, ": shards end in .bin");
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.out, {SourcePath(config.data), config.tokenizer}), "`out` "));
  std::error_code ignored;
  if (std::filesystem::exists(config.out, ignored) && !config.overwrite)
    return Invalid("`out` ", config.out, ": exists already (`overwrite` replaces it)");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunTokenize(const TrainConfig& config) {
  RETURN_IF_ERROR(CheckOutput(config));
  auto tokenizer = LoadTokenizer(config.tokenizer);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), "`tokenizer`: ");
  ASSIGN_OR_RETURN(const auto data, OpenText(config));
  const bool narrow = (*tokenizer)->id_count() <= int64_t{std::numeric_limits<uint16_t>::max()} + 1;
  const ShardInfo empty{.dtype = narrow ? DType::kUInt16 : DType::kUInt32,
                        .vocabulary = (*tokenizer)->id_count(),
                        .tokenizer = config.tokenizer,
                        .sha256 = TokenizerDigest(**tokenizer)};
  ASSIGN_OR_RETURN(const ShardInfo info, WriteTokens(config, *data, **tokenizer, empty));
  const double bytes = static_cast<double>(info.bytes) / static_cast<double>(info.tokens);
  RETURN_IF_ERROR(Print(PageRow(
      "written", StrCat(config.out, ": ", FormatWithCommas(info.tokens), " tokens of ", narrow ? "16" : "32", " bits, ",
                        FormatWithCommas(info.documents), info.documents == 1 ? " document, " : " documents, ",
                        FormatNumber(bytes), " bytes a token"))));
  return kDone;
}

}  // namespace onnxtrain::cli
