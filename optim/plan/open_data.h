// Opens samples for a model: splits them, plans the decoding of pictures and sounds, transforms columns, and binds
// columns to inputs and labels, as configuration and earlier training say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/bind/split.h"
#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/load/cache.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/alphabet.h"
#include "frontend/data/transform/transform.h"
#include "frontend/graph/model_input.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/class_names.h"
#include "optim/plan/text_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// An input that takes unencoded data because the model encodes it: strings for a category encoder, or missing values
// for an imputer.
struct RawInput {
  std::string name;
  std::vector<std::string> columns;  // columns that feed it, by name or 0-based index; empty: the column with its name
  std::shared_ptr<const std::vector<std::string>> texts;  // as in ModelInput; null: it takes missing values
  bool alone = false;                                     // the model has no other input: all columns feed it
};

// Returns the inputs of the model that take strings or missing values. `columns` has the columns already chosen, by
// input.
std::vector<RawInput> ListRawInputs(const std::vector<ModelInput>& inputs,
                                    const std::map<std::string, std::vector<std::string>>& columns);

// Makes the reader of the file keep the categories and missing values of the columns that feed these inputs, if their
// names are known before the file is open.
void AllowRawInputs(const std::vector<RawInput>& inputs, DatasetOptions* options);

// Returns the transforms of the columns that feed inputs of strings. If all columns feed one, skips those in
// `untouched`. Adds the columns to `options` and sets *reopen if some were not there yet.
std::vector<ColumnTransform> PlaceTexts(const std::vector<RawInput>& inputs, const std::vector<Column>& columns,
                                        const std::set<std::string>& untouched, DatasetOptions* options, bool* reopen);

bool HasColumn(const std::vector<Column>& columns, const std::string& name);

// Returns the name of a column that is given by name or 0-based index; returns other texts unchanged.
std::string ResolveColumn(const std::vector<Column>& columns, const std::string& name);

// Returns true if the file has columns with the names of model inputs that were trained on other columns. Such a file
// is made for the model's inputs directly, so the columns of the training data do not apply.
bool HoldsModelInputs(const std::vector<Column>& columns,
                      const std::map<std::string, std::vector<std::string>>& trained_on);

// Reconciles the columns of the training data with a file. A single array needs no name. With `same_columns`, missing
// columns are an error unless the file HoldsModelInputs; otherwise all columns of that input, or the label, are
// inferred again.
absl::Status MatchColumns(const std::vector<Column>& columns, bool same_columns, BindSpec* spec);

// Returns the columns of each input that config.input names, without inputs that are `constants`.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInputs(
    const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants);

// Collects the labels of single terms. If every term has its own, no common label is inferred.
absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns,
                          BindSpec* spec);

struct HeldOut {
  SplitRows rows;
  std::string text;  // describes the evaluation samples to the user
};

// Returns `config` with `data` set to the training file of a data folder (FindSplitFiles) and, if neither `eval_data`
// nor `eval_split` is set, `eval_data` set to its evaluation file.
TrainConfig WithSplitFiles(TrainConfig config);

// Returns the file to evaluate (`want_label`) or to predict of a folder with split files; else config.data.
std::string FindEvalFile(const TrainConfig& config, bool want_label);

// Returns the column that eval_split names, or "" if eval_split is a fraction or not set.
std::string SplitColumn(const TrainConfig& config);

// Splits the samples of config.data, opened with `options`, as eval_split says.
absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options);

// Plans pictures for the first input that they can feed: image_size, resize and channel_order come from the
// configuration, otherwise from `before`, otherwise from the input. `dims` are the values of named dimensions. If the
// size stays open, ImageOptions::problem says so. Fails on fields that contradict the model.
absl::StatusOr<ImageOptions> PlanImages(const TrainConfig& config, const std::vector<ModelInput>& inputs,
                                        const std::map<std::string, int64_t>& dims,
                                        const std::optional<Preprocess>& before);

PicturePreprocess DescribeImages(const ImageOptions& options, int64_t size_multiple,
                                 const std::vector<FolderColumn>& folders);

// Returns true if picture files feed an input.
bool FeedsPictures(const BoundData& data);

// Plans sounds for the first input that they can feed, [N,T], [N,C,T] or [N,T,1]: sample_rate and audio_length come
// from the configuration, otherwise from `before`, otherwise from the input and the model's metadata (`sample_rate`).
// `dims` are the values of named dimensions. With `keeps_lengths`, sounds keep their lengths where the model leaves
// them open. Fails on fields that contradict the model.
absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before, bool keeps_lengths);

// Describes the sounds that feed an input: sample rate, channels and length; nullopt if none do.
std::optional<AudioPreprocess> DescribeAudio(const BoundData& data, const AudioOptions& options);

// The columns of inputs that `augment` changes, which have one size.
struct AugmentedArrays {
  std::vector<int> columns;
  PixelLayout layout;
};

// Makes training augment the samples of inputs that are pictures in arrays, and labels of their height and width alike.
// Returns nullopt if `augment` is not set or no input is fed with pictures. Fails on values that cannot be augmented;
// the error begins with `path`.
absl::StatusOr<std::optional<AugmentedArrays>> AugmentBoundArrays(const TrainConfig& config, const std::string& path,
                                                                  BoundData* data);

// Parses config.cache, the memory for decoded samples; returns null for "none".
absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config);

// Makes the data set keep the decoded columns of its inputs in memory. Fails if all of it is in memory already.
absl::Status KeepInMemory(const TrainConfig& config, const std::string& path,
                          const std::shared_ptr<CacheBudget>& budget, BoundData* bound);

// A data file bound to a model by input, label, normalize, header and the model's preprocess.json.
struct OpenedData {
  BoundData bound;
  std::string normalize;                      // normalization of the images; "" if there are none
  std::optional<PicturePreprocess> pictures;  // set if picture files feed an input
  std::optional<AugmentedArrays> arrays;      // pictures in arrays that `augment` changes
  std::optional<AudioPreprocess> audio;       // set if sound files feed an input
  int own_columns = 0;                        // number of columns of the file; the others were added
  std::vector<std::string> classes;  // names from the training data or the model file, in the order of the scores
  std::vector<ColumnTransform> transforms;   // transforms of the file's columns
  TextSetup text;                            // columns of text, and their tokenizer
  std::optional<HeldOut> held_out;           // set by DataRequest::fit if eval_split is set
  std::string own_loss;                      // the output of a language model that is its loss, if it has no other
  std::shared_ptr<const Alphabet> alphabet;  // of a model whose labels are texts; else null

  // Sets the loss to that output, or to ctc for labels that are texts, if no other loss or output was chosen.
  void ChooseOwnLoss(LossSpec* loss) const;
};

struct DataRequest {
  std::string path, field;  // errors name the field
  bool eval_split = false;
  bool want_label = true;
  bool same_columns = false;   // fails if the file lacks a column that the model was trained on
  bool model_classes = true;   // the model file may name the classes
  bool fit = false;            // fits encode, fill and standardize to the training samples that eval_split leaves
  std::string leave_out = {};  // a column that is neither input nor label
  std::vector<FolderColumn> folders = {};   // opens these instead of a source of data
  std::shared_ptr<CacheBudget> cache = {};  // keeps decoded samples; null: keeps none
  std::optional<TextSetup> text = {};       // setup of the training data; nullopt: from MakeTextSetup
  std::vector<RawInput> raw_inputs = {};    // inputs that take strings or missing values
  bool hold_out = true;                     // eval_split applies to the samples of the file
};

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss);

// The characters that the classes of a model stand for, and a line for the user about where they were found.
struct FoundAlphabet {
  std::shared_ptr<const Alphabet> alphabet = {};  // null: none is known, or the loss is not ctc
  std::string note = {};
  bool expects_texts = false;  // the loss is ctc, or may be
  PictureForm pictures = {};   // how the model takes pictures, where it was not trained before
};

// Finds the characters of a model that is trained with ctc: those of its training, else FindClassNames. With the loss
// auto, a model without inputs of tokens whose output [N,T,C] or [T,N,C] has as many classes.
absl::StatusOr<FoundAlphabet> FindAlphabet(const TrainConfig& config, const OnnxModel& model,
                                           const std::optional<Preprocess>& before, const LossSpec& loss);

// Pads labels that are texts in both data sets to the longest.
void PadTextLabels(int64_t padding, BoundData* one, BoundData* other);

// Returns true for a table in a text file, such as .csv.
bool IsTableFile(const std::string& path);

struct OpenedSamples {
  std::shared_ptr<const Dataset> dataset;  // transformed
  std::vector<Column> file_columns;        // the columns before the transforms
  std::vector<ColumnTransform> transforms;
  std::set<std::string> text_columns;  // columns encoded as indices of the model's strings
  std::optional<HeldOut> held_out;
  std::vector<std::string> notes;

  // Resolves a name or 0-based index of a column of the file to the columns of `dataset` that replace it.
  std::vector<std::string> Resolve(const std::string& column) const;
};

// Opens the samples. `options` has the label and the classes of the model. With DataRequest::fit, fits the transforms
// that the configuration asks for; otherwise applies those of `before`.
absl::StatusOr<OpenedSamples> OpenSamples(const TrainConfig& config, const std::optional<Preprocess>& before,
                                          const DataRequest& request, DatasetOptions options, const LossSpec& loss);

// Returns "x_test" for "x_train" if only "x_test" is among the columns.
std::string FindCounterpart(const std::vector<Column>& columns, const std::string& name);

// Fits the statistics that `standardize` asks for; otherwise uses those of the model's training.
absl::Status SetStandardization(const TrainConfig& config, const std::optional<Preprocess>& before,
                                const DataRequest& request, OpenedData* data);

}  // namespace onnxtrain
