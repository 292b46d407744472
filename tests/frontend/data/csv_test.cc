#include "frontend/data/sources/rows.h"

#include <gmock/gmock.h>

#include <cstring>

#include "frontend/data/sources/csv.h"
#include "tests/frontend/data/files.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

using ::testing::HasSubstr;

using Records = std::vector<std::vector<std::string>>;

// Reads in pieces of `piece` bytes, so that pieces end at every position once.
absl::StatusOr<Records> Split(std::string_view text, size_t piece, char separator = ',',
                              const std::string& encoding = "") {
  size_t at = 0;
  CsvReader reader(
      [&](std::span<std::byte> out) -> absl::StatusOr<size_t> {
        const size_t n = std::min({out.size(), piece, text.size() - at});
        std::memcpy(out.data(), text.data() + at, n);
        at += n;
        return n;
      },
      separator, encoding);
  Records records;
  std::vector<std::string> fields;
  while (true) {
    const auto more = reader.Next(&fields);
    if (!more.ok()) return more.status();
    if (!*more) return records;
    records.push_back(fields);
  }
}

TEST(CsvReader, Records) {
  const struct {
    const char* text;
    Records records;
  } kCases[] = {
      {"", {}},
      {"a,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},
      {"a,b\r\n1,2", {{"a", "b"}, {"1", "2"}}},
      {"a,b\r1,2\r", {{"a", "b"}, {"1", "2"}}},
      {"\xEF\xBB\xBF"
       "a,b\n",
       {{"a", "b"}}},
      {"\n\na\n\n\nb\n\n", {{"a"}, {"b"}}},
      {",\n", {{"", ""}}},
      {"a,\n,b", {{"a", ""}, {"", "b"}}},
      {"\"\"\n", {{""}}},
      {"\"a,b\",\"c\nd\",\"e\r\nf\",\"g\"\"h\"\n", {{"a,b", "c\nd", "e\r\nf", "g\"h"}}},
      {"\"\"\"\"\n", {{"\""}}},
      {"a\"b\"c,5'\n", {{"a\"b\"c", "5'"}}},
      {"grüße,日本,😀\n", {{"grüße", "日本", "😀"}}},
      {" a , b \n", {{" a ", " b "}}},
  };
  for (const auto& c : kCases) {
    for (size_t piece : {3, 4, 5, 1000}) {
      const auto records = Split(c.text, piece);
      ASSERT_TRUE(records.ok()) << c.text << records.status();
      EXPECT_EQ(*records, c.records) << c.text << " in pieces of " << piece;
    }
  }
  EXPECT_EQ(*Split("a\tb,c\n", 1, '\t'), (Records{{"a", "b,c"}}));
}

TEST(CsvReader, FindsTheSeparator) {
  const struct {
    const char* text;
    char expected;
    Records records;
  } kCases[] = {
      {"x;y\n1,5;2\n", ',', {{"x", "y"}, {"1,5", "2"}}},
      {"\"x, y\";\"z\"\n1;2\n", ',', {{"x, y", "z"}, {"1", "2"}}},
      {"1,5;2,5\n", ',', {{"1,5", "2,5"}}},
      {"a\tb\n", ',', {{"a", "b"}}},
      {"a|b|c\n", ',', {{"a", "b", "c"}}},
      {"a,b\n", '\t', {{"a", "b"}}},
      {"a;b,c\n", ',', {{"a;b", "c"}}},
      {"\"a;b\"\n\"c;d\"\n", ',', {{"a;b"}, {"c;d"}}},
      {"text\na;b\n", ',', {{"text"}, {"a;b"}}},
      {"\xEF\xBB\xBFsep=;\r\nx,y;z\r\n", ',', {{"x,y", "z"}}},
      {"SEP=|\na;b|c\n", ',', {{"a;b", "c"}}},
      {"sep=,x\na,b\n", ',', {{"sep=", "x"}, {"a", "b"}}},
      {" 1.5  2\t3 \n4 5 6", ',', {{"1.5", "2", "3"}, {"4", "5", "6"}}},
      {"a  b\n1 -2e3\n3 ?\n", ',', {{"a", "b"}, {"1", "-2e3"}, {"3", "?"}}},
      {"18. 8 1\t\"ford pinto\"\n", ',', {{"18.", "8", "1", "ford pinto"}}},
      {"some text\nand more\n", ',', {{"some text"}, {"and more"}}},
      {"text\n12 angry men\n", ',', {{"text"}, {"12 angry men"}}},
  };
  for (const auto& c : kCases) {
    for (size_t piece : {1, 1000}) {
      const auto records = Split(c.text, piece, c.expected);
      ASSERT_TRUE(records.ok()) << c.text << records.status();
      EXPECT_EQ(*records, c.records) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(CsvReader, SkipsCommentsBeforeTheTable) {
  const struct {
    const char* text;
    Records records;
  } kCases[] = {
      {"# made by x\n#date, time, place\na,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},
      {"# made by x\r\n\r\na;b\r\n1;2\r\n", {{"a", "b"}, {"1", "2"}}},
      {"# a,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},                        // as numpy writes a header
      {"#,Name\n1,Bulbasaur\n", {{"#", "Name"}, {"1", "Bulbasaur"}}},    // a column of numbers
      {"#ff0000,1\n#00ff00,2\n", {{"#ff0000", "1"}, {"#00ff00", "2"}}},  // rows
      {"a,b\n#1,2\n", {{"a", "b"}, {"#1", "2"}}},
      {"# made by x,\n# at noon,\na,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},  // a spreadsheet padded them
  };
  for (const auto& c : kCases) {
    for (size_t piece : {1, 1000}) {
      const auto records = Split(c.text, piece);
      ASSERT_TRUE(records.ok()) << c.text << records.status();
      EXPECT_EQ(*records, c.records) << c.text << " in pieces of " << piece;
    }
  }
  EXPECT_EQ(Split("# x\n\na,b\n1,\"2\n", 1).status().message(),
            "row 4, column 1: the quote that begins this field is not closed");
}

std::string EncodeUtf16(std::u16string_view text, bool big_endian) {
  std::string bytes;
  for (const char16_t unit : text) {
    const char low = static_cast<char>(unit & 0xFF), high = static_cast<char>(unit >> 8);
    bytes += big_endian ? std::string{high, low} : std::string{low, high};
  }
  return bytes;
}

TEST(CsvReader, Utf16) {
  for (const bool big_endian : {false, true}) {
    for (size_t piece : {1, 3, 1000}) {
      const auto records = Split(EncodeUtf16(u"\uFEFFgröße\t😀\r\n1\t\xD800x\n", big_endian), piece);
      ASSERT_TRUE(records.ok()) << records.status();
      EXPECT_EQ(*records, (Records{{"größe", "😀"}, {"1", "\uFFFDx"}}));
      const auto cut = Split(EncodeUtf16(u"\uFEFFa,b\n1,2\xD83D", big_endian) + "x", piece);
      ASSERT_TRUE(cut.ok()) << cut.status();
      EXPECT_EQ((*cut)[1][1], "2\uFFFD");
    }
  }
}

TEST(CsvReader, Windows1252) {
  for (size_t piece : {1, 1000}) {
    const auto records = Split(
        "caf\xE9,\x80\x35\n\x93"
        "a\x94,\xC0\x80\ngr\xC3\xBC\xC3\x9F\xE9,\x81\n",
        piece);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(*records, (Records{{"café", "€5"}, {"“a”", "À€"}, {"grüß\uFFFD", "\u0081"}}));
  }
}

TEST(CsvReader, NamedEncodings) {
  const struct {
    const char* encoding;
    std::string_view text;
    const char* field;
  } kCases[] = {{"latin1",
                 "a,stra\xDF"
                 "e\n",
                 "straße"},
                {"cp1251", "a,\xCC\xE8\xF0\n", "Мир"},
                {"Shift_JIS", "a,\x93\xFA\x96\x7B\n", "日本"},
                {"gb18030", "a,\xD6\xD0\xB9\xFA\n", "中国"},
                {"utf-8", "a,caf\xE9\n", "caf\uFFFD"}};
  for (const auto& c : kCases) {
    for (size_t piece : {1, 2, 1000}) {
      const auto records = Split(c.text, piece, ',', c.encoding);
      ASSERT_TRUE(records.ok()) << records.status();
      EXPECT_EQ(*records, (Records{{"a", c.field}})) << c.encoding;
    }
  }
  std::string long_text;
  for (int i = 0; i < 100000; ++i) long_text += "\x93\xFA\x96\x7B,1\n";
  const auto records = Split(long_text, 4097, ',', "Shift_JIS");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->size(), 100000u);
  EXPECT_EQ(records->back(), (std::vector<std::string>{"日本", "1"}));
  EXPECT_THAT(Message(Split("a,b\n", 10, ',', "klingon").status()), HasSubstr("there is no encoding 'klingon'"));
}

TEST(CsvReader, LinesOfBlanksAreNoRecords) {
  const auto records = Split("a,b\n1,2\n  \n\t\n3,4\n \n", 1000);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(*records, (Records{{"a", "b"}, {"1", "2"}, {"3", "4"}}));
}

TEST(CsvReader, PrintedTablesMayHoldNames) {
  const auto records = Split("   a      b kind\n  0.5  -1e3  dog\n -2.5      4  cat\n", 1000);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(*records, (Records{{"a", "b", "kind"}, {"0.5", "-1e3", "dog"}, {"-2.5", "4", "cat"}}));
  EXPECT_EQ(*Split("text\nwith 2 or 3 apples\n", 1000), (Records{{"text"}, {"with 2 or 3 apples"}}));
  EXPECT_EQ(*Split("1 2 dog\n3 NA cat\n5 6 dog\n", 1000),
            (Records{{"1", "2", "dog"}, {"3", "NA", "cat"}, {"5", "6", "dog"}}));
}

TEST(CsvReader, TextsWithNumbersAreNoPrintedTables) {
  for (const Records& texts : {
           Records{{"sold these apples"}, {"3 4 apples"}},                           // one row tells nothing
           Records{{"sold these apples"}, {"3 4 apples"}, {"3 apples 4"}},           // other places
           Records{{"sold these apples"}, {"3 4 apples"}, {"5 of the 6 were bad"}},  // other counts
           Records{{"apples and apples"}, {"3 4 apples"}, {"5 6 pears"}},            // no names
           Records{{"sold 2 apples"}, {"3 4 apples"}, {"5 6 pears"}},
       }) {
    std::string table;
    for (const auto& row : texts) table += row[0] + "\n";
    EXPECT_EQ(*Split(table, 1000), texts) << table;
  }
}

TEST(CsvReader, FieldsBetweenTabsMayBeEmpty) {
  EXPECT_EQ(*Split("a\tb\ty\n1\t2\t0\n4\t\t1\n", 1000, '\t'),
            (Records{{"a", "b", "y"}, {"1", "2", "0"}, {"4", "", "1"}}));
  EXPECT_EQ(*Split("a\tb\ty\n1\t2\t0\n4\t\t1\n", 1000), (Records{{"a", "b", "y"}, {"1", "2", "0"}, {"4", "", "1"}}));
}

TEST(Csv, NamesOfClassesHaveNoBlanksAroundThem) {
  const TempDir dir;
  const std::string table = dir.Write("t.csv", "a, y\n1, dog\n2,cat\n3,dog \n");
  EXPECT_EQ((*OpenDataset(table, {}))->columns()[1].classes, (std::vector<std::string>{"cat", "dog"}));
  const auto named = OpenDataset(table, {.class_names = {"dog", "cat"}});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(ColumnValues(**named, 1), (std::vector<double>{0, 1, 0}));
}

TEST(Csv, TextThatIsNotUtf8IsTold) {
  const TempDir dir;
  const auto data =
      OpenDataset(dir.Write("t.csv", "name,y\nJos\xE9,2\nZo\xEB,1\nAnn,1\n"), {.text = {.names = {"name"}}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->ReadText(0, 0).value(), "José");
  EXPECT_THAT(
      (*data)->notes(),
      testing::Contains(HasSubstr(
          "t.csv: row 2: the text is not UTF-8 and is read as Windows-1252: 'José'; 2 such fields (`encoding` NAME")));
}

TEST(CsvReader, Errors) {
  const struct {
    std::string_view text;
    const char* message;
  } kCases[] = {
      {"a,b\n1,\"2\n3,4\n", "row 2, column 1: the quote that begins this field is not closed"},
      {"a,b\n1,\"2\" 3\n", "row 2, column 1: text after the closing quote"},
      {{"a,b\n1,\0\n", 8}, "row 2, column 1: a NUL byte: the text is not UTF-8 (`encoding` NAME says what it is)"},
  };
  for (const auto& c : kCases) {
    for (size_t piece : {1, 1000}) EXPECT_EQ(Message(Split(c.text, piece).status()), c.message);
  }
}

TEST(CsvReader, TenMegabytesInAField) {
  std::string text = "a,b\n\"";
  for (int i = 0; i < 1 << 20; ++i) text += "ten\nbytes\"\"";
  const auto records = Split(text + "\",2\n", 1 << 16);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ((*records)[1][0].size(), size_t{10} << 20);
}

absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& text, const DatasetOptions& options = {},
                                                    const char* name = "t.csv") {
  static TempDir dir;
  auto data = OpenDataset(dir.Write(name, text), options);
  return data;
}

// Returns the error without the folder.
std::string ReadError(const std::string& text, const DatasetOptions& options = {}) {
  const std::string message = Message(Open(text, options).status());
  const size_t at = message.find("t.csv");
  return at == std::string::npos ? message : message.substr(at);
}

std::string ColumnProblem(const std::string& text, int column, const DatasetOptions& options = {}) {
  const auto data = Open(text, options);
  if (!data.ok()) return StrCat("does not open: ", Message(data.status()));
  const std::string problem = (*data)->columns()[column].problem;
  std::vector<std::byte> out((*data)->columns()[column].sample.bytes());
  if (!problem.empty()) {
    EXPECT_EQ(Message((*data)->Read(0, column, out)), problem);
  }
  return problem.empty() ? "" : problem.substr(problem.find("t.csv"));
}

TEST(Csv, Columns) {
  const auto data = Open("a,b,kind\n1,0.5,x\n-2,1e3,z\n+3,.25,x\n\n4,5.,y\n");
  ASSERT_TRUE(data.ok()) << data.status();
  const auto& columns = (*data)->columns();
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[0].name, "a");
  EXPECT_EQ(ToString(columns[0].sample), "i64[]");
  EXPECT_EQ(ToString(columns[1].sample), "f64[]");
  EXPECT_EQ(ColumnValues(**data, 0), (std::vector<double>{1, -2, 3, 4}));
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{.5, 1000, .25, 5}));
  EXPECT_EQ(columns[2].classes, (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_EQ(ColumnValues(**data, 2), (std::vector<double>{0, 2, 0, 1}));
  EXPECT_TRUE((*data)->Describe(0).ends_with("t.csv: row 2"));
  EXPECT_TRUE((*data)->Describe(3).ends_with("t.csv: row 6"));  // the blank line counts
}

TEST(Csv, IntegersTurnIntoFloatsWhereOneIsAFloat) {
  const auto data = Open("9007199254740993,1\n2,2.5\n");
  ASSERT_TRUE(data.ok());
  HostTensor v((*data)->columns()[0].sample);
  ASSERT_TRUE((*data)->Read(0, 0, v.mutable_bytes()).ok());
  EXPECT_EQ(v.IntAt(0), 9007199254740993);
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{1, 2.5}));
}

TEST(Csv, HeaderIsFound) {
  const struct {
    const char* text;
    Header header;
    const char* first_name;
    int64_t rows;
  } kCases[] = {
      {"5.1,3.5,setosa\n4.9,3.0,virginica\n", Header::kAuto, "0", 2},
      {"length,width,kind\n4.9,3.0,virginica\n", Header::kAuto, "length", 1},
      {"x,x\nred,blue\n", Header::kAuto, "0", 2},  // two columns cannot have one name
      {"a,,c\nd,,f\n", Header::kAuto, "0", 2},     // a missing value
      {"a,,c\n1,2,3\n", Header::kAuto, "a", 1},    // a column without a name
      {"a,b\nc,d\n", Header::kNo, "0", 2},
      {"1,2\n3,4\n", Header::kYes, "1", 1},
      {",b\n3,4\n", Header::kYes, "#0", 1},  // a column without a name
      // Numbers as names: a series and a matrix of pandas, with and without the index, and tables of R.
      {",0\n1821,269\n1822,321\n", Header::kAuto, "#0", 2},
      {",0,1\n0,.5,.25\n1,.75,.5\n", Header::kAuto, "#0", 2},
      {"0,1,2\n5.1,3.5,0\n4.9,3.0,1\n", Header::kAuto, "0", 2},
      {"label,0,1,2\n5,9,8,7\n", Header::kAuto, "label", 1},
      {"\"\",\"1940\",\"1945\",\"1950\"\n\"Food\",22.2,44.5,59.6\n", Header::kAuto, "#0", 1},
      {"\"\",\"16.75\",\"17\",\"18.5\"\n\"9.4\",0,0,0\n", Header::kAuto, "#0", 1},
      {"0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7\n", Header::kAuto, "0", 1},
      {"country,1970,1980,1990\nAlbania,0,1,0\n", Header::kAuto, "country", 1},
      {"id,name,0,1,2,3,4\n7,Ann,1,1,1,0,0\n", Header::kAuto, "id", 1},
      {"name,1,2,3,4,5\nAnn,.5,1,1,0,0\n", Header::kAuto, "name", 1},
      {"1990,1991,1992\n4,5,7\n", Header::kAuto, "1990", 1},
      {"year,inf,unem\n1948,8.1,3.8\n", Header::kAuto, "year", 1},
      // Samples that begin with such numbers.
      {"1990,1991,1992\n1985,1986,1987\n", Header::kAuto, "0", 2},
      {"setosa,1,2,3,4,5\nvirginica,2,3,4,5,6\n", Header::kAuto, "0", 2},
      {"1,2,3,4,5\n5,4,3,2,1\n", Header::kAuto, "0", 2},
      {"0,1,2\n3,4,5\n", Header::kAuto, "0", 2},
      {"0,1,2\n1,2,3\n", Header::kAuto, "0", 2},
      {"0,1\n.5,.75\n", Header::kAuto, "0", 2},
      {"1801,1850,1999\n1790,1820,2007\n", Header::kAuto, "0", 2},
      {"0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
       "16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n",
       Header::kAuto, "0", 2},
      {",3,2\n1,2,3\n", Header::kAuto, "0", 2},
      {"setosa,1,2,3\nvirginica,4,5,6\n", Header::kAuto, "0", 2},
      {"NA,1,2,3\n4,5,6,7\n", Header::kAuto, "0", 2},
  };
  for (const auto& c : kCases) {
    const auto data = Open(c.text, {.header = c.header});
    ASSERT_TRUE(data.ok()) << c.text << data.status();
    EXPECT_EQ((*data)->columns()[0].name, c.first_name) << c.text;
    EXPECT_EQ((*data)->size(), c.rows) << c.text;
  }
}

TEST(Csv, NumbersThatNameColumnsAreTold) {
  const auto data = Open("0,1,2\n5.1,3.5,0\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT((*data)->notes(), Contains(HasSubstr("row 1 names columns by numbers, '2' the last one")));
}

TEST(Csv, LabelByNameOrIndex) {
  const std::string text = "kind,a,grade\nx,1,good\ny,2,bad\n";
  for (const char* label : {"kind", "0"}) {
    const auto data = Open(text, {.label = {label}});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ((*data)->columns()[0].classes.size(), 2u);
    EXPECT_NE((*data)->columns()[2].problem, "");
  }
  const auto both = Open(text, {.label = {"kind", "2"}});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)->columns()[2].classes, (std::vector<std::string>{"bad", "good"}));
  EXPECT_EQ(ReadError(text, {.label = {"sort"}}),
            "t.csv: there is no column 'sort' among 3 columns from 'kind' to 'grade'");
  EXPECT_EQ(ReadError(text, {.label = {"3"}}), "t.csv: there is no column '3' among 3 columns from 'kind' to 'grade'");
  EXPECT_EQ(ReadError(text, {.label = {"-1"}}),
            "t.csv: there is no column '-1' among 3 columns from 'kind' to 'grade'");
}

TEST(Csv, ClassesOfTraining) {
  const std::vector<std::string> names = {"z", "y", "x"};
  const auto data = Open("1,x\n2,z\n", {.class_names = names});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)->columns()[1].classes, names);
  EXPECT_EQ(ColumnValues(**data, 1), (std::vector<double>{2, 0}));
  // Class names that are numbers stay names.
  const auto numbers = Open("1,7\n2,3\n", {.class_names = {"3", "7", "other"}});
  ASSERT_TRUE(numbers.ok());
  EXPECT_EQ(ColumnValues(**numbers, 1), (std::vector<double>{1, 0}));
  EXPECT_EQ(
      ReadError("1,x\n2,w\n", {.class_names = names}),
      "t.csv: row 2, column '1': 'w' is not among the 3 classes (`class_map` FILE gives others, and their order)");
}

TEST(Csv, ProblemsOfAColumn) {
  const struct {
    const char* text;
    int column;
    const char* problem;
  } kCases[] = {
      {"age,y\n1,0\n,1\n", 0, "t.csv: row 3, column 'age': missing value"},
      {"age,y\n1,0\nNaN,1\n", 0, "t.csv: row 3, column 'age': missing value"},
      {"age,y\n1,0\n ? ,1\n", 0, "t.csv: row 3, column 'age': missing value"},
      {"sex,y\n1,0\nmale,1\n", 0, "t.csv: row 3, column 'sex': 'male' is not a number"},
      {"sex,y\n1,0\n1.5x,1\n", 0, "t.csv: row 3, column 'sex': '1.5x' is not a number"},
      {"sex,y\n1,0\n1e999,1\n", 0, "t.csv: row 3, column 'sex': '1e999' is not a number"},
      {"sex,y\n1,0\n0x10,1\n", 0, "t.csv: row 3, column 'sex': '0x10' is not a number"},
      {"sex,y\n1,0\n+-1,1\n", 0, "t.csv: row 3, column 'sex': '+-1' is not a number"},
      {"a,y\n\"1,5\",0\n", 0,
       "t.csv: row 2, column 'a': '1,5' is not a number (decimal commas are read where ';' separates the fields)"},
      {"a,y\n[1 2],0\n", 0,
       "t.csv: row 2, column 'a': '[1 2]' is not a number (a field holds one number: JSON lines, .npz and .npy hold "
       "arrays)"},
      {"a,y\n1,0\n#N/A,1\n", 0, "t.csv: row 3, column 'a': missing value"},
      {"a,y\n1,0\n-,1\n", 0, "t.csv: row 3, column 'a': missing value"},
      {"a,y\n1,0\n2,\n", 1, "t.csv: row 3, column 'y': missing value"},
      {"a,y\n1,0\n2,NA\n", 1, "t.csv: row 3, column 'y': missing value"},
      {"a,y\n1,yes\n2,\n", 1, "t.csv: row 3, column 'y': missing value"},
      {"a,y\n1,yes\n2,None\n", 1, ""},  // a name among names
      {"a,y\n1,inf\n2,-inf\n", 1, ""},
  };
  for (const auto& c : kCases) EXPECT_EQ(ColumnProblem(c.text, c.column), c.problem) << c.text;
  EXPECT_EQ(ColumnProblem("a,y\n1,0\n" + std::string(39, 'x') + "äöü,1\n", 0),
            "t.csv: row 3, column 'a': '" + std::string(39, 'x') + "…' is not a number");
}

TEST(Csv, ErrorsOfTheFile) {
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {
      {"\n\n", "t.csv: there are no rows"},
      {"a,b\n", "t.csv: there are no rows after the header"},
      {"a,b\n1,2\n3\n", "t.csv: row 3 has 1 fields, row 1 has 2"},
      {"a,b\n1,2\n\n3,4,5\n", "t.csv: row 4 has 3 fields, row 1 has 2"},
      {"a,b\n1,\"2\n", "t.csv: row 2, column 1: the quote that begins this field is not closed"},
  };
  for (const auto& c : kCases) EXPECT_EQ(ReadError(c.text), c.message);
  EXPECT_EQ(ReadError(",0\n1,2\n", {.header = Header::kYes}),
            "");  // the unnamed index of a table next to numbered columns
  std::string rows;
  for (int i = 0; i < 100000; ++i) rows += "1,2\n";
  EXPECT_EQ(ReadError(rows, {.max_bytes = 1 << 20}),
            "t.csv: needs 2 MiB of memory, the limit is 1 MiB (an .npy is read from disk)");
}

TEST(Csv, Tabs) {
  const auto data = Open("a\tb\n1\tx,y\n", {}, "t.tsv");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns()[1].classes, (std::vector<std::string>{"x,y"}));
}

TEST(Csv, RealTables) {
  SKIP_WITHOUT_SHARED("data/tabular");
  const auto iris = OpenDataset(SharedPath("data/tabular/iris.csv"), {});
  ASSERT_TRUE(iris.ok()) << iris.status();
  EXPECT_EQ((*iris)->size(), 150);
  EXPECT_EQ((*iris)->columns()[4].classes,
            (std::vector<std::string>{"Iris-setosa", "Iris-versicolor", "Iris-virginica"}));
  const auto titanic = OpenDataset(SharedPath("data/tabular/titanic.csv"), {.label = {"survived"}});
  ASSERT_TRUE(titanic.ok()) << titanic.status();
  EXPECT_EQ((*titanic)->size(), 891);
  EXPECT_EQ(ToString((*titanic)->columns()[0].sample), "i64[]");
  EXPECT_TRUE((*titanic)->columns()[3].problem.ends_with("row 7, column 'age': missing value"));
  EXPECT_TRUE((*titanic)->columns()[2].problem.ends_with("row 2, column 'sex': 'male' is not a number"));
  EXPECT_EQ((*titanic)->columns()[6].problem, "");
}

TEST(Csv, RealQuoting) {
  SKIP_WITHOUT_SHARED("bad-inputs/csv");
  const auto read = [&](const char* name) { return *Split(ReadFile(SharedPath("bad-inputs/csv/csvs_") + name), 7); };
  EXPECT_EQ(read("comma_in_quotes.csv")[1][3], "Anytown, WW");
  EXPECT_EQ(read("empty_crlf.csv"), (Records{{"a", "b", "c"}, {"1", "", ""}, {"2", "3", "4"}}));
  EXPECT_EQ(read("json.csv")[1][1], "{\"type\": \"Point\", \"coordinates\": [102.0, 0.5]}");
  EXPECT_EQ(read("newlines.csv")[2][0], "Once upon \na time");
  EXPECT_EQ(read("quotes_and_newlines.csv")[1][1], "ha \n\"ha\" \nha");
  EXPECT_EQ(read("simple_crlf.csv"), (Records{{"a", "b", "c"}, {"1", "2", "3"}}));
}

TEST(Csv, ReadsDecimalCommasBetweenSemicolons) {
  const auto data = Open("size;weight;kind\n1,5;2;a\n-3,25;4;b\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->notes(), std::vector<std::string>{"fields are separated by ';'; 1,5 is read as 1.5"});
  double x = 0;
  ASSERT_TRUE((*data)->Read(1, 0, std::as_writable_bytes(std::span(&x, 1))).ok());
  EXPECT_EQ(x, -3.25);
  EXPECT_EQ((*data)->columns()[1].sample.dtype, DType::kInt64);
  EXPECT_NE(ColumnProblem("x,label\n\"1,5\",1\n", 0), "");
  EXPECT_NE(ColumnProblem("x;label\n1,5,5;1\n", 0), "");
}

// The values of the first column, and what is said of it.
std::pair<std::vector<double>, std::string> ReadNoted(const std::string& text) {
  const auto data = Open(text);
  EXPECT_TRUE(data.ok()) << data.status();
  if (!data.ok()) return {};
  EXPECT_EQ((*data)->columns()[0].problem, "");
  return {ColumnValues(**data, 0), (*data)->notes().back()};
}

TEST(Csv, ReadsPointsBetweenThousandsWhereCommasAreDecimal) {
  using Values = std::vector<double>;
  const auto grouped = ReadNoted("x;y\n999,5;1\n1.000;2\n1.234,5;0\n-2.345.678;1\n");
  EXPECT_EQ(grouped.first, (Values{999.5, 1000, 1234.5, -2345678}));
  EXPECT_EQ(grouped.second, "column 'x': '1.234,5' is read as 1234.5");
  // What a point is follows from the other values of the column.
  const auto after = ReadNoted("x;y\n1.000;1\n2,5;2\n");
  EXPECT_EQ(after.first, (Values{1000, 2.5}));
  EXPECT_EQ(after.second, "column 'x': '1.000' is read as 1000");
  EXPECT_EQ(ReadNoted("x;y\n1.000;1\n2.5;2\n").first, (Values{1, 2.5}));
  const auto unknown = ReadNoted("x;y\n1.500;1\n2.250;2\n");
  EXPECT_EQ(unknown.first, (Values{1.5, 2.25}));
  EXPECT_EQ(unknown.second,
            "column 'x': '1.500' is read as 1.5, not as 1500: no value of the column has a decimal comma");
  EXPECT_THAT(ColumnProblem("x\tlabel\n1,5\t1\n", 0, {.header = Header::kYes}),
              HasSubstr("'1,5' is not a number (decimal commas are read where ';' separates the fields)"));
}

TEST(Csv, LeavesOutWhatHasNoName) {
  const auto index = Open(",a,b,label\n0,1.5,2,0\n1,2.5,3,1\n");  // as pandas writes a table
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT((*index)->columns()[0].problem, HasSubstr("numbers the rows"));
  const auto other = Open(",a,label\n5,1.5,0\n1,2.5,1\n");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->columns()[0].problem, "");
  const auto again = Open("Unnamed: 0,a,label\n0,1.5,0\n1,2.5,1\n");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT((*again)->columns()[0].problem, HasSubstr("numbers the rows"));

  const auto trailing = Open("a,label,\n1.5,0,\n2.5,1,\n");
  ASSERT_TRUE(trailing.ok()) << trailing.status();
  EXPECT_EQ((*trailing)->columns().size(), 2u);
  EXPECT_EQ(ReadError("a,label,\n1.5,0,\n2.5,1,7\n"), "t.csv: row 3 has 3 fields, row 1 has 2");
  const auto several = Open("a,label,,\n1.5,0,,\n2.5,1,,\n");
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_EQ((*several)->columns().size(), 2u);
  const auto rows_only = Open("a,label\n1.5,0,,\n2.5,1,,\n");
  ASSERT_TRUE(rows_only.ok()) << rows_only.status();
  EXPECT_EQ((*rows_only)->columns().size(), 2u);
}

TEST(Csv, NumbersColumnsOfOneName) {
  const auto data = Open("x,x.1,x\n1,2,3\n", {.header = Header::kYes});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->columns()[0].name, "x");
  EXPECT_EQ((*data)->columns()[2].name, "x.2");
  EXPECT_THAT((*data)->notes(), ::testing::ElementsAre("several columns are named 'x': column 2 is called 'x.2'"));
}

std::vector<std::string> ColumnNames(const Dataset& data) {
  std::vector<std::string> names;
  for (const Column& column : data.columns()) names.push_back(column.name);
  return names;
}

TEST(Csv, TakesTablesOfSpreadsheetsAndScripts) {
  const struct {
    const char* text;
    std::vector<std::string> names;
    int64_t rows;
  } kCases[] = {
      {"a,label\n1,0,,\n2,1,,\n", {"a", "label"}, 2},
      {"a,label,,\n1,0,,\n2,1,,\n", {"a", "label"}, 2},
      {"a,label\n1,0\n,\n2,1\n,\n", {"a", "label"}, 2},
      {"\"a\",\"label\"\n\"1\",2.5,0\n\"2\",3.5,1\n", {"#0", "a", "label"}, 2},  // R's write.table
      {"# a,label\n1.5,0\n2.5,1\n", {"a", "label"}, 2},                          // NumPy's savetxt
  };
  for (const auto& c : kCases) {
    const auto data = Open(c.text);
    ASSERT_TRUE(data.ok()) << c.text << data.status();
    EXPECT_EQ(ColumnNames(**data), c.names) << c.text;
    EXPECT_EQ((*data)->size(), c.rows) << c.text;
  }
}

TEST(Csv, LeavesOutCommentsWithinTheTable) {
  const char* const kTexts[] = {
      "a,b,y\n# units: m, s\n1,2,0\n#, as text,1\n3,4,1\n# end\n",
      "# made by,,\na,b,y\n# first part,,\n1,2,0\n3,4,1\n",
      "1 2 0\n# three words here\n3 4 1\n",
  };
  for (const char* text : kTexts) {
    const auto data = Open(text);
    ASSERT_TRUE(data.ok()) << text << data.status();
    EXPECT_EQ((*data)->size(), 2) << text;
    EXPECT_EQ((*data)->columns()[0].problem, "") << text;
    EXPECT_THAT((*data)->notes(), testing::Contains(testing::HasSubstr("of comments (#)"))) << text;
  }
  const auto colors = Open("color,y\n#ff0000,0\n#00ff00,1\n", {.categories = {.all = true}});
  ASSERT_TRUE(colors.ok()) << colors.status();
  EXPECT_EQ((*colors)->size(), 2) << "rows";
}

TEST(Csv, TakesClassesFromTheFirstRowOfScikitLearn) {
  const auto data = Open("3,2,setosa,lily,rose\n5.1,3.5,0\n4.9,3.0,2\n4.7,3.2,1\n");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 3);
  const std::vector<std::string> classes = {"setosa", "lily", "rose"};
  EXPECT_EQ((*data)->columns().back().classes, classes);
  EXPECT_THAT((*data)->notes(), testing::ElementsAre(testing::HasSubstr("3 classes from 'setosa' to 'rose'")));
  EXPECT_FALSE(Open("1,2,x,y\n5,3,0,1,2\n").ok()) << "a row of another length";
}

TEST(Csv, ReadsNumbersAsPeopleWriteThem) {
  const struct {
    const char* text;
    std::vector<double> values;
    const char* note;
  } kCases[] = {
      {"x,y\n\"1,234,567.5\",0\n\"-12,000\",0\n3,0\n", {1234567.5, -12000, 3}, "column 'x': '1,234,567.5' is read as "},
      {"x,y\n12.5%,0\n3 %,0\n", {12.5, 3}, "column 'x': '12.5%' is read as 12.5"},
      {"x,y\n$5,0\n\"€ 1,000\",0\n", {5, 1000}, "column 'x': '$5' is read as 5"},
      {"x,y\n(5.5),0\n\"($1,000)\",0\n", {-5.5, -1000}, "column 'x': '(5.5)' is read as -5.5"},
      {"x,y\n-$2,0\n3 €,0\n", {-2, 3}, "column 'x': '-$2' is read as -2"},
      {"x,y\n−5\u00a0,0\n1\u202f234.5,0\n3,0\n", {-5, 1234.5, 3}, "column 'x': '−5\u00a0' is read as -5"},
      {"x,y\n1 234,0\n1'000.5,0\n1_000,0\n", {1234, 1000.5, 1000}, "column 'x': '1 234' is read as 1234"},
      {"x,y\nTrue,0\nFALSE,0\n", {1, 0}, "column 'x': 'True' is read as 1"},
      {"x,y\nno,0\nyes,0\n", {0, 1}, "column 'x': 'no' is read as 0"},
  };
  for (const auto& c : kCases) {
    const auto data = Open(c.text);
    ASSERT_TRUE(data.ok()) << c.text << data.status();
    ASSERT_EQ((*data)->columns()[0].problem, "") << c.text;
    EXPECT_EQ(ColumnValues(**data, 0), c.values) << c.text;
    EXPECT_THAT((*data)->notes(), testing::ElementsAre(HasSubstr(c.note)));
  }
  const auto european = Open("x;y\n1.234,50 €;0\n-0,5;0\n");
  ASSERT_TRUE(european.ok()) << european.status();
  EXPECT_EQ(ColumnValues(**european, 0), (std::vector<double>{1234.5, -0.5}));
  for (const char* other : {"(5", "(-5)", "(5%)", "()", "-$-5", "\"12,34\"", "\"0,123\"", "\"1234,567\"",
                            "\"1,234.5,678\"", "\",123\"", "5%%", "$"})
    EXPECT_THAT(ColumnProblem(StrCat("x,y\n", other, ",0\n"), 0), HasSubstr("is not a number")) << other;
  for (const char* missing : {"-", "--", "#N/A", "<NA>"})
    EXPECT_EQ(ColumnProblem(StrCat("x,y\n1,0\n", missing, ",1\n"), 0), "t.csv: row 3, column 'x': missing value");
}

TEST(Csv, TruthValuesAmongOthersAreText) {
  EXPECT_EQ(ColumnProblem("x,y\nTrue,0\n2,1\n", 0), "t.csv: row 2, column 'x': 'True' is not a number");
  EXPECT_EQ(ColumnProblem("x,y\nyes,0\nmaybe,1\n", 0), "t.csv: row 3, column 'x': 'maybe' is not a number");
  EXPECT_EQ(ColumnProblem("x,y\nyes,0\nNA,1\n", 0), "t.csv: row 3, column 'x': missing value");
  const auto encoded = Open("x,y\nyes,0\nno,1\n", {.categories = {.all = true}});
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ((*encoded)->columns()[0].classes, (std::vector<std::string>{"no", "yes"}));
}

}  // namespace
}  // namespace onnxtrain
