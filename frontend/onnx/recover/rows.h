// Declares the functions of the rows of the table (parametrizations.h), by file, and others that import and export
// call. `Match…` finds weights and leaves the graph unchanged, `Build…` inserts the trained weights into the graph,
// `Write…` computes the stored tensors from the trained ones.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "frontend/onnx/write/lazy_tensor.h"
#include "frontend/ops/import/mixture.h"
#include "frontend/ops/quantize_blocks.h"

namespace onnxtrain {

// weight_names.cc reads the metadata of torch.export. Its exporter merges initializers of equal bytes: in a fresh model
// all scales of LayerNorm are one. The fx node of each reader names the parameters that it was translated from. Weights
// that the program shares stay shared. Zero biases that the exporter removed become weights again.
absl::StatusOr<WeightRecords> MatchOrigins(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchMergedWeights(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchRemovedBiases(WeightIndex* index);
void BuildOrigin(const WeightRecord& record, WeightIndex* index);
void BuildSplit(const WeightRecord& record, WeightIndex* index);
absl::Status WriteSplit(const WeightRecord& record, StoredWeights* weights);

// merged_nodes.cc splits nodes. PyTorch's exporter merges fx nodes that read one value and weights of equal bytes: in a
// fresh model, two normalizations of the input of parallel branches (GPT-NeoX, Falcon), or two tokens of zeros of one
// module (DeiT). The readers still name their own fx nodes. Each fx node gets a copy of the node, which reads the
// merged initializers until they are split.
absl::StatusOr<WeightRecords> MatchMergedNodes(WeightIndex* index);
// Matches nodes that split a fresh parameter whose parts several modules read: the biases of the attentions to the
// memory of a decoder. The copies get fx nodes with the names of the modules.
absl::StatusOr<WeightRecords> MatchMergedParts(WeightIndex* index);
void BuildMergedNodes(const WeightRecord& record, WeightIndex* index);
absl::Status WriteMergedNodes(const WeightRecord& record, StoredWeights* weights);

// position_tables.cc finds stored tensors (initializers, outputs of Constants and of Identities over initializers) that
// only serve to rotate by positions, whatever their values are:
//   - tensors from which a sine and a cosine of positions are computed without data of a user;
//   - the caches of RotaryEmbedding and GroupQueryAttention;
//   - tables c and s with constant c² + s² that rotate data, x·c ± y·s.
// Weights of Fourier features, which multiply data, and of layers with sine activations do not match.
absl::StatusOr<WeightRecords> MatchPositionTables(WeightIndex* index);

// running_statistics.cc finds batch normalizations that exporters of JAX and TensorFlow write as arithmetic. The
// variance is the stored vector in √(variance + ε); the mean is that in (x − mean)·s and x·s + (shift − mean·s), where
// s contains that root. Training would change both and could make the variance negative.
absl::StatusOr<WeightRecords> MatchRunningStatistics(WeightIndex* index);
// Matches the mean in (x − mean) · scale + shift, where the exporter has computed scale and shift.
absl::StatusOr<WeightRecords> MatchMeans(WeightIndex* index);

// The next three files serve models without the metadata of torch.export.

// formula_numbers.cc finds stored numbers that programs compute with and do not train: constants of tracers, factors,
// masks, grids and frequencies. Numbers of one element that are parameters by their names are parameters.
absl::StatusOr<WeightRecords> MatchTracedConstants(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFrequencies(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchKnownNames(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchNumbers(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFixedCopies(WeightIndex* index);

// standardizers.cc finds numbers that shift and scale inputs.
absl::StatusOr<WeightRecords> MatchStandardizers(WeightIndex* index);

// module_weights.cc names weights after the modules that read them, and splits scales and biases of normalizations and
// biases of products in different modules, which are different weights. Copies that calls of one module read are
// joined.
absl::StatusOr<WeightRecords> MatchSharedCopies(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchModules(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFreshWeights(WeightIndex* index);
void BuildSharedCopy(const WeightRecord& record, WeightIndex* index);

// quantized_weights.cc finds the scales of weights that only integer products read and adds them as inputs of these
// nodes. It also finds integers that represent float weights, which the import of the node that scales them trains with
// straight-through gradients.
absl::StatusOr<WeightRecords> MatchProductScales(WeightIndex* index);
void BuildProductScale(const WeightRecord& record, WeightIndex* index);
absl::StatusOr<WeightRecords> MatchQuantizedWeights(WeightIndex* index);
absl::Status WriteQuantized(const WeightRecord& record, StoredWeights* weights);

// Matches matrices of integers that the graph reads in their stored form: packed numbers, and others if low-rank
// updates train in their place. They have no float weight.
absl::StatusOr<WeightRecords> MatchStoredNumbers(WeightIndex* index);
// Returns their initializers, with those of their scales and zero points.
std::vector<std::string> ListStoredNumbers(const ParsedGraph& graph);

// untrained_parts.cc finds padding rows of embedding tables. torch.export writes the row into the metadata. In other
// files of PyTorch it is the only zero row among the first and last ones of the table: PyTorch initializes it to zeros.
// Sets the attribute kPaddingRow (frontend/ops/import/import_util.h) of Gather nodes.
absl::StatusOr<WeightRecords> MatchPaddingRows(WeightIndex* index);

// Matches recurrent layers of frameworks that have one bias where ONNX has two and store zeros for the other; training
// both would double the learning rate. PyTorch has both. Sets the attribute kSingleBias
// (frontend/ops/import/onnx_import.h).
absl::StatusOr<WeightRecords> MatchSingleBiases(WeightIndex* index);
void BuildMarkedNodes(const WeightRecord& record, WeightIndex* index);

// parameter_functions.cc finds initializers that the exporter computed as f(p) of one parameter p: the temperature of
// contrastive models, the rates of state spaces, gates. The argument p is trained, as in the module.
absl::StatusOr<WeightRecords> MatchFunctions(WeightIndex* index);
void BuildFunction(const WeightRecord& record, WeightIndex* index);
absl::Status WriteFunction(const WeightRecord& record, StoredWeights* weights);

// row_copies.cc finds initializers that the exporter gathered from tables of parameters, according to the metadata or
// to names that older exporters generate: a relative position has one bias, wherever it occurs, and all tokens of a
// sequence have the embedding of one token type. The trained table has one copy of each row, and a Gather reads it.
// Rows along any axis are copies if their bytes are equal and not all numbers are. Identity nodes over such an
// initializer become separate tables. ALiBi's multiples of slopes become constants.
//
// Biases of equal numbers, as in a fresh model, may have been gathered by the offsets of relative positions. This is
// assumed if they are added to attention scores and their shape fits.
absl::StatusOr<WeightRecords> MatchRepeatedRows(WeightIndex* index);
void BuildRepeatedRows(const WeightRecord& record, WeightIndex* index);
absl::Status WriteRepeatedRows(const WeightRecord& record, StoredWeights* weights);

// Returns true if only the shape and the readers of a bias, whose rows are equal, suggest that it was gathered.
bool IsAssumed(const RowCopies& copies, const HostTensor& weight);

// joined_weights.cc splits concatenations of which the file stores only the result: heads that contain the transposed
// embedding, and biases of queries, keys and values without one for the keys. The parts are trained.
absl::StatusOr<WeightRecords> MatchJoinedParts(WeightIndex* index);
void BuildJoinedParts(const WeightRecord& record, WeightIndex* index);
absl::Status WriteJoinedParts(const WeightRecord& record, StoredWeights* weights);

// Returns the initializer as the file stores it, joined from the weights of the graph.
HostTensor JoinStored(const JoinedWeight& joined, const ParsedGraph& graph);

// weight_ties.cc finds initializers that are one weight. One of each pair remains, and a node computes the other from
// it. Exporters fold the 1 − p of programs that blend by a parameter, p·a + (1 − p)·b: each initializer that the
// exporter computed and that equals 1 − p for exactly one named parameter becomes a node over it. Numbers that may be
// equal by chance, such as those of p = 1 and p = 0, stay separate.
absl::StatusOr<WeightRecords> MatchGivenTies(WeightIndex* index);  // fails on tensors that are no weights or differ
absl::StatusOr<WeightRecords> MatchStoredTwice(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchHeads(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchComplements(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchComputedTwice(WeightIndex* index);
void BuildTie(const WeightRecord& record, WeightIndex* index);
void BuildComplement(const WeightRecord& record, WeightIndex* index);
absl::Status WriteTie(const WeightRecord& record, StoredWeights* weights);

// Returns the value of the initializer `tie.copy`, computed from the weight.
LazyTensor MakeCopy(const WeightTie& tie, const LazyTensor& weight);

// low_rank.cc inserts the updates that ModelEdits requests. The export merges them into their weights, W + scale·B·A,
// or adds them as nodes if the weights are quantized (write/low_rank_nodes.h).
absl::StatusOr<WeightRecords> MatchLowRank(WeightIndex* index);
void BuildLowRank(const WeightRecord& record, WeightIndex* index);
absl::Status WriteLowRank(const WeightRecord& record, StoredWeights* weights);
bool IsQuantized(const LowRankUpdate& update);
// Returns the input of a product that is its bias.
size_t FindBiasInput(std::string_view op_type);

// integer_products.cc finds products x·W of integers. A program quantizes x when it runs (MatMulInteger, which Cast and
// Mul by the scales follow, and com.microsoft's operators for them), or x and the result are integers already
// (QLinearMatMul, QGemm).
struct Encoding {
  std::string scale, zero;  // names; scale "": floats
};
struct NodeParts {
  std::string_view op_type;
  std::vector<std::string> inputs;
};
std::optional<NodeParts> PartsOf(const ParsedNode* node);                            // nullopt: null
using FindNode = std::function<std::optional<NodeParts>(const std::string& value)>;  // the producer of a value
struct IntegerProduct {
  std::string x, weight;    // x, and the integers of W
  std::string product;      // the output of the node that multiplies them
  Encoding x_form, y_form;  // how x and the result are quantized
};
// Returns the product whose result the value is.
std::optional<IntegerProduct> FindIntegerProduct(const std::string& value, const FindNode& find);

// expert_products.cc finds products with matrices of a stack W [experts, …, …]: the whole stack, or those that Gather
// or GatherND select along the first axis, as exports of mixtures of experts compute them.
using FindProducer = std::function<const ParsedNode*(const std::string& value)>;
using FindTensor = std::function<const HostTensor*(const std::string& value)>;  // stored tensors; null: none
struct ExpertProduct {
  std::string weight;
  size_t operand = 1;                   // the input of the product that holds the matrices
  std::vector<const ParsedNode*> path;  // from that input back to the weight: selections, transposes, identities
  bool transposed = false;              // the path swaps the axes of the matrices
  // Returns true if the matrices are stored as [outputs, inputs].
  bool outputs_first() const { return transposed == (operand == 1); }
};
std::optional<ExpertProduct> FindExpertProduct(const ParsedNode& product, const FindProducer& producer,
                                               const FindTensor& tensor);
// Returns the layer of a MoE or QMoE whose stack is the weight; null for other nodes.
const ExpertLayer* FindMixtureLayer(const ParsedNode& node, const std::string& weight);
// Returns true for a Gather or GatherND along the first axis.
bool SelectsMatrices(const ParsedNode& node, const FindProducer& producer, const FindTensor& tensor);

// stored_blocks.cc reads quantized weights that low-rank updates replace.

// Returns the matrix of a MatMulNBits or DequantizeLinear, sharing the tensors of the graph. Fails on weights that only
// the import can read, such as columns that name their blocks (g_idx).
absl::StatusOr<StoredBlocks> ReadStoredBlocks(const std::string& weight, const ParsedGraph& graph);
// Finds the blocks of the weight of the updates if magnitudes or merging need them.
absl::Status FindBlocks(const WeightIndex& index, LowRankUpdates* parts);
// Quantizes the sum of a weight in the blocks that it was read from.
absl::Status WriteRequantized(const LowRankUpdate& update, const LazyTensor& sum, StoredWeights* weights);

// folded_weights.cc finds weights that an exporter computed from parameters that the file does not contain.

// Returns the operators whose weights are packed into blocks of a few bits, or are integers that no node scales, with
// the number of such nodes: "com.microsoft.MatMulNBits (12)". Empty if there are none.
std::string FindUntrainedWeights(const OnnxModel& model);

// Returns how many nodes of the model hold a BatchNorm that was folded into the convolution or product before it.
int CountFoldedNorms(const OnnxModel& model);

// Returns the weights, in the order of their readers, that PyTorch's older exporter computed from parameters of one
// layer by weight normalization, spectral normalization or another function. Other weights keep the names of
// parameters.
std::vector<std::string> FindFoldedWeights(const OnnxModel& model);

// Returns the scalars, in the order of the file, that PyTorch's older exporter computed and that are not trained,
// although a parameter may be folded into them: a gate, a step. Leaves out √d and 1/√d of attention.
std::vector<std::string> FindFoldedNumbers(const OnnxModel& model);

}  // namespace onnxtrain
