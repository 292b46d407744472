// onnxtrain predict: the model's predictions for every sample, as CSV.
#include <algorithm>

#include "frontend/base/status.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/inference.h"
#include "tools/onnxtrain/predictions.h"
#include "tools/onnxtrain/start_page.h"
#include "tools/onnxtrain/text_file.h"

namespace onnxtrain::cli {
namespace {

absl::StatusOr<std::string> PredictAll(Session& session, const BoundData& bound, const PredictionTable& table) {
  const LoaderOptions load{.batch_size = session.micro_batch(), .num_workers = 1};
  ASSIGN_OR_RETURN(const auto loader, Loader::Create(bound.dataset, bound.feeds, load));
  std::string text = table.Header();
  int64_t done = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Batch> batch, loader->Next());
    if (batch == nullptr) return text;
    Window window;
    for (size_t i = 0; i < bound.feeds.size(); ++i) window.feeds[bound.feeds[i].feed] = batch->tensors[i];
    ASSIGN_OR_RETURN(const Evaluation e, session.Predict(window));
    const auto values = e.outputs.find(table.output());
    const auto count = static_cast<int64_t>(batch->samples.size());
    if (values == e.outputs.end() || values->second.type().rank() < 1 || values->second.shape()[0] != count) {
      return Invalid("output '", table.output(), "' has no row per sample");
    }
    text += table.Rows(values->second, done);
    done += count;
  }
}

}  // namespace

absl::StatusOr<int> RunPredict() {
  ASSIGN_OR_RETURN(const std::string out, OutputFile("preds.csv, or - for stdout"));
  ASSIGN_OR_RETURN(const DataSetup setup, OpenModelAndData(true, false));
  BoundData unlabelled = setup.data.bound;
  unlabelled.label.info = {};
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(*setup.model, unlabelled, setup.loss, BatchFlag(*setup.model)));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*setup.model, unlabelled, options, false));
  const PredictionTable table(look, setup.before.has_value() ? setup.before->classes : std::vector<std::string>());
  Say(table.description());
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(FLAGS_backend));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Create(setup.model, backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const std::string text, PredictAll(*session, unlabelled, table));
  if (out == "-") {
    RETURN_IF_ERROR(Print(text));
    return kDone;
  }
  RETURN_IF_ERROR(WriteTextFile(out, text));
  RETURN_IF_ERROR(Print(PageRow("written", StrCat(out, ": ", WithCommas(unlabelled.dataset->size()), " samples"))));
  return kDone;
}

}  // namespace onnxtrain::cli
