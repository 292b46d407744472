// Bad tables, from opening them to the last batch: each ends with a message that names the place, or is usable.
#include <gtest/gtest.h>

#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/load/loader.h"
#include "tests/frontend/data/files.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

constexpr int64_t kClasses = 3;

// What a run does with data: the last column is the label, the others are inputs of one number each.
absl::Status UseAll(const std::shared_ptr<const Dataset>& data) {
  const auto label = static_cast<int>(data->columns().size()) - 1;
  if (const std::string& problem = data->columns()[label].problem; !problem.empty()) return Invalid(problem);
  const auto range = ComputeLabelRange(*data, label, -100);
  if (!range.ok()) return range.status();
  if (const absl::Status checked = CheckLabels(*data, label, kClasses, -100); !checked.ok()) return checked;
  std::vector<FeedSpec> specs;
  for (int c = 0; c < label; ++c) {
    const Shape& shape = data->columns()[c].sample.shape;
    specs.push_back({.feed = data->columns()[c].name, .columns = {c}, .sample = {DType::kFloat32, shape}});
  }
  auto loader = Loader::Create(data, specs, {.batch_size = 4, .shuffle = true, .num_workers = 2, .epochs = 2});
  if (!loader.ok()) return loader.status();
  while (true) {
    const auto batch = (*loader)->Next();
    if (!batch.ok() || *batch == nullptr) return batch.status();
  }
}

std::string Use(const std::string& path, const DatasetOptions& options = {}) {
  const auto data = OpenDataset(path, options);
  const absl::Status used = data.ok() ? UseAll(*data) : data.status();
  return used.ok() ? "" : Message(used);
}

struct BadTable {
  const char* what;
  std::string text;
  const char* problem;  // a part of the message; "": it can be used
};

TEST(BadTables, EndWithAMessageOrAreUsed) {
  const std::string large(size_t{10} << 20, 'x');
  const BadTable tables[] = {
      {"label out of range", "a,y\n1,0\n2,7\n", "row 3, column 'y': label 7 is outside of the 3 classes 0 to 2"},
      {"negative label", "a,y\n1,0\n2,-1\n", "row 3, column 'y': label -1"},
      {"label with a fraction", "a,y\n1,0\n2,1.5\n", "row 3, column 'y': "},
      {"a class without samples", "a,y\n1,0\n2,2\n", ""},
      {"one sample", "a,y\n1,0\n", ""},
      {"no samples", "a,y\n", "t.csv: "},
      {"nothing", "", "t.csv: "},
      {"ragged row", "a,b,y\n1,2,0\n1,0\n", "t.csv: row 3"},
      {"too long row", "a,y\n1,0\n1,2,3,0\n", "t.csv: row 3"},
      {"byte order mark",
       "\xEF\xBB\xBF"
       "a,y\n1,0\n",
       ""},
      {"CRLF", "a,y\r\n1,0\r\n2,1\r\n", ""},
      {"no last line end", "a,y\n1,0\n2,1", ""},
      {"field of 10 MB", "a,y\n" + large + ",0\n", "row 2, column 'a'"},
      {"quoted field of 10 MB", "a,y\n\"" + large + "\",0\n", "row 2, column 'a'"},
      {"quote that is not closed", "a,y\n\"1,0\n", "t.csv: "},
      {"latin-1", "caf\xE9,y\n1,0\n", ""},
      {"NUL", std::string("a,y\n1\0,0\n", 9), "row 2, column 0: a NUL byte"},
      {"NaN", "a,y\n1,0\nnan,1\n", "row 3, column 'a'"},
      {"infinity", "a,y\n1,0\ninf,1\n", "row 3, column 'a'"},
      {"number beyond f32", "a,y\n1,0\n1e300,1\n", "row 3, column 'a'"},
      {"missing value", "a,y\n1,0\n,1\n", "row 3, column 'a': missing value"},
      {"missing label", "a,y\n1,0\n2,\n", "row 3, column 'y'"},
      {"the same name twice", "a,a,y\n1,2,0\n", ""},
  };
  for (const BadTable& table : tables) {
    const TempDir dir;
    const std::string problem = Use(dir.Write("t.csv", table.text));
    EXPECT_EQ(problem.empty(), *table.problem == '\0') << table.what << ": " << problem;
    EXPECT_NE(problem.find(table.problem), std::string::npos) << table.what << ": " << problem;
  }
}

TEST(BadTables, MissingLabelColumnIsNamed) {
  const TempDir dir;
  EXPECT_NE(Use(dir.Write("t.csv", "a,y\n1,0\n"), {.label = {"z"}}).find("'z'"), std::string::npos);
}

TEST(BadTables, SharedFilesNeverCrash) {
  SKIP_WITHOUT_SHARED("bad-inputs");
  int used = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SharedPath("bad-inputs"))) {
    if (!entry.is_regular_file()) continue;
    const TempDir dir;
    for (const char* name : {"t.csv", "t.tsv", "t.jsonl", "t.npy", "t.npz"}) {
      const std::string path = dir.Write(name, ReadFile(entry.path().string()));
      const std::string problem = Use(path);
      EXPECT_TRUE(problem.empty() || problem.find(name) != std::string::npos) << entry.path() << ": " << problem;
    }
    ++used;
  }
  EXPECT_GT(used, 0);
}

TEST(BadShards, TokensThatAreGoneAreNamed) {
  const TempDir dir;
  const std::string path = dir.Write("t.bin", std::string(4096, '\1'));
  const auto data = OpenDataset(path, {});
  ASSERT_TRUE(data.ok()) << data.status();
  std::filesystem::resize_file(path, 100);
  uint16_t token = 0;
  EXPECT_TRUE((*data)->Read(10, 0, std::as_writable_bytes(std::span(&token, 1))).ok());
  const absl::Status gone = (*data)->Read(2000, 0, std::as_writable_bytes(std::span(&token, 1)));
  EXPECT_NE(Message(gone).find("t.bin"), std::string::npos) << gone;
}

}  // namespace
}  // namespace onnxtrain
