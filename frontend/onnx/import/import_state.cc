#include "frontend/onnx/import/import_state.h"

namespace onnxtrain {
namespace {

constexpr size_t kFoldLimit = size_t{16} << 20;  // bytes of one folded constant

}  // namespace

ImportState::ImportState(const OnnxModel::Parsed& parsed, const ImportOptions& import_options,
                         const LiveGraph& live_graph, const InputShapes& shapes, std::vector<std::string>* import_notes)
    : model(parsed),
      options(import_options),
      live(live_graph),
      types(options.float_type, options.conformance, HasDoubleWeights(parsed.graph)),
      builder(&graph),
      weights(model.graph, live, types, options.constant_factors, &builder),
      filled_weights(model.graph, live, types),
      known(&builder, &weights, !options.conformance),
      batch_unfixer(shapes.fixed_batch(), shapes.batch(), &builder, &known, import_notes),
      symbols(&builder, &weights, &errors),
      top{.graph = &model.graph, .opsets = &model.opsets} {
  // Conformance cases are to be computed by the backend, constants or not.
  if (!options.conformance) builder.set_fold_limit(kFoldLimit);
}

}  // namespace onnxtrain
