// Binds the columns of a data set to model inputs and labels, and moves the channels of pictures in arrays to the axis
// where a model has them.
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
  std::map<std::string, std::vector<std::string>> inputs;      // model input → columns, by name or 0-based index
  std::vector<std::string> label;                              // columns; empty: found
  std::map<std::string, std::vector<std::string>> own_labels;  // columns of losses with labels of their own, by a key
  bool want_label = true;                                      // else a missing label is no error
  bool read_labels = true;                                     // else they are only kept from the inputs
  std::vector<std::string> classes;                            // in the order of the model's scores; empty: unknown
  std::map<std::string, int64_t> dims;                         // values of named free dimensions
  PixelScale pixels;                                           // for image columns
  bool asked_for_pixels = false;  // rows of bytes are images, too, where no other column is
  // Inputs of images, from training; nullopt: rows of bytes are images where a value is above 127.
  std::optional<std::set<std::string>> pixel_inputs;
  // Labels whose losses take classes or probabilities, by the keys of own_labels and "" for the common ones: masks of 0
  // and 255 are classes to them. What the columns are, from training; nullopt: what FindMaskEncoding says.
  std::set<std::string> class_labels;
  std::optional<std::map<std::string, MaskEncoding>> mask_encodings;
  int64_t ignore_index = -100;  // does not count for the range of the labels
  bool skip_bad = false;        // leaves labels that are no integers out of their range
  std::string leave_out;        // a column that is neither input nor label
  int first_token_column = -1;  // columns of tokens, in the order of kTokenRoles, feed what their names say; -1: none
  bool token_blocks = false;    // they are those of TokenBlocks, in the order of BlockRole
};

struct BoundLabel {
  std::vector<int> columns;  // empty: there is none
  LabelInfo info;
  std::string text;  // which column it is, for people; "" without label
};

struct BoundData {
  std::shared_ptr<const Dataset> dataset;  // with constant columns appended where inputs have defaults
  std::vector<FeedSpec> feeds;             // of the model's inputs
  BoundLabel label;
  std::map<std::string, BoundLabel> own_labels;        // as BindSpec has them
  std::map<std::string, MaskEncoding> mask_encodings;  // of label columns that are drawn masks
  std::vector<std::string> classes;                    // names, where the label has them
  bool classes_are_sorted = false;                     // they were numbered in the order of their names
  std::map<std::string, int> batch_axes;               // of inputs and outputs, as ImportOptions has them
  std::string places_input;                            // the constant that refers to samples by their places; "": none
  std::map<std::string, Shape> input_shapes;           // of inputs with free dimensions besides the batch, which is -1
  std::map<std::string, HostTensor> fixed_inputs;      // inputs without data that are constants of the graph
  bool has_images = false;                             // is an image column fed?
  std::string token_input;                             // the input that is fed with token ids; "": none
  TextUnit text_unit;                                  // of blocks of tokens
  std::vector<std::string> notes;                      // one line per decision, for people
  std::vector<std::string> warnings;                   // what is probably not meant
};

// Binds explicit inputs first, then columns named like an input (of several inputs, also like "serving_default_NAME:0"
// or "scope/NAME"), then the one unbound input to the one column that fits
// or to all numeric columns of a table. Helper inputs of text models (attention_mask, token_type_ids, position_ids)
// have defaults. Fails with the choices listed where more than one binding is possible.
absl::StatusOr<BoundData> BindData(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset,
                                   const BindSpec& spec);

// Makes the numbers of the common label, one per sample, names of classes: they become their places in `numbers`, which
// holds all of them. Updates the label's range and text.
absl::Status NumberLabels(const std::vector<int64_t>& numbers, int64_t ignore_index, bool skip_bad, BoundData* data);

// The labels of that key: "" for the common ones, else a key of BindSpec::own_labels. Null where the data has none.
const BoundLabel* FindBoundLabel(const BoundData& data, const std::string& key);

// The column that is the label by its name ("label", "target", "y", …), or nullopt. Several such names are an error,
// and no label where none is wanted.
absl::StatusOr<std::optional<int>> LabelByName(const std::vector<Column>& columns, bool want_label = true);

// Sets the normalization of a feed of pixels, whose channels are along its first or last axis. Fails where neither has
// as many as the normalization.
absl::Status SetPixelScale(const PixelScale& pixels, FeedSpec* feed);

// Returns the shape of one sample of an input with extents `fixed` (-1: free, no batch axis) that is fed with samples
// of shape `data`. Fails where the extents contradict each other or the layout seems to differ.
absl::StatusOr<Shape> FitSample(const Shape& data, const Shape& fixed);

enum class ChannelMove : uint8_t { kToFirst, kToLast };

// How samples [h, w, c] or [c, h, w] of at most 4 channels fit an input with extents `fixed` (-1: free, no batch axis),
// which they do not fit as they are; nullopt: neither way, or they are no array of numbers.
std::optional<ChannelMove> FindChannelMove(const Column& column, const Shape& fixed);

// The shape [h, w, c] or [c, h, w] after the move.
Shape MoveChannels(const Shape& sample, ChannelMove move);

// `source` with the samples of those columns, by index, transposed.
std::shared_ptr<const Dataset> WithMovedChannels(std::shared_ptr<const Dataset> source,
                                                 std::map<int, ChannelMove> moves);

}  // namespace onnxtrain
