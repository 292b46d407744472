// op_table: writes docs/reference/operators.md to stdout.
//
//   build/release/bin/op_table > docs/reference/operators.md
#include <cstdio>
#include <string>

#include "tools/op_table/op_table.h"

int main() {
  const auto text = onnxtrain::OpTablePage();
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", std::string(text.status().message()).c_str());
    return 1;
  }
  std::fwrite(text->data(), 1, text->size(), stdout);
}
