#include "tools/onnxtrain/report/language_html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/text/block_columns.h"
#include "frontend/data/text/unicode.h"
#include "tools/onnxtrain/report/html_page.h"

namespace onnxtrain::cli {
namespace {

// The names of kinds, by TokenKind.
constexpr std::array kKindNames = {
    "end of an answer",    "special",         "white space",        "digits", "punctuation",
    "word, its beginning", "word, continued", "part of a character"};
constexpr int64_t kMostTokens = 20, kMostShown = 400, kMostChanges = 20;
constexpr int64_t kFirstBucket = 4;  // positions 1 … 3; each further bucket is 4 times as long

// Returns true if all characters of a valid text, which is not empty, have one of the flags.
bool AllHave(std::string_view text, uint16_t flags) {
  while (!text.empty()) {
    char32_t c = 0;
    text.remove_prefix(DecodeChar(text, &c));
    if (!HasFlags(c, flags)) return false;
  }
  return true;
}

bool IsSpecialName(const std::string& name) {
  return name.size() > 2 &&
         ((name.front() == '<' && name.back() == '>') || (name.front() == '[' && name.back() == ']'));
}

std::string Percent(int64_t part, int64_t all) {
  return all > 0 ? absl::StrFormat("%.1f %%", 100 * static_cast<double>(part) / static_cast<double>(all)) : "–";
}

std::string LossText(const TokenSum& sum) { return sum.tokens > 0 ? absl::StrFormat("%.3f", sum.mean_loss()) : "–"; }

// A row of a table of losses: what, tokens, share of the loss, loss before and after, accuracy.
std::vector<std::string> LossRow(const std::string& what, const TokenSum* before, const TokenSum& after, double total) {
  return {what,
          FormatWithCommas(after.tokens),
          total > 0 ? absl::StrFormat("%.1f %%", 100 * after.loss / total) : "–",
          before != nullptr ? LossText(*before) : "–",
          LossText(after),
          Percent(after.correct, after.tokens)};
}

std::string LossTable(const char* what, const std::vector<std::vector<std::string>>& rows) {
  return HtmlTable({what, "tokens", "share of the loss", "loss before", "loss after", "accuracy"}, rows, true);
}

TokenSum Total(const TokenLosses& losses) {
  TokenSum total;
  for (const auto& [id, sum] : losses.by_token) total.Add(sum);
  return total;
}

std::vector<TokenSum> SumKinds(const TokenLosses& losses, const ReportTokens& tokens) {
  std::vector<TokenSum> kinds(kKindNames.size());
  for (const auto& [id, sum] : losses.by_token) kinds[static_cast<size_t>(FindTokenKind(tokens, id))].Add(sum);
  return kinds;
}

std::string KindsHtml(const TokenLosses* before, const TokenLosses& after, const ReportTokens& tokens) {
  const double total = Total(after).loss;
  const std::vector<TokenSum> kinds = SumKinds(after, tokens);
  const std::vector<TokenSum> earlier = before != nullptr ? SumKinds(*before, tokens) : std::vector<TokenSum>();
  std::vector<std::vector<std::string>> rows;
  if (after.first.tokens > 0)
    rows.push_back(LossRow("beginning of an answer", before != nullptr ? &before->first : nullptr, after.first, total));
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k].tokens > 0)
      rows.push_back(LossRow(kKindNames[k], before != nullptr ? &earlier[k] : nullptr, kinds[k], total));
  }
  return StrCat("<div><h3>Loss by kind of token</h3>\n", LossTable("token", rows), "</div>\n");
}

std::vector<TokenSum> SumBuckets(const TokenLosses& losses) {
  std::vector<TokenSum> buckets;
  int64_t end = kFirstBucket;
  for (size_t p = 0; p < losses.by_position.size(); ++p) {
    while (static_cast<int64_t>(p) >= end) end *= 4;
    const auto bucket =
        static_cast<size_t>(std::lround(std::log(static_cast<double>(end) / kFirstBucket) / std::log(4)));
    if (buckets.size() <= bucket) buckets.resize(bucket + 1);
    buckets[bucket].Add(losses.by_position[p]);
  }
  return buckets;
}

std::string PositionsHtml(const TokenLosses* before, const TokenLosses& after) {
  const double total = Total(after).loss;
  const std::vector<TokenSum> buckets = SumBuckets(after);
  std::vector<TokenSum> earlier = before != nullptr ? SumBuckets(*before) : std::vector<TokenSum>();
  earlier.resize(buckets.size());
  std::vector<std::vector<std::string>> rows;
  int64_t begin = 1, end = kFirstBucket;
  for (size_t b = 0; b < buckets.size(); ++b, begin = end, end *= 4) {
    if (buckets[b].tokens > 0)
      rows.push_back(
          LossRow(StrCat(begin, "–", end - 1), before != nullptr ? &earlier[b] : nullptr, buckets[b], total));
  }
  return StrCat("<div><h3>Loss by position in the sample</h3>\n", LossTable("position", rows), "</div>\n");
}

// Lists the tokens with the greatest sums of losses.
std::string TokensHtml(const TokenLosses* before, const TokenLosses& after, const ReportTokens* tokens) {
  std::vector<std::pair<int64_t, TokenSum>> order(after.by_token.begin(), after.by_token.end());
  std::ranges::stable_sort(order, std::greater(), [](const auto& entry) { return entry.second.loss; });
  order.resize(std::min<size_t>(order.size(), kMostTokens));
  const std::vector<std::string> names = tokens != nullptr ? tokens->text.VisibleNames() : std::vector<std::string>();
  const double total = Total(after).loss;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [id, sum] : order) {
    const TokenSum* earlier = nullptr;
    if (before != nullptr && before->by_token.contains(id)) earlier = &before->by_token.at(id);
    rows.push_back(LossRow(id < std::ssize(names) ? names[id] : StrCat(id), earlier, sum, total));
  }
  return StrCat("<div><h3>Tokens with most of the loss, of ", FormatWithCommas(std::ssize(after.by_token)), "</h3>\n",
                LossTable("token", rows), "</div>\n");
}

// Makes line ends visible.
std::string VisibleLines(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", "↵\n"}}); }

// Returns a table of texts, which keep their line ends.
std::string TextTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table class=\"texts\">\n<thead><tr>";
  for (const std::string& name : header) StrAppend(&html, "<th>", EscapeHtml(name), "</th>");
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (const std::string& text : row) StrAppend(&html, "<td>", EscapeHtml(text), "</td>");
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string AnswerText(const SampleAnswer& answer) { return answer.answer + (answer.ended ? "" : "…"); }

}  // namespace

TokenKind FindTokenKind(const ReportTokens& tokens, int64_t id) {
  if (std::ranges::find(tokens.end, id) != tokens.end.end()) return TokenKind::kEnd;
  const std::vector<std::string>& names = tokens.text.names();
  const std::string name = id >= 0 && id < std::ssize(names) ? names[id] : "";
  const std::string text = tokens.text.Join(std::array{id});
  if (name == text && IsSpecialName(name)) return TokenKind::kSpecial;
  if (FindInvalidUtf8(text) != std::string::npos) return TokenKind::kCharacterPart;
  if (AllHave(text, kSpace)) return TokenKind::kSpace;
  if (AllHave(text, kSpace | kDecimal)) return TokenKind::kNumber;
  if (AllHave(text, kSpace | kPunctuation | kSymbol)) return TokenKind::kPunctuation;
  const bool continues = tokens.text.marks_beginnings() ? !AllHave(text.substr(0, 1), kSpace) : name.starts_with("##");
  return continues ? TokenKind::kWordPart : TokenKind::kWord;
}

std::string TokenLossesHtml(const TokenLosses* before, const TokenLosses& after, const ReportTokens* tokens) {
  std::string html = "<div class=\"plots\">\n";
  if (tokens != nullptr) html += KindsHtml(before, after, *tokens);
  return html + PositionsHtml(before, after) + TokensHtml(before, after, tokens) + "</div>\n";
}

namespace {

// Appends spans of text: grey ones without a loss, and ones whose background shows it.
class LossSpans {
 public:
  void Add(const std::string& html, std::optional<double> loss) {
    constexpr double kGreatLoss = 8;  // has the strongest color
    if (!loss.has_value()) {
      grey_ += html;
      return;
    }
    FlushGrey();
    absl::StrAppendFormat(
        &html_, "<span title=\"loss %.2f\" style=\"background:color-mix(in srgb, var(--c1) %.0f%%, transparent)\">",
        *loss, 70 * std::min(*loss / kGreatLoss, 1.0));
    StrAppend(&html_, html, "</span>");
  }
  std::string Take() {
    FlushGrey();
    return std::move(html_);
  }

 private:
  void FlushGrey() {
    if (!grey_.empty()) StrAppend(&html_, "<span class=\"soft\">", std::exchange(grey_, ""), "</span>");
  }

  std::string html_, grey_;
};

}  // namespace

std::string LossTextHtml(const Dataset& data, const SampleResult& result, const TokenText& tokens) {
  const auto ids = ReadBlockColumn(data, result.sample, BlockRole::kIds);
  const auto mask = ReadBlockColumn(data, result.sample, BlockRole::kMask);
  if (!ids.ok() || !mask.ok()) return "";
  const int64_t all = std::ranges::find(*mask, 0) - mask->begin(), size = std::min(all, kMostShown);
  LossSpans spans;
  std::vector<int64_t> group;  // tokens of one character
  std::optional<double> loss;  // the greatest one of the group
  for (int64_t k = 0; k < size; ++k) {
    group.push_back((*ids)[k]);
    const bool labelled = k > 0 && k <= std::ssize(result.losses) && result.labels[k - 1] >= 0;
    if (labelled) loss = std::max<double>(loss.value_or(0), result.losses[k - 1]);
    const std::string text = tokens.Join(group);
    if (FindInvalidUtf8(text) != std::string::npos && group.size() < 4 && k + 1 < size) continue;
    spans.Add(EscapeHtml(VisibleLines(text)), loss);
    group.clear(), loss.reset();
  }
  return StrCat("<p class=\"loss\">", spans.Take(), all > size ? " …" : "", "</p>");
}

std::string AnswersHtml(const std::vector<SampleAnswer>& answers) {
  if (answers.empty()) return "";
  const int64_t last = answers.back().step;
  std::vector<std::vector<std::string>> rows, changes;
  for (const SampleAnswer& a : answers) {
    if (a.step == last) rows.push_back({VisibleLines(a.prompt), AnswerText(a), a.has_reference ? a.reference : "–"});
    if (a.number == 0 && (changes.empty() || changes.back()[1] != AnswerText(a)))
      changes.push_back({FormatWithCommas(a.step), AnswerText(a)});
  }
  while (std::ssize(changes) > kMostChanges) {  // thins the middle
    for (size_t i = 1; i + 1 < changes.size(); ++i) changes.erase(changes.begin() + static_cast<ptrdiff_t>(i));
  }
  return StrCat("<p class=\"soft\">With the weights of update ", FormatWithCommas(last),
                "; … where an answer reached its limit of tokens.</p>\n",
                TextTable({"prompt", "answer", "reference"}, rows), "<h3>How the first answer has changed</h3>\n",
                TextTable({"update", "answer"}, changes));
}

}  // namespace onnxtrain::cli
