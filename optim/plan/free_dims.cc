#include "optim/plan/input_plan.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/model_setup.h"

namespace onnxtrain {
namespace {

const std::string& DimName(const ModelInput& input, size_t axis) {
  static const std::string kNone;
  return axis < input.dim_names.size() ? input.dim_names[axis] : kNone;
}

// Parses sums of products of names and numbers by recursive descent.
class DimExpression {
 public:
  DimExpression(const std::string& text, int64_t size, int64_t past) : text_(text), size_(size), past_(past) {}

  int64_t Evaluate() {
    const int64_t value = Sum();
    return at_ == text_.size() ? value : -1;
  }

 private:
  int64_t Sum() {
    int64_t value = Product();
    while (value >= 0 && Accept('+')) value = Combine(value, Product(), [](int64_t a, int64_t b) { return a + b; });
    return value;
  }

  int64_t Product() {
    int64_t value = Atom();
    while (value >= 0 && Accept('*')) value = Combine(value, Atom(), [](int64_t a, int64_t b) { return a * b; });
    return value;
  }

  template <typename F>
  static int64_t Combine(int64_t a, int64_t b, F f) {
    constexpr int64_t kMost = int64_t{1} << 30;
    return a < 0 || b < 0 || a > kMost || b > kMost ? -1 : f(a, b);
  }

  int64_t Atom() {
    SkipBlanks();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    SkipBlanks();
    if (word.empty()) return -1;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return ParseInt(word).value_or(-1);
    return word.find("past") != std::string::npos ? past_ : size_;
  }

  void SkipBlanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool Accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  const std::string& text_;
  const int64_t size_, past_;
  size_t at_ = 0;
};

// Returns the input extent of a Gemm with the matrix [k,n] or [n,k]. transB is unknown here: n is the length of the
// bias; without one, the smaller extent, because the matrix of a classifier narrows.
int64_t GemmExtent(const OnnxModel& model, const OnnxModel::Node& node, const Shape& matrix) {
  const HostTensor* bias = node.inputs.size() > 2 ? model.Initializer(node.inputs[2]) : nullptr;
  if (bias != nullptr && bias->size() == matrix[0]) return matrix[1];
  if (bias != nullptr && bias->size() == matrix[1]) return matrix[0];
  return std::max(matrix[0], matrix[1]);
}

// Returns the extent of an axis that the first MatMul, Gemm or Conv of an input requires; 0 if there is none.
int64_t DemandedExtent(const OnnxModel& model, const ModelInput& input, size_t axis) {
  for (const OnnxModel::Node& node : model.nodes()) {
    if (node.inputs.size() < 2 || node.inputs[0] != input.name) continue;
    const HostTensor* weight = model.Initializer(node.inputs[1]);
    if (weight == nullptr || weight->type().rank() < 2) continue;
    const Shape& shape = weight->shape();
    if (node.op == "Conv" && axis == 1) return shape[1];
    if (node.op == "MatMul" && axis + 1 == input.dims.size()) return shape[shape.size() - 2];
    if (node.op == "Gemm" && axis == 1) return GemmExtent(model, node, shape);
  }
  return 0;
}

int64_t SizeDim(const FreeDims& dims, const ModelInput& input, size_t axis) {
  if (input.dims[axis] >= 0) return input.dims[axis];
  const std::string& name = DimName(input, axis);
  if (const auto given = dims.given.find(name); given != dims.given.end()) return given->second;
  if (const int64_t demanded = DemandedExtent(dims.model, input, axis); demanded > 0) return demanded;
  const int64_t named = name.empty() ? dims.size : EvaluateDim(name, dims.size, dims.past);
  return named >= 0 ? named : dims.size;
}

}  // namespace

std::span<const int64_t> TrialSizes() {
  static constexpr int64_t kSizes[] = {32,  64,  224, 28,  16,  8,   4,   2,   1,   48,   96,   128,  160, 192,
                                       227, 256, 299, 300, 320, 352, 384, 416, 448, 480,  512,  600,  608, 640,
                                       768, 800, 80,  112, 144, 240, 260, 380, 456, 3,    5,    6,    7,   10,
                                       12,  14,  20,  24,  40,  50,  100, 200, 400, 1024, 3000, 16000};
  return kSizes;
}

int64_t EvaluateDim(const std::string& name, int64_t size, int64_t past) {
  return DimExpression(name, size, past).Evaluate();
}

Shape SizeSample(const FreeDims& dims, const ModelInput& input) {
  Shape shape;
  for (size_t i = 1; i < input.dims.size(); ++i) shape.push_back(SizeDim(dims, input, i));
  return shape;
}

std::set<std::string> FreeDimNames(const FreeDims& dims, const ModelInput& input) {
  std::set<std::string> names;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    if (input.dims[i] < 0 && !dims.given.contains(DimName(input, i))) names.insert(DimName(input, i));
  }
  return names;
}

namespace {

constexpr int64_t kLargestMultiple = 64;
constexpr int64_t kTrialSide = 192;

bool DeclaresOneSample(const OnnxModel& model, const std::string& input) {
  const auto found = std::ranges::find(model.inputs(), input, &ModelInput::name);
  return found != model.inputs().end() && !found->dims.empty() && found->dims[0] == 1;
}

// Imports the model for pictures of one size.
class Trial {
 public:
  // Feeds `input` with samples of the shape `sample`, whose height and width begin at axis `axis`.
  static absl::StatusOr<Trial> Create(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                      const std::string& input, const Shape& sample, int axis) {
    Trial trial(model, input, axis + 1);
    ASSIGN_OR_RETURN(trial.import_, MakeImportOptions(config, model));
    ASSIGN_OR_RETURN(trial.import_.outputs, LossOutputs(model, loss));
    const bool single = HasAddedAxis(trial.import_.batch_axes) || DeclaresOneSample(model, input);
    const int64_t batch = single ? 1 : kBatch;
    trial.import_.batch = batch;
    trial.import_.half_weights = true;
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
  int axis_;  // axis of the height
  ImportOptions import_;
};

bool HasExtents(const Shape& shape, int64_t height, int64_t width) {
  const int64_t extents[] = {height, width};
  return std::search(shape.begin(), shape.end(), std::begin(extents), std::end(extents)) != shape.end();
}

// Returns the outputs that have the height and width of the pictures.
std::set<size_t> FullSizeOutputs(const ImportedModel& model, int64_t height, int64_t width) {
  std::set<size_t> found;
  const auto& outputs = model.graph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (HasExtents(model.graph.type(outputs[i].value).shape, height, width)) found.insert(i);
  }
  return found;
}

// Return two different odd multiples near kTrialSide.
int64_t TrialHeight(int64_t multiple) { return multiple * (2 * (kTrialSide / (2 * multiple)) + 1); }
int64_t TrialWidth(int64_t multiple) { return TrialHeight(multiple) + 2 * multiple; }

}  // namespace

absl::StatusOr<int64_t> FindSizeMultiple(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                         const ImageOptions& images) {
  const std::string& input = images.sizes->input;
  ASSIGN_OR_RETURN(const Trial trial,
                   Trial::Create(config, model, loss, input, images.sample(1, 1).shape, images.channels_last ? 0 : 1));
  const auto height = [&](int64_t multiple) {
    return images.sizes->height > 0 ? images.sizes->height : TrialHeight(multiple);
  };
  const auto run = [&](int64_t multiple) { return trial.Run(height(multiple), TrialWidth(multiple)); };
  const auto outputs = [&](const ImportedModel& imported, int64_t multiple) {
    return FullSizeOutputs(imported, height(multiple), TrialWidth(multiple));
  };
  const auto coarse = run(kLargestMultiple);
  if (!coarse.ok())
    return Invalid(
        "input '", input, "' leaves the size of pictures open, but the model does not take several (",
        ToStd(coarse.status().message()),
        "); `image_size` N and `resize` make them one size, `image_size` HEIGHTxauto sets the height of lines of text");
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
