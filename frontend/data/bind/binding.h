// Binds the columns of a data set to model inputs and labels, and transposes pictures in arrays to the channel axis
// that the model expects.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/mask_encoding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/text_dataset.h"
#include "frontend/data/text/token_blocks.h"
#include "frontend/graph/model_input.h"

namespace onnxtrain {

struct BindSpec {
  std::map<std::string, std::vector<std::string>> inputs;  // model input → columns, by name or 0-based index
  std::vector<std::string> label;                          // label columns; empty: chosen by name or position
  // Label columns of losses that do not use `label`, by a key of the loss.
  std::map<std::string, std::vector<std::string>> own_labels;
  bool want_label = true;               // false: a missing label is no error
  bool read_labels = true;              // false: label columns are only excluded from the inputs
  std::vector<std::string> classes;     // class names in the order of the model's scores; empty: unknown
  std::map<std::string, int64_t> dims;  // values of named free dimensions
  PixelScale pixels;                    // normalization of image columns
  bool pixels_requested = false;        // treat vectors of bytes as images if no other column is an image
  // Inputs that were images in training; nullopt: decide from the data (vectors of bytes are images if a value exceeds
  // 127).
  std::optional<std::set<std::string>> pixel_inputs;
  // Keys (as in own_labels; "" for `label`) of labels whose losses take classes or probabilities. Masks with the values
  // 0 and 255 are mapped to classes for these.
  std::set<std::string> class_labels;
  // Encodings by label column, from training; nullopt: use FindMaskEncoding.
  std::optional<std::map<std::string, MaskEncoding>> mask_encodings;
  int64_t ignore_index = -100;  // label value that is excluded from the range of the labels
  bool skip_bad = false;        // exclude labels that are no integers from the range instead of failing
  std::string leave_out;        // a column that is neither input nor label
  int first_token_column = -1;  // first of the token columns, ordered as kTokenRoles; -1: none
  bool token_blocks = false;    // the token columns are those of TokenBlocks, ordered as BlockRole
};

struct BoundLabel {
  std::vector<int> columns;  // empty: no label
  LabelInfo info;
  std::string text;  // description of the columns for messages; "" without label
};

struct BoundData {
  std::shared_ptr<const Dataset> dataset;  // the data with a constant column per input with a default
  std::vector<FeedSpec> feeds;             // one per fed model input
  BoundLabel label;
  std::map<std::string, BoundLabel> own_labels;        // key of BindSpec::own_labels → label
  std::map<std::string, MaskEncoding> mask_encodings;  // name of a mask column → encoding
  std::vector<std::string> classes;                    // class names; empty if the label has none
  bool classes_are_sorted = false;                     // class indices follow the sorted names
  std::map<std::string, int> batch_axes;               // name of an input or output → axis, see ImportOptions
  std::string sample_index_input;                      // the constant input that holds sample indices; "": none
  std::map<std::string, Shape> input_shapes;           // shapes, batch -1, of inputs with other free dimensions
  std::map<std::string, HostTensor> fixed_inputs;      // inputs without data, folded into the graph as constants
  bool has_images = false;                             // true if an image column is fed
  std::string token_input;                             // the input that receives token ids; "": none
  TextUnit text_unit;                                  // conversions for data in token blocks
  PackedInputs packed;                                 // of rows that hold several samples
  std::vector<std::string> notes;                      // one line per decision, for the user
  std::vector<std::string> warnings;                   // one line per choice that is probably a mistake
};

// Binds explicit inputs first, then columns named like an input (if there are several inputs, also by the last part of
// "serving_default_NAME:0" or "scope/NAME"), then the only unbound input to the only column that fits or to all numeric
// columns of a table. Helper inputs of text models (attention_mask, token_type_ids, position_ids) have defaults. If
// more than one binding is possible, fails and lists the choices.
absl::StatusOr<BoundData> BindData(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset,
                                   const BindSpec& spec);

// Treats the values of the label, one integer per sample, as names of classes: replaces each by its index in `numbers`,
// which must hold all of them. Updates the label's range and text.
absl::Status NumberLabels(const std::vector<int64_t>& numbers, int64_t ignore_index, bool skip_bad, BoundData* data);

// Returns the label with that key of BindSpec::own_labels, or BoundData::label for "". Null if the data has none.
const BoundLabel* FindBoundLabel(const BoundData& data, const std::string& key);

// Returns the column whose name marks it as the label ("label", "target", "y", …), or nullopt if there is none. If
// there are several, fails with `want_label` and returns nullopt without.
absl::StatusOr<std::optional<int>> LabelByName(const std::vector<Column>& columns, bool want_label = true);

// Sets the normalization of a pixel feed, whose channels are along its first or last axis. Fails if neither axis has as
// many channels as the normalization.
absl::Status SetPixelScale(const PixelScale& pixels, FeedSpec* feed);

// Returns the shape of one sample of an input with extents `fixed` (-1: free, no batch axis) that is fed with samples
// of shape `data`. Fails where the extents contradict each other or the layout seems to differ.
absl::StatusOr<Shape> FitSample(const Shape& data, const Shape& fixed);

enum class ChannelMove : uint8_t { kToFirst, kToLast };

// Returns how samples [h, w, c] or [c, h, w] with at most 4 channels must be transposed to fit an input with extents
// `fixed` (-1: free, no batch axis). nullopt if they fit already, fit neither way, or are not numeric arrays.
std::optional<ChannelMove> FindChannelMove(const Column& column, const Shape& fixed);

// Returns the shape of a [h, w, c] or [c, h, w] sample after the move.
Shape MoveChannels(const Shape& sample, ChannelMove move);

// Returns a view of `source` with the samples of these columns (by index) transposed.
std::shared_ptr<const Dataset> WithMovedChannels(std::shared_ptr<const Dataset> source,
                                                 std::map<int, ChannelMove> moves);

}  // namespace onnxtrain
