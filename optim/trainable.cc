#include "optim/trainable.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

bool Glob(const std::string& pattern, const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

// "encoder.layer.0.attention.query.weight" lies in the modules "encoder", "encoder.layer", …
bool MatchesModule(const std::string& pattern, const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (Glob(pattern, name.substr(0, dot))) return true;
  }
  return false;
}

bool Matches(const std::string& pattern, const ImportedWeight& w) {
  return Glob(pattern, w.name) || Glob(pattern, w.consumer) || MatchesModule(pattern, w.name);
}

class Globs {
 public:
  Globs(std::string_view flag, const std::vector<std::string>& patterns) : flag_(flag), patterns_(patterns), hits_(patterns.size()) {}

  // The first pattern that matches, or null. Every pattern that matches is counted.
  const std::string* Match(const ImportedWeight& w) {
    const std::string* first = nullptr;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!Matches(patterns_[i], w)) continue;
      ++hits_[i];
      if (first == nullptr) first = &patterns_[i];
    }
    return first;
  }

  absl::Status CheckAllHit() const {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (hits_[i] == 0) return Invalid("--", flag_, " ", patterns_[i], ": matches no weight, node or module (see inspect)");
    }
    return absl::OkStatus();
  }

 private:
  std::string_view flag_;
  const std::vector<std::string>& patterns_;
  std::vector<int> hits_;
};

std::string ReasonNotTrainable(InputKind kind, const Type& type) {
  if (kind == InputKind::kState) return "running statistics";
  if (!IsFloat(type.dtype)) return "not a floating-point tensor";
  return "reaches no output through differentiable operators";
}

}  // namespace

absl::StatusOr<std::vector<WeightDecision>> DecideTrainable(ImportedModel* model, const TrainableSpec& spec) {
  Globs train("train", spec.train), freeze("freeze", spec.freeze);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < model->graph.inputs().size(); ++i) index[model->graph.inputs()[i].name] = i;
  std::vector<WeightDecision> decisions;
  for (const ImportedWeight& w : model->weights) {
    const size_t input = index.at(w.name);
    const InputKind kind = model->graph.inputs()[input].kind;
    WeightDecision d{.name = w.name, .type = w.value.type(), .consumer = w.consumer};
    const std::string* wanted = train.Match(w);
    const std::string* frozen = freeze.Match(w);
    if (kind != InputKind::kParameter) {
      d.why = ReasonNotTrainable(kind, d.type);
    } else if (frozen != nullptr) {
      d.why = StrCat("matches --freeze ", *frozen);
    } else if (!spec.train.empty() && wanted == nullptr) {
      d.why = "matches no --train";
    } else {
      d.trained = true;
      d.why = wanted != nullptr ? StrCat("matches --train ", *wanted) : "trained by default";
    }
    if (kind == InputKind::kParameter && !d.trained) model->graph.SetInputKind(input, InputKind::kFrozen);
    decisions.push_back(std::move(d));
  }
  RETURN_IF_ERROR(train.CheckAllHit());
  RETURN_IF_ERROR(freeze.CheckAllHit());
  return decisions;
}

}  // namespace onnxtrain
