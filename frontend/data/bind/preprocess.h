// preprocess.json: the preprocessing of the training data. Training writes it next to the model; evaluation and
// prediction read it, so that data is processed as in training.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/audio/spectrogram.h"
#include "frontend/data/bind/mask_encoding.h"
#include "frontend/data/transform/transform.h"

namespace onnxtrain {

// How picture files were converted to samples.
struct PicturePreprocess {
  int64_t height = 0, width = 0, channels = 0;
  int64_t size_multiple = 0;                  // pictures kept their sizes, padded to multiples of this; 0: one size
  std::string layout, resize, channel_order;  // layout: nchw or nhwc; the others as in the configuration
  std::string resample = "bilinear";          // FilterName
  struct Folder {
    std::string column, folder;  // folder: relative to the root of the data
    bool mask = false;
    bool operator==(const Folder&) const = default;
  };
  std::vector<Folder> folders;  // folders that were inputs or labels

  bool operator==(const PicturePreprocess&) const = default;
};

// How sound files were converted to samples.
struct AudioPreprocess {
  int64_t sample_rate = 0, channels = 0;
  int64_t frames = 0;                   // 0: sounds kept their lengths
  bool standardize = false;             // each sound was scaled to zero mean and unit variance
  double padding = 0;                   // value of the frames after the end of a sound
  SpectrogramOptions spectrogram = {};  // that sounds became, if it has a style; `frames` are its frames

  bool operator==(const AudioPreprocess&) const = default;
};

// How text columns were tokenized.
struct TextPreprocess {
  std::vector<std::string> columns;  // one, or two for text pairs; empty: no text
  std::string tokenizer;             // path, absolute or relative to preprocess.json
  std::string sha256;                // hash of the tokenizer's files
  int64_t max_length = 0;            // tokens
  std::string loss_on;               // of dialogues, as in the configuration; "": the columns are plain text
  std::string chat_template;         // the source; "": dialogues are plain prompts and answers
};

// The characters of a model whose labels were texts, as in Alphabet.
struct AlphabetPreprocess {
  std::vector<std::string> texts;  // by class; empty: labels were no texts
  int64_t blank = 0;
};

struct Preprocess {
  std::string normalize;                                   // syntax of ParseNormalize; "" if no input is an image
  std::optional<PicturePreprocess> pictures;               // if an input was fed with picture files
  std::optional<AudioPreprocess> audio;                    // if an input was fed with sound files
  std::map<std::string, std::vector<std::string>> inputs;  // model input → column names
  std::map<std::string, std::vector<int64_t>> layout;      // model input → shape of one sample
  std::map<std::string, Standardization> standardize;      // model input → FeedSpec::shift, divisor
  std::set<std::string> pixels;                            // image inputs, which `normalize` applies to
  std::vector<ColumnTransform> columns;                    // applied to the columns of the file before binding
  // Encodings of label columns that are masks; nullopt: not determined.
  std::optional<std::map<std::string, MaskEncoding>> mask_encodings;
  TextPreprocess text;
  AlphabetPreprocess alphabet;
  std::vector<std::string> label;    // column names
  std::vector<std::string> classes;  // names in the order of the label values; empty if there are none
  std::string loss, output;          // "cross_entropy" on model output "probs"
  std::string reference_model;       // the file of the model that dpo compared with; "": none
};

// Normalizes 8-bit pixels: y = (x * scale - mean[c]) / std[c].
struct PixelScale {
  double scale = 1;
  std::vector<double> mean, std;  // empty, one for all channels, or one per channel
};
// Parses unit, raw, imagenet, "0.1307/0.3081" (mean/std) or "0.5,0.5,0.5/0.2,0.2,0.2" (per channel).
absl::StatusOr<PixelScale> ParseNormalize(std::string_view text);

std::string ToJson(const Preprocess& preprocess);
// Ignores unknown keys.
absl::StatusOr<Preprocess> ParsePreprocess(const std::string& json);

// Returns DIR/preprocess.json for DIR/model.onnx.
std::string PreprocessPath(const std::string& model_path);
// Returns nullopt if the file does not exist. Errors name the file.
absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const std::string& model_path);

}  // namespace onnxtrain
