#include "frontend/data/bind/split.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

// Continues the FNV-1a hash `hash` with the bytes.
uint64_t HashBytes(std::span<const std::byte> bytes, uint64_t hash) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001B3u;
  return hash;
}
template <typename T>
uint64_t HashValue(const T& value, uint64_t hash) {
  return HashBytes(std::as_bytes(std::span(&value, 1)), hash);
}

// Mixes the bits of a hash (finalizer of MurmurHash3).
uint64_t Mix(uint64_t h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u;
  return h ^ (h >> 33);
}

// Hashes single values as doubles or class names, since appended samples may change the element type of a column.
uint64_t HashColumn(const Column& column, const HostTensor& value, uint64_t hash) {
  if (!column.sample.shape.empty() || IsStorage(column.sample.dtype)) return HashBytes(value.bytes(), hash);
  const int64_t place = column.classes.empty() ? -1 : value.IntAt(0);
  if (place < 0) return HashValue(value.At(0), hash);
  return HashBytes(std::as_bytes(std::span(column.classes[place])), hash);
}

uint64_t HashSample(const Dataset& data, int64_t i, uint64_t seed) {
  uint64_t hash = HashValue(seed, 0xCBF29CE484222325u);
  if (const std::string name = data.StableName(i); !name.empty())
    return Mix(HashBytes(std::as_bytes(std::span(name)), hash));
  if (data.memory_bytes() == 0) return Mix(HashValue(i, hash));
  for (int c = 0; c < static_cast<int>(data.columns().size()); ++c) {
    const Column& column = data.columns()[c];
    if (column.text) {
      const auto text = data.ReadText(i, c);
      if (text.ok()) hash = HashBytes(std::as_bytes(std::span(*text)), hash);
      continue;
    }
    HostTensor value(column.sample);
    if (data.Read(i, c, value.mutable_bytes()).ok()) hash = HashColumn(column, value, hash);
  }
  return Mix(hash);
}

// Moves the sample with the hash closest to the threshold if one part is empty.
void EnsureBothParts(const std::vector<uint64_t>& hashes, SplitRows* rows) {
  if (rows->eval.empty()) {
    const auto least = std::ranges::min_element(rows->train, {}, [&](int64_t i) { return hashes[i]; });
    rows->eval.push_back(*least);
    rows->train.erase(least);
  } else if (rows->train.empty()) {
    const auto most = std::ranges::max_element(rows->eval, {}, [&](int64_t i) { return hashes[i]; });
    rows->train.push_back(*most);
    rows->eval.erase(most);
  }
}

absl::StatusOr<bool> IsForEvaluation(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::count(kEvalPartNames, lower) > 0) return true;
  if (lower == "train" || lower == "training") return false;
  return Invalid("`eval_split`: expected train, test, eval, valid, val or dev, got '", name, "'");
}

// Returns for each class of the column whether it selects evaluation; empty for numeric columns.
absl::StatusOr<std::vector<bool>> EvaluationClasses(const Column& column) {
  std::vector<bool> classes;
  for (const std::string& name : column.classes) {
    ASSIGN_OR_RETURN(const bool evaluation, IsForEvaluation(name));
    classes.push_back(evaluation);
  }
  return classes;
}

}  // namespace

SplitRows SplitAtEnd(int64_t size, double fraction) {
  const int64_t carved = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(size)), 1, size - 1);
  SplitRows rows;
  for (int64_t i = 0; i < size; ++i) (i < size - carved ? rows.train : rows.eval).push_back(i);
  return rows;
}

SplitRows SplitByHash(const Dataset& data, double fraction, uint64_t seed) {
  std::vector<uint64_t> hashes(data.size());
  SplitRows rows;
  for (int64_t i = 0; i < data.size(); ++i) {
    hashes[i] = HashSample(data, i, seed);
    (std::ldexp(static_cast<double>(hashes[i]), -64) < fraction ? rows.eval : rows.train).push_back(i);
  }
  EnsureBothParts(hashes, &rows);
  return rows;
}

absl::StatusOr<SplitRows> SplitByColumn(int64_t size, const std::string& path, DatasetOptions options,
                                        const std::string& column) {
  options.label = {column};
  options.class_names.clear();
  const auto opened = OpenDataset(path, options);
  if (!opened.ok())
    return Annotate(opened.status(), StrCat("`eval_split` ", column, " (neither a fraction nor a column?): "));
  const auto& columns = (*opened)->columns();
  const auto it = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == column; });
  if (it == columns.end())
    return Invalid("`eval_split`: expected a fraction like 0.1, last:0.1 or a column; there is no column '", column,
                   "'");
  if (!it->problem.empty() || !it->sample.shape.empty())
    return Invalid("`eval_split` ", column, ": ",
                   it->problem.empty() ? "its samples are no single values" : it->problem);
  ASSIGN_OR_RETURN(const std::vector<bool> classes, EvaluationClasses(*it));
  SplitRows rows;
  HostTensor value(it->sample);
  for (int64_t i = 0; i < size; ++i) {
    const absl::Status read = (*opened)->Read(i, static_cast<int>(it - columns.begin()), value.mutable_bytes());
    if (!options.skip_bad) RETURN_IF_ERROR(read);
    const bool eval = read.ok() && (classes.empty() ? value.At(0) != 0 : classes[value.IntAt(0)]);
    (eval ? rows.eval : rows.train).push_back(i);
  }
  if (rows.train.empty() || rows.eval.empty()) {
    return Invalid("`eval_split` ", column, ": puts all samples into ", rows.train.empty() ? "evaluation" : "training");
  }
  return rows;
}

absl::StatusOr<SplitSpec> ParseSplit(std::string_view text) {
  SplitSpec spec;
  std::string_view number = text;
  if (number.starts_with("last:")) {
    spec.last = true;
    number.remove_prefix(5);
  }
  const auto fraction = ParseNumber(number);
  if (!fraction.ok() || *fraction <= 0 || *fraction >= 1) {
    return Invalid("expected a fraction between 0 and 1, like 0.1 or last:0.1, got '", text, "'");
  }
  spec.fraction = *fraction;
  return spec;
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOnlyShard = "-00000-of-00001";  // suffix of Hugging Face's files

constexpr std::string_view kTables[] = {"csv", "tsv", "jsonl"};
constexpr std::string_view kOthers[] = {"npz", "safetensors", "text", "tokens", "tar"};

std::string FindSourceName(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() ? found->source->name : "";
}
bool IsTable(const std::string& path) { return std::ranges::count(kTables, FindSourceName(path)) > 0; }
bool IsSplit(const std::string& path) { return IsTable(path) || std::ranges::count(kOthers, FindSourceName(path)) > 0; }

// Returns "train" for "Train.csv.gz" and "train-00000-of-00001.jsonl".
std::string FindStem(const std::string& name) {
  std::string stem = absl::AsciiStrToLower(name.substr(0, name.find('.')));
  if (stem.ends_with(kOnlyShard)) stem.resize(stem.size() - kOnlyShard.size());
  return stem;
}

// Returns the path of the file with that stem; if there are several, the one with the suffix of `like`. "" if none or
// several remain.
std::string FindFile(const fs::path& folder, const std::vector<std::string>& names, std::string_view stem,
                     const std::string& like) {
  std::vector<std::string> found;
  const std::string suffix = fs::path(like).extension().string();
  for (const std::string& name : names) {
    if (FindStem(name) == stem && IsSplit((folder / name).string())) found.push_back((folder / name).string());
  }
  if (found.size() > 1) std::erase_if(found, [&](const std::string& path) { return !path.ends_with(suffix); });
  return found.size() == 1 ? found[0] : "";
}

// Returns the only table in a folder that no source recognizes; "" otherwise.
std::string FindOnlyTable(const std::string& folder, const std::vector<std::string>& names) {
  std::string found;
  if (!FindSourceName(folder).empty()) return "";
  for (const std::string& name : names) {
    const std::string path = (fs::path(folder) / name).string();
    if (!IsTable(path)) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

// Returns the fields of the first record of a table, which are the column names if it has a header, or the keys of the
// first JSON line. Empty for other files.
std::multiset<std::string> ReadColumns(const std::string& path) {
  std::vector<std::string> names;
  if (HasSuffix(path, {".csv", ".data", ".dat", ".tsv", ".tab"}, true)) {
    auto file = InputFile::Open(path);
    if (!file.ok() || !CsvReader(file->reader(), ',').Next(&names).value_or(false)) return {};
  } else if (HasSuffix(path, {".jsonl", ".ndjson", ".json"}, true)) {
    const auto lines = OpenAsJsonLines(path, {});
    std::string line;
    if (!lines.ok() || !LineReader(*lines).Next(&line).value_or(false)) return {};
    const auto object = ParseJsonObject(line);
    if (!object.ok()) return {};
    for (const auto& [key, value] : object->items()) names.push_back(key);
  }
  return {names.begin(), names.end()};
}

// Returns true if a table has all columns of another, or as many fields.
bool HasColumnsOf(const std::string& path, const std::string& other) {
  const auto own = ReadColumns(path), wanted = ReadColumns(other);
  return own.size() == wanted.size() || std::ranges::includes(own, wanted);
}

bool HoldsFolders(const fs::path& path) {
  std::error_code ignored;
  const fs::directory_iterator entries(path, ignored);
  return std::any_of(begin(entries), end(entries), [](const auto& entry) {
    std::error_code none;
    return entry.is_directory(none);
  });
}

}  // namespace

std::optional<SplitFiles> FindSplitFiles(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || HoldsFolders(fs::path(folder) / "train")) return std::nullopt;
  const auto names = ListFolder(folder);
  if (!names.ok()) return std::nullopt;
  SplitFiles files{.train = FindFile(folder, *names, "train", ""), .eval = {}, .test = {}};
  if (files.train.empty()) files.train = FindOnlyTable(folder, *names);
  if (files.train.empty()) return std::nullopt;
  for (const std::string_view part : kEvalPartNames) {
    const std::string path = FindFile(folder, *names, part, files.train);
    if (path.empty() || path == files.train) continue;
    std::string& place = HasColumnsOf(path, files.train) ? files.eval : files.test;
    if (place.empty()) place = path;
  }
  return files;
}

}  // namespace onnxtrain
