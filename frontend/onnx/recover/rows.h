// The forms in which exporters store parameters. Each function finds one form in a parsed graph, and puts there what is
// trained in its place.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Finds the rows of embedding tables that stand for padding, which PyTorch does not train.

// Sets the attribute kPaddingRow (frontend/ops/import/index.h) of each Gather that was an embedding with padding_idx,
// and notes which rows are not trained. torch.export writes the row into the metadata. In other files of PyTorch it is
// the only row of zeros among the first and last ones of the table, where padding tokens are: PyTorch initializes it
// to zeros.
void MarkPaddingRows(OnnxModel::Parsed* model);

// Finds recurrent layers of frameworks that have one bias where ONNX has two.

// Sets the attribute kSingleBias (frontend/ops/import/recurrent.h). ONNX adds the bias of the inputs and that of the
// state. Frameworks with one, as Keras, store zeros for the other; training both would double the learning rate.
// PyTorch has both.
void MarkSingleBiases(OnnxModel::Parsed* model);

// Finds the scales of weights that only integer products read.

// The names of a node, parsed or of a message.
struct NodeNames {
  std::string domain, op_type;
  std::vector<std::string> inputs, outputs;
};

// Returns the scale for each product of an integer weight (by index into `nodes`) whose operator has none. Tools that
// quantize activations at run time write MatMulInteger or ConvInteger, perhaps Add of a rounded bias, then Cast, then
// Mul by the scale of the activations times that of the weight. `is_initializer` tells the stored one of the two from
// the computed one.
std::map<size_t, std::string> FindProductScales(const std::vector<NodeNames>& nodes,
                                                const std::function<bool(const std::string&)>& is_initializer);

// Appends these scales to the inputs of their nodes, where the import looks for them. They are not trained.
void AttachProductScales(ParsedGraph* graph);

// Finds the statistics of batch normalizations that exporters of JAX and TensorFlow write as arithmetic.

// Marks as buffers what nothing else has told a kind of: the variance, a vector behind √(variance + ε), and the mean in
// (x − mean)·s and x·s + (shift − mean·s), where s is made of that root. Training would move both, the variance below
// zero.
void FindRunningStatistics(ParsedGraph* graph);

// Undoes functions of single parameters that the exporter computed.

// Trains the argument p of f(p) instead of the initializer `name`, as the module does: the temperature of contrastive
// models, the rates of state spaces, gates. Leaves alone what is no value of the function.
void TrainArgument(const std::string& name, ParameterFunction function, ParsedGraph* graph);

// Returns the initializer that the weight makes.
LazyTensor MakeValue(const ComputedFunction& computed, const LazyTensor& weight);

// Keeps what turns positions into rotations fixed: frequencies, and tables of cosines and sines.

// Returns the stored tensors, by initializer, Constant output or output of an Identity over an initializer, that only
// serve to rotate by positions, whatever their values are:
//   - what both a sine and a cosine of positions are computed from, where no data of a user takes part;
//   - the caches of RotaryEmbedding and GroupQueryAttention;
//   - tables c and s with c² + s² constant that turn data, x·c ± y·s.
// The weights of Fourier features, which multiply data, and of layers with sines as activations are none.
std::vector<std::string> MatchPositionTables(const ParsedGraph& graph);

// Makes those constants that the metadata of the exporter does not know. The graph reads them as stored, and an export
// keeps their bytes.
void BuildPositionTables(ParsedGraph* graph);

// Recognizes weights that an exporter has computed from parameters, which the file no longer holds.

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

// Takes apart what an exporter has concatenated.

// Trains the parts of joined initializers instead of the whole, in files that keep the whole alone: heads of which a
// part is the transposed embedding (if `tie`), and biases of queries, keys and values of which the keys have none.
void TakeJoinedApart(bool tie, ParsedGraph* graph);

// Replaces the own parts among the weights by the initializers that hold them, which `read` returns as they are stored.
absl::Status JoinParts(const SharedWeights& shared,
                       const std::function<absl::StatusOr<HostTensor>(const JoinedWeight&)>& read,
                       std::map<std::string, LazyTensor>* weights);

// Returns the initializer as the file stores it, from the weights of the graph.
HostTensor JoinStored(const JoinedWeight& joined, const ParsedGraph& graph);

// Undoes lookups in tables of parameters that the exporter computed.

// Of these initializers, and of those with names that older exporters generate, trains those that repeat rows with one
// copy of each row, which a Gather reads: a relative position has one bias, wherever it occurs, and all tokens of a
// sequence have the embedding of one token type. Each must be computed from parameters and other values. Rows are the
// same by their bytes, along any axis; equal numbers prove nothing. Identity nodes over such an initializer become
// tables of their own. ALiBi's multiples of slopes become constants.
//
// Biases of which all numbers are equal, as in a fresh model, may have been looked up by the offsets of relative
// positions. `assume`: those that are added to attention scores and have the shape for it are taken for that.
void GatherRepeatedRows(std::vector<std::string> names, bool assume, ParsedGraph* graph);

// Whether nothing but the shape and the readers of a bias tell that its rows, which are equal, were looked up.
bool IsAssumed(const RowCopies& copies, const HostTensor& weight);

// Returns the initializer that the rows of the weight make up.
LazyTensor ExpandRows(const RowCopies& copies, const LazyTensor& weight);

// Undoes merges of nodes that compute the same with the weights of different modules.

// Gives the modules that read parts of a fresh parameter, which PyTorch's exporter has merged with theirs, nodes of
// their own that take it apart: the biases of the attentions to the memory of a decoder. The nodes are named as an fx
// node of the module with its parameter, by which NameWeights splits the parameter.
void SplitMergedParts(const TorchMetadata& metadata, ParsedGraph* graph);

// Gives each of several fx nodes, which PyTorch's exporter has made one because they read one value and weights of
// equal bytes, a copy of the node that reads its own parameters: in a fresh model, two normalizations of the input of
// parallel branches (GPT-NeoX, Falcon), or two tokens of zeros of one module (DeiT). The readers still name the fx node
// that they were translated from. The copies read the merged initializers, which NameWeights splits.
void SplitMergedNodes(const TorchMetadata& metadata, ParsedGraph* graph);

}  // namespace onnxtrain
