#include "optim/optimize.h"

#include "frontend/passes/cse.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/fold_constants.h"
#include "frontend/passes/pass.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {
namespace {

const Pass kCleanUp[] = {
    {"fold_constants", [](const Graph& g) { return FoldConstants(g); }},
    {"simplify", Simplify},
    {"cse", Cse},
    {"dce", [](const Graph& g) -> absl::StatusOr<Graph> { return Dce(g); }},
};

}  // namespace

absl::StatusOr<Graph> OptimizeForward(Graph graph) { return RunToFixedPoint(std::move(graph), kCleanUp); }

absl::StatusOr<Graph> OptimizeProgram(Graph graph) { return RunToFixedPoint(std::move(graph), kCleanUp); }

}  // namespace onnxtrain
