// Groups trained weights by weight decay and learning rate factor: a group is updated as one flat tensor.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/optimizer.h"
#include "optim/step/prepared_models.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

struct UpdateRule {
  double weight_decay = 0;
  double lr_factor = 1;  // of the scheduled rate
  auto operator<=>(const UpdateRule&) const = default;
};

struct WeightGroup {
  std::string name;  // "decay", "plain", with the factor unless it is 1: "plain×10"
  UpdateRule rule;
  std::vector<const WeightDecision*> members;  // in weight order; point into the vector given to GroupWeights
};

// Groups the trained weights, decayed groups first. Fails if a no-decay glob or a rate matches no weight.
absl::StatusOr<std::vector<WeightGroup>> GroupWeights(const OptimizerSpec& spec,
                                                      const std::vector<WeightDecision>& weights);

// Returns the names of the weights that are tables of rows: embeddings, whose rows are gathered, and the layers that
// compute the model's outputs. Their rows belong to tokens or classes.
std::set<std::string> FindTables(const ImportedModel& model);

// Returns the type in which a trained weight is stored: matrices have OptimizerSpec::weight_dtype. Vectors take little
// memory, and small changes of norms and biases matter.
inline DType StoredType(const OptimizerSpec& spec, const Shape& weight, DType dtype) {
  return spec.weight_dtype == DType::kBFloat16 && weight.size() >= 2 ? DType::kBFloat16 : dtype;
}

struct Layer {
  std::string name;  // "encoder.layer.3", "fc"
  std::vector<std::string> weights;
};

// Returns the position of the first node that reads each graph input; INT32_MAX if none does.
std::map<std::string, int32_t> FindFirstReaders(const Graph& graph);

// Groups weights into layers for layer-wise learning rate decay, in the order in which the graph first reads them. A
// layer is a module: its name up to the first number ("layer1.0" of "layer1.0.conv1.weight"), or at most two levels
// ("encoder.embeddings"). A weight outside of any module is grouped by the node that reads it. A module without a
// matrix (a norm between two layers) joins the layer before it.
std::vector<Layer> ListLayers(const PreparedModel& model);

}  // namespace onnxtrain
