#include "tools/onnxtrain/report/exported_graphs.h"

#include "frontend/base/strings.h"
#include "optim/record/telemetry/format.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {

std::string DescribeGraphs(const ExportedGraphs& exported) {
  std::string text;
  for (const ExportedGraph& graph : exported.graphs) {
    const char* what = graph.updates ? ": loss, new weights and new moments" : ": loss and gradients";
    const std::string batch =
        graph.batch == 0 ? "of any size" : StrCat("of ", FormatWithCommas(graph.batch), " samples");
    const std::string why = graph.why.empty() ? "" : StrCat(" (", graph.why, ")");
    text += PageRow("written", StrCat(graph.path, what, " of batches ", batch, why));
  }
  return text;
}

}  // namespace onnxtrain::cli
