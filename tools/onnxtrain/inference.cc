#include "tools/onnxtrain/inference.h"

#include "frontend/base/status.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/output_folder.h"

namespace onnxtrain::cli {

absl::StatusOr<DataSetup> OpenModelAndData(bool eval_split, bool want_label) {
  DataSetup setup;
  ASSIGN_OR_RETURN(setup.model, LoadKnownModel());
  if (!Given("data")) return Invalid("--data: missing (which file of samples?)");
  ASSIGN_OR_RETURN(setup.before, ReadPreprocess(FLAGS_model));
  if (setup.before.has_value())
    Say(StrCat("reading ", PreprocessPath(FLAGS_model), ", which was written with this model"));
  ASSIGN_OR_RETURN(setup.loss, LossFlags(*setup.model, setup.before));
  const DataRequest request{.path = FLAGS_data,
                            .flag = "data",
                            .eval_split = eval_split && HasEvalFiles(FLAGS_data),
                            .want_label = want_label};
  ASSIGN_OR_RETURN(setup.data, OpenData(*setup.model, setup.before, request, setup.loss));
  for (const std::string& note : setup.data.bound.notes) Say(note);
  if (!setup.data.normalize.empty()) Say(StrCat("pixels normalized: ", setup.data.normalize, " (--normalize)"));
  return setup;
}

absl::StatusOr<std::string> OutputFile(const char* example) {
  if (!Given("out")) return Invalid("--out: missing (which file is written, ", example, "?)");
  std::vector<std::string> inputs = {FLAGS_model};
  for (const std::string& path : {FLAGS_data, FLAGS_weights}) {
    if (!path.empty()) inputs.push_back(path);
  }
  RETURN_IF_ERROR(Annotate(CheckNotInput(FLAGS_out, inputs), "--out "));
  return FLAGS_out;
}

}  // namespace onnxtrain::cli
