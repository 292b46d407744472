// preprocess.json: the preprocessing of the data that a model was trained on. Training writes it beside the model;
// evaluation and prediction read it, so that a file of data means the same as in training.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/bind/mask_encoding.h"
#include "frontend/data/transform/transform.h"

namespace onnxtrain {

// What files of pictures were made to.
struct PicturePreprocess {
  int64_t height = 0, width = 0, channels = 0;
  int64_t size_multiple = 0;                  // above 0: they kept their sizes, padded to multiples of this
  std::string layout, resize, channel_order;  // nchw, nhwc; as the fields of the configuration
  struct Folder {
    std::string column, folder;  // below the root of the data
    bool mask = false;
    bool operator==(const Folder&) const = default;
  };
  std::vector<Folder> folders;  // of inputs and labels that are folders

  bool operator==(const PicturePreprocess&) const = default;
};

// What files of sound were made to.
struct AudioPreprocess {
  int64_t sample_rate = 0, channels = 0, frames = 0;

  bool operator==(const AudioPreprocess&) const = default;
};

// How columns of text became tokens.
struct TextPreprocess {
  std::vector<std::string> columns;  // one, or two of a pair; empty: there is no text
  std::string tokenizer;             // path, absolute or in the folder of preprocess.json
  std::string sha256;                // of the files of the tokenizer
  int64_t max_length = 0;            // tokens
};

struct Preprocess {
  std::string normalize;                                   // as ParseNormalize takes it; "" where no input is an image
  std::optional<PicturePreprocess> pictures;               // where an input was fed with files of pictures
  std::optional<AudioPreprocess> audio;                    // where an input was fed with files of sound
  std::map<std::string, std::vector<std::string>> inputs;  // model input → column names
  std::map<std::string, std::vector<int64_t>> layout;      // model input → shape of one sample
  std::map<std::string, Standardization> standardize;      // model input → as FeedSpec has it
  std::set<std::string> pixels;                            // model inputs of images, which `normalize` is for
  std::vector<ColumnTransform> columns;                    // of the file, before they are assigned to inputs
  // Label columns that are drawn masks; nullopt: nobody has looked.
  std::optional<std::map<std::string, MaskEncoding>> mask_encodings;
  TextPreprocess text;
  std::vector<std::string> label;    // column names
  std::vector<std::string> classes;  // names in the order of the labels, where they have names
  std::string loss, output;          // "cross_entropy" on model output "probs"
};

// y = (x * scale - mean[c]) / std[c] on 8-bit pixels.
struct PixelScale {
  double scale = 1;
  std::vector<double> mean, std;  // empty, one for all channels, or one per channel
};
// unit, raw, imagenet, "0.1307/0.3081", "0.5,0.5,0.5/0.2,0.2,0.2"
absl::StatusOr<PixelScale> ParseNormalize(std::string_view text);

std::string ToJson(const Preprocess& preprocess);
// Fails with what is wrong; unknown keys are ignored.
absl::StatusOr<Preprocess> ParsePreprocess(const std::string& json);

// DIR/preprocess.json for DIR/model.onnx.
std::string PreprocessPath(const std::string& model_path);
// nullopt where the file is not there; an error names it.
absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const std::string& model_path);

}  // namespace onnxtrain
