#include "optim/plan/size_multiple.h"

#include <algorithm>
#include <set>

#include "frontend/base/status.h"
#include "optim/plan/model_setup.h"

namespace onnxtrain {
namespace {

constexpr int64_t kLargestMultiple = 64;
constexpr int64_t kTrialSide = 192;

// Imports the model for pictures of one size.
class Trial {
 public:
  // `input` is fed with samples of the shape `sample`, whose height and width are at `axis`.
  static absl::StatusOr<Trial> Create(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                      const std::string& input, const Shape& sample, int axis) {
    Trial trial(model, input, axis + 1);
    ASSIGN_OR_RETURN(trial.import_, MakeImportOptions(config, model));
    ASSIGN_OR_RETURN(trial.import_.outputs, LossOutputs(model, loss));
    const int64_t batch = HasAddedAxis(trial.import_.batch_axes) ? 1 : kBatch;
    trial.import_.batch = batch;
    Shape& shape = trial.import_.input_shapes[input] = {batch};
    shape.insert(shape.end(), sample.begin(), sample.end());
    return trial;
  }

  absl::StatusOr<ImportedModel> Run(int64_t height, int64_t width) const {
    ImportOptions import = import_;
    Shape& shape = import.input_shapes.at(input_);
    shape[axis_] = height;
    shape[axis_ + 1] = width;
    return Import(model_, import);
  }

 private:
  static constexpr int64_t kBatch = 2;

  Trial(const OnnxModel& model, std::string input, int axis) : model_(model), input_(std::move(input)), axis_(axis) {}

  const OnnxModel& model_;
  std::string input_;
  int axis_;  // of the height
  ImportOptions import_;
};

bool HasExtents(const Shape& shape, int64_t height, int64_t width) {
  const int64_t extents[] = {height, width};
  return std::search(shape.begin(), shape.end(), std::begin(extents), std::end(extents)) != shape.end();
}

// The outputs that have the size of the pictures.
std::set<size_t> FullSizeOutputs(const ImportedModel& model, int64_t height, int64_t width) {
  std::set<size_t> found;
  const auto& outputs = model.graph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (HasExtents(model.graph.type(outputs[i].value).shape, height, width)) found.insert(i);
  }
  return found;
}

// Two different odd multiples near kTrialSide.
int64_t TrialHeight(int64_t multiple) { return multiple * (2 * (kTrialSide / (2 * multiple)) + 1); }
int64_t TrialWidth(int64_t multiple) { return TrialHeight(multiple) + 2 * multiple; }

}  // namespace

absl::StatusOr<int64_t> FindSizeMultiple(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                         const ImageOptions& images) {
  const std::string& input = images.sizes->input;
  ASSIGN_OR_RETURN(const Trial trial,
                   Trial::Create(config, model, loss, input, images.sample(1, 1).shape, images.channels_last ? 0 : 1));
  const auto run = [&](int64_t multiple) { return trial.Run(TrialHeight(multiple), TrialWidth(multiple)); };
  const auto outputs = [&](const ImportedModel& imported, int64_t multiple) {
    return FullSizeOutputs(imported, TrialHeight(multiple), TrialWidth(multiple));
  };
  const auto coarse = run(kLargestMultiple);
  if (!coarse.ok())
    return Invalid("input '", input, "' leaves the size of pictures open, but the model does not take several (",
                   ToStd(coarse.status().message()), "); `image_size` N and `resize` make them one size");
  const std::set<size_t> wanted = outputs(*coarse, kLargestMultiple);
  for (int64_t multiple = 1; multiple < kLargestMultiple; multiple *= 2) {
    const auto fine = run(multiple);
    if (fine.ok() && outputs(*fine, multiple) == wanted) return multiple;
  }
  return kLargestMultiple;
}

int64_t SizeMultiple(const BoundData& data) {
  for (const FeedSpec& feed : data.feeds) {
    if (feed.height_axis >= 0) return data.dataset->columns()[feed.columns[0]].size_multiple;
  }
  return 0;
}

absl::Status CheckSmallestPictures(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                   const BoundData& data) {
  const auto feed = std::ranges::find_if(data.feeds, [](const FeedSpec& f) { return f.height_axis >= 0; });
  if (feed == data.feeds.end() || data.dataset->size() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Trial trial,
                   Trial::Create(config, model, loss, feed->feed, feed->sample.shape, feed->height_axis));
  int64_t lowest = 0, narrowest = 0;
  for (int64_t i = 0; i < data.dataset->size(); ++i) {
    const PictureExtents e = data.dataset->Extents(i);
    if (e.padded_height < data.dataset->Extents(lowest).padded_height) lowest = i;
    if (e.padded_width < data.dataset->Extents(narrowest).padded_width) narrowest = i;
  }
  for (const int64_t i : std::set<int64_t>{lowest, narrowest}) {
    const PictureExtents e = data.dataset->Extents(i);
    const absl::Status fits = trial.Run(e.padded_height, e.padded_width).status();
    if (!fits.ok())
      return Invalid(data.dataset->Describe(i), ": the model takes no pictures of ", e.height, " × ", e.width, " (",
                     ToStd(fits.message()), "); `image_size` N and `resize` make all one size");
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
