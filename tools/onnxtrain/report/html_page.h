// Builds self-contained HTML pages without scripts or external resources, for light and dark mode.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onnxtrain::cli {

// Replaces & < > " and control characters; invalid UTF-8 becomes U+FFFD.
std::string EscapeHtml(std::string_view text);

// Returns a whole page. `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// Returns a <section> with a heading; "" if `body` is empty.
std::string Section(const std::string& heading, const std::string& body);

// Returns a table, and escapes its texts. With `numbers`, columns from the second on are right-aligned.
std::string HtmlTable(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                      bool numbers);

}  // namespace onnxtrain::cli
