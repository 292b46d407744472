// A self-contained HTML page: no scripts, nothing from elsewhere, light and dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain::cli {

// Replaces & < > " and control characters; invalid UTF-8 becomes U+FFFD.
std::string EscapeHtml(std::string_view text);

// The whole page. `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// <section> with a heading; "" where `body` is empty.
std::string Section(const std::string& heading, const std::string& body);

// A table of texts, which are escaped. Columns from the second on are right-aligned where `numbers`.
std::string HtmlTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                      bool numbers);

}  // namespace onnxtrain::cli
