#include "optim/plan/init_from.h"

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "optim/record/checkpoint/resume.h"

namespace onnxtrain {
namespace {

// Names a weight that both have, as an example of what differs.
absl::Status NothingFits(const std::string& path, const std::map<std::string, HostTensor>& weights,
                         const OnnxModel& model) {
  for (const auto& [name, value] : weights) {
    const HostTensor* stored = model.Initializer(name);
    if (stored == nullptr) continue;
    return Invalid(path, ": no weight has the shape that it has in ", model.path(), ": '", name, "' is ",
                   ToString(value.shape()), " there and ", ToString(stored->shape()), " in the model");
  }
  return Invalid(path, ": holds no weight of ", model.path());
}

}  // namespace

absl::StatusOr<std::shared_ptr<const OnnxModel>> InitFromCheckpoint(const std::shared_ptr<const OnnxModel>& model,
                                                                    const std::string& path,
                                                                    std::vector<std::string>* lines) {
  if (path.ends_with(".onnx"))
    return Invalid("`init_from` ", path, ": is a model, no checkpoint (`model` starts from the weights of a model)");
  auto opened = OpenResumePoint(path);
  if (!opened.ok()) return Annotate(opened.status(), "`init_from`: ");
  const ResumePoint& point = *opened;
  RETURN_IF_ERROR(CheckUnit(point));
  ASSIGN_OR_RETURN(const auto weights, ReadWeights(point.checkpoint, point.state.config.ema_decay > 0));
  ModelEdits edits;
  std::vector<std::string> left_out;
  for (const auto& [name, value] : weights) {
    const HostTensor* stored = model->Initializer(name);
    if (stored != nullptr && stored->shape() == value.shape()) {
      edits.tensors[name] = value.CastTo(stored->dtype());
    } else {
      left_out.push_back(name);
    }
  }
  if (edits.tensors.empty()) return NothingFits(point.checkpoint.path, weights, *model);
  edits.lines.push_back(StrCat(edits.tensors.size(), " weights were those of a checkpoint before training"));
  lines->push_back(StrCat("initialized: ", edits.tensors.size(), " weights from ", point.checkpoint.path));
  if (!left_out.empty()) lines->push_back(StrCat("left out: ", absl::StrJoin(left_out, ", ")));
  return model->LoadEdited(std::move(edits));
}

}  // namespace onnxtrain
