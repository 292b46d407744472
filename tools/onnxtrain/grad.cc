// onnxtrain grad: loss, outputs and every gradient of one window of samples, for comparison with other frameworks.
#include "frontend/base/status.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/inference.h"
#include "tools/onnxtrain/named_results.h"
#include "tools/onnxtrain/memory_flags.h"
#include "tools/onnxtrain/start_page.h"

namespace onnxtrain::cli {

absl::StatusOr<int> RunGrad() {
  ASSIGN_OR_RETURN(const std::string out, OutputFile("g.npz"));
  ASSIGN_OR_RETURN(const DataSetup setup, OpenModelAndData(false, true));
  const int64_t samples = Given("batch_size") ? std::min(FLAGS_batch_size, setup.data.bound.dataset->size())
                                              : setup.data.bound.dataset->size();
  ASSIGN_OR_RETURN(const std::optional<int64_t> micro, MicroBatchFlag());
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(*setup.model, setup.data.bound, setup.loss, micro.value_or(samples)));
  options.optimizer.rule = "sgd";  // keeps no moments: there is no update
  ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(*setup.model, setup.data.bound, options, true));
  RETURN_IF_ERROR(CheckLossFlags(look.loss));
  ASSIGN_OR_RETURN(const TrainData data, MakeTrainData(setup.data.bound, look.loss, setup.loss.ignore_index));
  Say(look.loss.explanation);
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(FLAGS_backend));
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Create(setup.model, backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const Window window, ReadWindow(data, samples));
  ASSIGN_OR_RETURN(const GradientResult result, session->Gradients(window));
  RETURN_IF_ERROR(WriteNpz(out, NamedResults(result)));
  const char* outputs = result.outputs.size() == 1 ? " output, " : " outputs, ";
  const std::string written = StrCat(out, ": loss, ", result.outputs.size(), outputs, result.gradients.size(), " gradients of ",
                                     WithCommas(samples), " samples");
  RETURN_IF_ERROR(Print(PageRow("loss", StrCat(Short(result.loss), " (", look.loss.name, ")")) + PageRow("written", written)));
  return kDone;
}

}  // namespace onnxtrain::cli
