#include "tools/onnxtrain/report/html_page.h"

#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain::cli {
namespace {

constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --back: #ffffff; --card: #f6f7f9; --text: #1c2024; --soft: #60646c; --line: #d9dce1;
  --c0: #2f6fbb; --c1: #d9622b; --c2: #3a8f5c; --c3: #8a4fbf; --c4: #b8891a; --c5: #c0396b; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --card: #1f2227; --text: #e8eaed; --soft: #9aa0a8;
  --line: #363b43; --c0: #6aa5ea; --c1: #f09060; --c2: #6cc492; --c3: #bd8cf0; --c4: #dcb650; --c5: #f07ba5; } }
body { margin: 0 auto; max-width: 1180px; padding: 24px; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 34px 0 10px; }
h3 { font-size: 15px; margin: 16px 0 6px; } p { margin: 6px 0; } .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(145px, 1fr)); gap: 12px; margin: 18px 0 6px; }
.card { background: var(--card); border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 21px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 14px; }
.plot { width: 100%; background: var(--card); border-radius: 8px; }
svg text { fill: var(--text); font-size: 12px; } svg .title { font-size: 14px; font-weight: 600; }
svg .tick { fill: var(--soft); font-size: 11px; } svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg polyline { fill: none; stroke-width: 1.7; stroke-linejoin: round; } svg .faint { opacity: .3; stroke-width: 1; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
svg .f0 { fill: var(--c0); } svg .f1 { fill: var(--c1); } svg .f2 { fill: var(--c2); }
svg .f3 { fill: var(--c3); } svg .f4 { fill: var(--c4); } svg .f5 { fill: var(--c5); }
.b0 { background: var(--c0); } .b1 { background: var(--c1); } .b2 { background: var(--c2); }
.b3 { background: var(--c3); } .b4 { background: var(--c4); } .b5 { background: var(--c5); }
.split { display: flex; height: 22px; border-radius: 6px; overflow: hidden; margin: 8px 0; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin: 0 5px 0 12px; }
.scroll { overflow-x: auto; } .scroll td, .scroll th { white-space: nowrap; }
 table { border-collapse: collapse; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; } td, th { padding: 3px 12px 3px 0; vertical-align: top; }
.numbers td:not(:first-child), .numbers th:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums; }
tbody tr { border-top: 1px solid var(--line); }
code, pre { font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { background: var(--card); border-radius: 8px; padding: 12px; overflow-x: auto; }
.confusion td { padding: 2px 7px; text-align: right; min-width: 26px; border: 1px solid var(--back); }
.confusion th { padding: 2px 7px; font-size: 12px; }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; }
.worst figure { margin: 0; background: var(--card); border-radius: 8px; padding: 10px; font-size: 13px;
  overflow-wrap: anywhere; }
.worst .text { margin: 0 0 6px; max-height: 150px; overflow: hidden; }
.worst img { width: 100%; image-rendering: pixelated; border-radius: 4px; background: var(--line); }
.worst .maps { display: grid; grid-template-columns: 1fr 1fr; gap: 4px; margin: 6px 0;
  font-size: 11px; color: var(--soft); }
.texts td, .loss { white-space: pre-wrap; overflow-wrap: anywhere; } .texts { width: 100%; }
.texts td { padding-bottom: 8px; } .texts td:first-child { max-width: 360px; color: var(--soft); }
.loss { background: var(--card); border-radius: 8px; padding: 10px 12px; }
.loss span { border-radius: 3px; }
.warn { border-left: 4px solid var(--c1); padding: 4px 12px; background: var(--card); border-radius: 4px; }
)";

// Replaces what is not UTF-8, as JSON's writer does.
std::string ValidUtf8(std::string_view text) {
  using Json = nlohmann::json;
  const std::string quoted = WriteJson(Json(text));
  return Json::parse(quoted).get<std::string>();
}

std::string EscapeByte(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
      return control || c == 0x7f ? "\xef\xbf\xbd" : std::string(1, c);
  }
}

std::string Cells(const std::vector<std::string>& texts, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& text : texts) StrAppend(&html, "<", tag, ">", EscapeHtml(text), "</", tag, ">");
  return html + "</tr>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : ValidUtf8(text)) escaped += EscapeByte(c);
  return escaped;
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return StrCat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" ",
                "content=\"width=device-width, initial-scale=1\">\n<title>", EscapeHtml(title), "</title>\n<style>",
                kStyle, "</style>\n</head>\n<body>\n", body, "</body>\n</html>\n");
}

std::string Section(const std::string& heading, const std::string& body) {
  return body.empty() ? "" : StrCat("<section>\n<h2>", EscapeHtml(heading), "</h2>\n", body, "</section>\n");
}

std::string HtmlTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                      bool numbers) {
  std::string html = StrCat("<div class=\"scroll\"><table", numbers ? " class=\"numbers\"" : "", ">\n");
  if (!header.empty()) StrAppend(&html, "<thead>", Cells(header, "th"), "</thead>\n");
  html += "<tbody>\n";
  for (const std::vector<std::string>& row : rows) html += Cells(row, "td");
  return html + "</tbody></table></div>\n";
}

}  // namespace onnxtrain::cli
