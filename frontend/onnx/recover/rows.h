// The functions of the rows of the table (parametrizations.h), by file, and what the import and the export ask for
// beside the table. `Match…` finds weights and leaves the graph as it is, `Build…` puts what is trained into the graph,
// `Write…` makes the stored tensors from the trained ones.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/parametrizations.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// weight_names.cc: the metadata of torch.export. Its exporter merges initializers of equal bytes: in a fresh model all
// scales of LayerNorm are one. The fx node of each reader names the parameters that it was translated from. Weights
// that the program shares are one parameter there and stay one here. Biases that the exporter removed because they
// were zeros are weights again.
absl::StatusOr<WeightRecords> MatchOrigins(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchMergedWeights(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchRemovedBiases(WeightIndex* index);
void BuildOrigin(const WeightRecord& record, WeightIndex* index);
void BuildSplit(const WeightRecord& record, WeightIndex* index);
absl::Status WriteSplit(const WeightRecord& record, StoredWeights* weights);

// merged_nodes.cc: several fx nodes that PyTorch's exporter has made one node because they read one value and weights
// of equal bytes: in a fresh model, two normalizations of the input of parallel branches (GPT-NeoX, Falcon), or two
// tokens of zeros of one module (DeiT). The readers still name the fx node that they were translated from. Each gets a
// copy of the node, which reads the merged initializers until they are split.
absl::StatusOr<WeightRecords> MatchMergedNodes(WeightIndex* index);
// The same where modules read parts of a fresh parameter, which one node takes apart: the biases of the attentions to
// the memory of a decoder. The copies are named as fx nodes of the modules.
absl::StatusOr<WeightRecords> MatchMergedParts(WeightIndex* index);
void BuildMergedNodes(const WeightRecord& record, WeightIndex* index);
absl::Status WriteMergedNodes(const WeightRecord& record, StoredWeights* weights);

// position_tables.cc: stored tensors, by initializer, Constant output or output of an Identity over an initializer,
// that only serve to rotate by positions, whatever their values are:
//   - what both a sine and a cosine of positions are computed from, where no data of a user takes part;
//   - the caches of RotaryEmbedding and GroupQueryAttention;
//   - tables c and s with c² + s² constant that turn data, x·c ± y·s.
// The weights of Fourier features, which multiply data, and of layers with sines as activations are none.
absl::StatusOr<WeightRecords> MatchPositionTables(WeightIndex* index);

// running_statistics.cc: batch normalizations that exporters of JAX and TensorFlow write as arithmetic. The variance is
// a vector behind √(variance + ε); the mean is that in (x − mean)·s and x·s + (shift − mean·s), where s is made of that
// root. Training would move both, the variance below zero.
absl::StatusOr<WeightRecords> MatchRunningStatistics(WeightIndex* index);

// weight_roles.cc: files without the metadata of torch.export, by what the readers of weights do. The scales and biases
// of normalizations and the biases of products in different modules are different weights.
absl::StatusOr<WeightRecords> MatchTracedConstants(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchSharedCopies(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchStandardizers(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchMeans(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFrequencies(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchKnownNames(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchNumbers(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchModules(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFreshWeights(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchFixedCopies(WeightIndex* index);
void BuildSharedCopy(const WeightRecord& record, WeightIndex* index);

// quantized_weights.cc: the scales of weights that only integer products read, which the import looks for behind the
// inputs of these nodes; and integers that stand for float weights, which the import of the node that scales them
// trains with straight-through gradients.
absl::StatusOr<WeightRecords> MatchProductScales(WeightIndex* index);
void BuildProductScale(const WeightRecord& record, WeightIndex* index);
absl::StatusOr<WeightRecords> MatchQuantizedWeights(WeightIndex* index);
absl::Status WriteQuantized(const WeightRecord& record, StoredWeights* weights);

// The same file: matrices of integers that the graph reads as the file stores them. Those of packed numbers always are,
// others where low-rank updates train in their place. They have no float weight.
absl::StatusOr<WeightRecords> MatchStoredNumbers(WeightIndex* index);
// Returns their initializers, with those of their scales and zero points.
std::vector<std::string> ListStoredNumbers(const ParsedGraph& graph);

// padding_rows.cc: rows of embedding tables that stand for padding. torch.export writes the row into the metadata. In
// other files of PyTorch it is the only row of zeros among the first and last ones of the table, where padding tokens
// are: PyTorch initializes it to zeros. Sets the attribute kPaddingRow (frontend/ops/import/import_util.h) of Gather
// nodes.
absl::StatusOr<WeightRecords> MatchPaddingRows(WeightIndex* index);

// single_biases.cc: recurrent layers of frameworks that have one bias where ONNX has two. Those store zeros for the
// other; training both would double the learning rate. PyTorch has both. Sets the attribute kSingleBias
// (frontend/ops/import/onnx_import.h).
absl::StatusOr<WeightRecords> MatchSingleBiases(WeightIndex* index);
void BuildMarkedNodes(const WeightRecord& record, WeightIndex* index);

// parameter_functions.cc: initializers that the exporter computed as f(p) of one parameter p: the temperature of
// contrastive models, the rates of state spaces, gates. The argument p is trained, as in the module.
absl::StatusOr<WeightRecords> MatchFunctions(WeightIndex* index);
void BuildFunction(const WeightRecord& record, WeightIndex* index);
absl::Status WriteFunction(const WeightRecord& record, StoredWeights* weights);

// row_copies.cc: initializers that the exporter looked up in tables of parameters, as the metadata says, or with names
// that older exporters generate: a relative position has one bias, wherever it occurs, and all tokens of a sequence
// have the embedding of one token type. A table with one copy of each row is trained, which a Gather reads. Rows are
// the same by their bytes, along any axis; equal numbers prove nothing. Identity nodes over such an initializer become
// tables of their own. ALiBi's multiples of slopes become constants.
//
// Biases of which all numbers are equal, as in a fresh model, may have been looked up by the offsets of relative
// positions. Those that are added to attention scores and have the shape for it are taken for that.
absl::StatusOr<WeightRecords> MatchRepeatedRows(WeightIndex* index);
void BuildRepeatedRows(const WeightRecord& record, WeightIndex* index);
absl::Status WriteRepeatedRows(const WeightRecord& record, StoredWeights* weights);

// Returns true if nothing but the shape and the readers of a bias tell that its rows, which are equal, were looked up.
bool IsAssumed(const RowCopies& copies, const HostTensor& weight);

// joined_weights.cc: what an exporter has concatenated, in files that keep the whole alone: heads of which a part is
// the transposed embedding, and biases of queries, keys and values of which the keys have none. The parts are trained.
absl::StatusOr<WeightRecords> MatchJoinedParts(WeightIndex* index);
void BuildJoinedParts(const WeightRecord& record, WeightIndex* index);
absl::Status WriteJoinedParts(const WeightRecord& record, StoredWeights* weights);

// Returns the initializer as the file stores it, from the weights of the graph.
HostTensor JoinStored(const JoinedWeight& joined, const ParsedGraph& graph);

// weight_ties.cc: initializers that are one weight. Of each pair one remains, and a node makes the other from it. A
// program that blends by a parameter, p·a + (1 − p)·b, has its 1 − p folded: each initializer that the exporter
// computed and that is 1 − p for exactly one named parameter becomes a node over it. Numbers that are equal by chance,
// such as those of p = 1 and p = 0, are left alone.
absl::StatusOr<WeightRecords> MatchGivenTies(WeightIndex* index);  // fails on tensors that are no weights or differ
absl::StatusOr<WeightRecords> MatchStoredTwice(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchHeads(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchComplements(WeightIndex* index);
absl::StatusOr<WeightRecords> MatchComputedTwice(WeightIndex* index);
void BuildTie(const WeightRecord& record, WeightIndex* index);
void BuildComplement(const WeightRecord& record, WeightIndex* index);
absl::Status WriteTie(const WeightRecord& record, StoredWeights* weights);

// Returns the initializer `tie.copy`.
LazyTensor MakeCopy(const WeightTie& tie, const LazyTensor& weight);

// low_rank.cc: updates that ModelEdits asks for. The export merges them into their weights, W + scale·B·A, or adds them
// as nodes where the weights are quantized (write/low_rank_nodes.h).
absl::StatusOr<WeightRecords> MatchLowRank(WeightIndex* index);
void BuildLowRank(const WeightRecord& record, WeightIndex* index);
absl::Status WriteLowRank(const WeightRecord& record, StoredWeights* weights);
bool IsQuantized(const LowRankUpdate& update);

// folded_weights.cc: weights that an exporter has computed from parameters, which the file no longer holds.

// Returns the operators whose weights are packed into blocks of a few bits, or are integers that no node scales, with
// the number of such nodes: "com.microsoft.MatMulNBits (12)". Empty if there are none.
std::string FindUntrainedWeights(const OnnxModel& model);

// Returns how many nodes of the model hold a BatchNorm that was folded into the convolution or product before it.
int CountFoldedNorms(const OnnxModel& model);

// Returns weights, in the order of their readers, which PyTorch's older exporter has computed from parameters of one
// layer: by weight normalization, spectral normalization or another function of them. It gives layers of other weights
// their own names.
std::vector<std::string> FindFoldedWeights(const OnnxModel& model);

// Returns numbers, in the order of the file, which PyTorch's older exporter has computed and which are not trained,
// although a parameter may be behind them: a gate, a step. Those of attention, √d and 1/√d, are left out.
std::vector<std::string> FindFoldedNumbers(const OnnxModel& model);

}  // namespace onnxtrain
