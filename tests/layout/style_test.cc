// Names and line lengths follow the style: one standard term per concept.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/layout/source_tree.h"

namespace onnxtrain::layout {
namespace {

constexpr size_t kMaxColumns = 120;

// A coined name (regular expression on whole identifiers) and the standard term.
struct CoinedName {
  const char *name, *standard;
};

constexpr CoinedName kCoinedNames[] = {
    {"[A-Z]\\w*Leaf", "XSimd, in *-inl.h"},
    {"(Prepare)?Last(Pool|Conv|BatchNorm|Norm|Resize)\\w*", "XNhwc"},
    {"Emit[Tt]urned|[Tt]urned\\w*Conv\\w*|\\w*ConvTurned\\w*", "flipped, ConvBackwardDataAsForward"},
    {"BatchNormAgain\\w*|Again|Repeats", "XRecompute, Recomputed, Clones"},
    {"Life|FindLives|MostAlive", "LiveRange, ComputeLiveRanges, PeakLiveBytes"},
    {"WindowWeights|WindowFeeds", "GlobalBatch, LossDenominators, BatchFeeds"},
    {"Slots?", "DeviceScalar"},
    {"LayoutWish\\w*|Mover|Forms|Site", "LayoutConstraint, LayoutRewriter, LayoutVariants, NodeContext"},
    {"\\w*[Ss]kip_?[Rr]ounding\\w*|\\w*[Aa]bsorb_?[Cc]asts\\w*", "eliminate_cast_round_trips, fold_casts"},
    {"kInside|kFollow", "kMixedIo, kPropagate"},
    {"ChainSums|[Cc]ondensed?\\w*|StepProduct", "FusedReductions, peephole, RecurrentGemm"},
    {"Artist|Recipe|Pend|Plant", "WeightInitializer, InitSpec, AccumulateOutput, SeedGradient"},
    {"Least|Most|Down|ToThe", "Min, Max, Floor, Pow"},
    {"Thaw\\w*|Operate|Say|Said|Given", "UnfixBatchDimX, ApplySurgery, LogInfo, SpecifiedFlags, IsSpecified"},
    {"(Type|DType|Place|Feeds|Shape|Rank|Size|Spec|Axis|Axes|Batch|Spatial)Of",
     "a noun or GetX; MakeX for constructors"},
    {"Judge|Meet|Hits|Artless", "verb + object: CompareGradients, MatchGlobs"},
};

TEST(Names, AreStandardTerms) {
  std::vector<std::regex> patterns;
  for (const CoinedName& coined : kCoinedNames) patterns.emplace_back(coined.name);
  for (const SourceFile& file : ReadSources({".h", ".cc"})) {
    std::vector<std::string> tokens = Tokenize(file.text);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (const std::string& token : tokens) {
      for (size_t i = 0; i < patterns.size(); ++i)
        EXPECT_FALSE(std::regex_match(token, patterns[i]))
            << file.path << ": " << token << ": use " << kCoinedNames[i].standard;
    }
  }
}

TEST(Names, OfFilesAreStandardTerms) {
  const std::regex coined("\\.leaf\\.inc$|(pool|conv|norm)_last\\.|skip_rounding|absorb_casts|condense");
  for (const SourceFile& file : ReadSources({".h", ".cc", ".inc"}))
    EXPECT_FALSE(std::regex_search(file.path, coined)) << file.path;
}

// Counts code points of UTF-8.
size_t CountColumns(std::string_view line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// Markdown cannot wrap rows of tables and URLs.
bool IsUnwrappable(const SourceFile& file, const std::string& line) {
  return file.path.ends_with(".md") && (line.starts_with("|") || line.find("://") != std::string::npos);
}

TEST(Lines, HaveAtMost120Columns) {
  for (const SourceFile& file : ReadSources({".h", ".cc", ".cmake", ".py", ".sh", ".md"})) {
    const std::vector<std::string> lines = SplitLines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (CountColumns(lines[i]) > kMaxColumns && !IsUnwrappable(file, lines[i]))
        ADD_FAILURE() << file.path << ":" << i + 1 << " has " << CountColumns(lines[i]) << " columns";
    }
  }
}

}  // namespace
}  // namespace onnxtrain::layout
