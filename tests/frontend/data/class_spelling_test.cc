#include "frontend/data/bind/labels.h"

#include <gmock/gmock.h>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ClassSpellings, DifferInCaseBlanksQuotesAndFullStops) {
  const ClassSpellings spellings({"<=50K", ">50K", "Spam", "no", "U.S."});
  for (const char* text : {"<=50K.", " <=50K", "'<=50K'", "\"<=50K.\"", "<=50k", "“<=50K”", "<=50K . "})
    EXPECT_EQ(spellings.Find(text), "<=50K") << text;
  EXPECT_EQ(spellings.Find("spam"), "Spam");
  EXPECT_EQ(spellings.Find("U.S"), "U.S.");
  for (const char* text : {"", ".", "'", "50K", "=50K", "sp am", "yes", "US"})
    EXPECT_EQ(spellings.Find(text), "") << text;
}

TEST(ClassSpellings, OfSeveralClassesAreNone) {
  const ClassSpellings spellings({"a", "A", "b"});
  EXPECT_EQ(spellings.Find("a."), "");
  EXPECT_EQ(spellings.Find("b."), "b");
}

TEST(ClassSpellings, SuggestNearOnes) {
  const ClassSpellings spellings({"dog", "horse", "3"});
  EXPECT_EQ(spellings.Suggest("hrose"), "; did you mean 'horse'?");
  EXPECT_EQ(spellings.Suggest("zebra"), "");
  EXPECT_EQ(spellings.Suggest("4"), "");
}

// As in the Adult data, whose test file has full stops behind the classes.
TEST(ClassSpellings, AreReadAsTheClassesOfTraining) {
  const TempDir dir;
  const DatasetOptions options{.label = {"y"}, .class_names = {"<=50K", ">50K"}};
  for (const std::string& path :
       {dir.Write("t.csv", "x,y\n1, >50K.\n2,<=50K.\n3,<=50K\n"),
        dir.Write("t.jsonl", "{\"x\":1,\"y\":\">50K.\"}\n{\"x\":2,\"y\":\"<=50K.\"}\n{\"x\":3,\"y\":\"<=50K\"}\n")}) {
    const auto data = OpenDataset(path, options);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_THAT(ColumnValues(**data, 1), ElementsAre(1, 0, 0));
    EXPECT_THAT((*data)->notes(),
                ElementsAre(HasSubstr("'<=50K.' is read as the class '<=50K', and 1 more spellings")));
  }
  EXPECT_THAT((*OpenDataset(dir.Write("same.csv", "x,y\n1,>50K\n"), options))->notes(), IsEmpty());
  EXPECT_THAT(Message(OpenDataset(dir.Write("other.csv", "x,y\n1,>50K\n2,>500K\n"), options).status()),
              HasSubstr("row 3, column 'y': '>500K' is not among the 2 classes; did you mean '>50K'? (`class_map`"));
}

TEST(ClassSpellings, IntegersAreIndicesOfNamedClasses) {
  const TempDir dir;
  const DatasetOptions options{.label = {"y"}, .class_names = {"bad", "good"}};
  const auto data = OpenDataset(dir.Write("t.csv", "x,y\n1,1\n2,0\n3,bad\n"), options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ColumnValues(**data, 1), ElementsAre(1, 0, 0));
  EXPECT_THAT((*data)->notes(), ElementsAre(HasSubstr("'0' is read as the class 'bad', and 1 more")));
  EXPECT_THAT(Message(OpenDataset(dir.Write("two.csv", "x,y\n1,2\n"), options).status()),
              HasSubstr("'2' is not among the 2 classes"));
}

}  // namespace
}  // namespace onnxtrain
