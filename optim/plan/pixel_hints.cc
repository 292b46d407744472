#include "optim/plan/data_checks.h"
#include "optim/plan/folders.h"
#include "optim/plan/processor_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/json.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// The normalization of pixels by a model's first nodes: y = scale[c] · x + shift[c] for channel c of the input.
// `reversed`: the channels come out in reverse order.
struct InnerPixels {
  std::vector<double> scale, shift;
  bool reversed = false;
};

// The values of `normalize` and `channel_order` that suit such a model; "": unknown. Normalized pixels usually have the
// range 0 to 1, a range around 0 with a width of about 2 to 5, or 0 to 255 minus a mean.
struct PixelProposal {
  std::string normalize, order;
};

constexpr int kMaxDepth = 12;  // nodes after the input

constexpr int64_t kMaxElements = 1 << 22;  // limit for a picture, because evaluation is slow

constexpr int64_t kOpenSide = 64;  // height and width of a picture of open size

constexpr double kLargest = 255;  // largest pixel value

constexpr double kRelativeRounding = 1e-4;

// Lists the values within kMaxDepth nodes after the input that depend only on it and on constants.
std::vector<std::string> FirstValues(const OnnxModel& model, const std::string& input) {
  std::map<std::string, int> depth = {{input, 0}};  // 0: the input; < 0: a constant
  for (const std::string& name : model.InitializerNames()) depth.emplace(name, -1);
  depth.emplace("", -1);
  std::vector<std::string> names;
  for (const OnnxModel::Node& node : model.nodes()) {
    int deepest = -1;
    bool known = true;
    for (const std::string& name : node.inputs) {
      const auto found = depth.find(name);
      known &= found != depth.end();
      if (known) deepest = std::max(deepest, found->second);
    }
    if (!known || deepest >= kMaxDepth) continue;
    for (const std::string& name : node.outputs) {
      depth.emplace(name, deepest < 0 ? -1 : deepest + 1);
      if (deepest >= 0 && !name.empty()) names.push_back(name);
    }
  }
  return names;
}

using Values = std::map<ValueId, HostTensor>;

// Evaluates the cheap nodes at the beginning of a graph.
class Prober {
 public:
  Prober(const ImportedModel& model, const std::string& input, int channel_axis)
      : graph_(model.graph), input_(graph_.FindInput(input)->value), channel_axis_(channel_axis) {
    for (const ImportedWeight& weight : model.weights) {
      const GraphInput* of = graph_.FindInput(weight.name);
      if (of != nullptr && weight.value.type() == graph_.type(of->value)) weights_[of->value] = weight.value;
    }
  }

  const Graph& graph() const { return graph_; }
  ValueId input() const { return input_; }

  // Evaluates a picture whose channel c is by_channel[c] everywhere.
  Values Run(const std::vector<double>& by_channel) const {
    Values values = weights_;
    values[input_] = Picture(by_channel);
    for (const Node& node : graph_.nodes()) RunNode(node, &values);
    return values;
  }

 private:
  HostTensor Picture(const std::vector<double>& by_channel) const {
    HostTensor picture(graph_.type(input_));
    const Shape& shape = picture.shape();
    const int64_t inner = NumElements(Shape(shape.begin() + channel_axis_ + 2, shape.end()));
    for (int64_t i = 0; i < picture.size(); ++i) picture.Set(i, by_channel[i / inner % by_channel.size()]);
    return picture;
  }

  void RunNode(const Node& node, Values* values) const {
    const OpRow* row = FindOp(node.op);
    if (row == nullptr || row->evaluate == nullptr || row->recompute > Recompute::kCheap) return;
    std::vector<const HostTensor*> operands;
    std::vector<Type> types;
    for (const ValueId v : node.inputs) {
      const auto found = values->find(v);
      if (v != kNoValue && found == values->end()) return;
      operands.push_back(v == kNoValue ? nullptr : &found->second);
    }
    for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
    auto results = row->evaluate({node.attrs, operands, types});
    for (size_t i = 0; i < results.size(); ++i) (*values)[node.outputs[i]] = std::move(results[i]);
  }

  const Graph& graph_;
  ValueId input_;
  int channel_axis_;  // channel axis of a sample; -1: none
  Values weights_;
};

bool AreNear(double a, double b) { return std::fabs(a - b) <= kRelativeRounding * (1 + std::fabs(a)); }

// The results for probe pictures: black, each channel alone at 1, white.
struct Responses {
  const HostTensor *black, *white;
  std::vector<const HostTensor*> single;
};

// Returns the channel that element i depends on; nullopt: none or several.
std::optional<size_t> FindChannel(const Responses& r, int64_t i) {
  std::optional<size_t> found;
  for (size_t c = 0; c < r.single.size(); ++c) {
    if (r.single[c]->At(i) == r.black->At(i)) continue;
    if (found.has_value()) return std::nullopt;
    found = c;
  }
  return found;
}

// Returns nullopt if the value is no affine function of single pixels.
std::optional<InnerPixels> FitAffine(const Responses& r) {
  const size_t channels = r.single.size();
  InnerPixels inner{std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<int64_t> first(channels, -1);
  for (int64_t i = 0; i < r.black->size(); ++i) {
    const std::optional<size_t> c = FindChannel(r, i);
    if (!c.has_value()) return std::nullopt;
    const double shift = r.black->At(i), scale = r.single[*c]->At(i) - shift;
    if (first[*c] < 0) first[*c] = i, inner.scale[*c] = scale, inner.shift[*c] = shift;
    const bool same = AreNear(scale, inner.scale[*c]) && AreNear(shift, inner.shift[*c]);
    if (!same || !AreNear(r.white->At(i), shift + kLargest * scale)) return std::nullopt;
  }
  if (std::ranges::find(first, -1) != first.end()) return std::nullopt;
  inner.reversed = channels == 3 && first[2] < first[1] && first[1] < first[0];
  return inner;
}

bool AreEqual(const InnerPixels& a, const InnerPixels& b) {
  return std::ranges::equal(a.scale, b.scale, AreNear) && std::ranges::equal(a.shift, b.shift, AreNear) &&
         a.reversed == b.reversed;
}

// Caches the responses of all evaluated values.
class Responder {
 public:
  Responder(const Prober& prober, size_t channels)
      : black_(prober.Run(std::vector<double>(channels, 0))),
        white_(prober.Run(std::vector<double>(channels, kLargest))) {
    for (size_t c = 0; c < channels; ++c) {
      std::vector<double> one(channels, 0);
      one[c] = 1;
      single_.push_back(prober.Run(one));
    }
  }

  const Values& values() const { return black_; }
  Responses At(ValueId v) const {
    Responses r{&black_.at(v), &white_.at(v), {}};
    for (const Values& values : single_) r.single.push_back(&values.at(v));
    return r;
  }

 private:
  Values black_, white_;
  std::vector<Values> single_;
};

// Fits affine functions of single pixels, by value with the size of the input.
std::map<ValueId, InnerPixels> FitAll(const Prober& prober, const Responder& responder) {
  std::map<ValueId, InnerPixels> fits;
  for (const auto& [v, tensor] : responder.values()) {
    if (tensor.size() != prober.graph().type(prober.input()).elements()) continue;
    if (const auto inner = FitAffine(responder.At(v))) fits.emplace(v, *inner);
  }
  return fits;
}

// Returns the fit of the last fitting values, which other nodes read and which lead to no other fit; nullopt if they
// differ.
std::optional<InnerPixels> FindInnerPixels(const Prober& prober, size_t channels) {
  const std::map<ValueId, InnerPixels> fits = FitAll(prober, Responder(prober, channels));
  const std::vector<Node>& nodes = prober.graph().nodes();
  std::vector<bool> leads(prober.graph().values().size());  // true for fitting values and those that lead to one
  for (const auto& [v, inner] : fits) leads[v] = true;
  const auto goes_on = [&](const Node& node) {
    return std::ranges::any_of(node.outputs, [&](ValueId y) { return leads[y]; });
  };
  std::set<ValueId> ends;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    for (const ValueId v : node->inputs) {
      if (v == kNoValue) continue;
      if (goes_on(*node)) {
        leads[v] = true;
      } else {
        ends.insert(v);
      }
    }
  }
  std::optional<InnerPixels> found;
  for (const auto& [v, inner] : fits) {
    if (!ends.contains(v)) continue;
    if (found.has_value() && !AreEqual(*found, inner)) return std::nullopt;
    found = inner;
  }
  return found;
}

bool ChangesPixels(const InnerPixels& inner) {
  return inner.reversed || std::ranges::any_of(inner.scale, [](double a) { return a != 1; }) ||
         std::ranges::any_of(inner.shift, [](double b) { return b != 0; });
}

// Returns how unsuitable the outputs for inputs from `low` to `high` are as model inputs: 0 is centered around 0; above
// 1, they are too narrow, too wide or too far from 0.
double Misfit(const InnerPixels& inner, double low, double high) {
  double worst = 0;
  for (size_t c = 0; c < inner.scale.size(); ++c) {
    const double span = inner.scale[c] * (high - low);
    const double center = inner.shift[c] + inner.scale[c] * (high + low) / 2;
    const bool less_mean = inner.shift[c] != 0 && span >= 200 && span <= 300;
    const bool usual = (span >= 0.9 && span <= 6) || less_mean;
    worst = std::max(worst, usual ? std::fabs(center) / span : 2);
  }
  return worst;
}

// Derives RGB or BGR from the order in which the model subtracts ImageNet's mean (range 0 to 1).
std::string FindOrder(const InnerPixels& inner, double white) {
  constexpr double kMean[] = {0.485, 0.456, 0.406};
  const auto is_mean = [&](size_t c, double mean) {
    return std::fabs(-inner.shift[c] / inner.scale[c] / white - mean) < 0.006;
  };
  if (inner.scale.size() != 3) return "";
  const bool rgb = is_mean(0, kMean[0]) && is_mean(1, kMean[1]) && is_mean(2, kMean[2]);
  const bool bgr = is_mean(0, kMean[2]) && is_mean(1, kMean[1]) && is_mean(2, kMean[0]);
  return rgb ? "rgb" : bgr ? "bgr" : "";
}

// Returns the axis of the three channels of a sample; -1: it has one channel.
int FindChannelAxis(const Shape& sample) {
  if (sample.size() != 3) return -1;
  return sample[0] == 3 ? 0 : sample[2] == 3 ? 2 : -1;
}

// Evaluates the nodes after the input of `feed` and returns the affine function that they apply to all pixels; nullopt
// if there is none, or if the paths differ.
std::optional<InnerPixels> FindInnerPixels(const OnnxModel& model, ImportOptions options, const FeedSpec& feed) {
  Shape shape = feed.sample.shape;
  if (feed.height_axis >= 0) shape[feed.height_axis] = shape[feed.height_axis + 1] = kOpenSide;
  if (NumElements(shape) > kMaxElements) return std::nullopt;
  const int channel_axis = FindChannelAxis(shape);
  const size_t channels = channel_axis < 0 ? 1 : 3;
  options.outputs = FirstValues(model, feed.feed);
  if (options.outputs.empty()) return std::nullopt;
  shape.insert(shape.begin(), 1);
  options.input_shapes[feed.feed] = std::move(shape);
  options.batch = 1;
  const auto imported = Import(model, options);
  if (!imported.ok() || imported->graph.FindInput(feed.feed) == nullptr) return std::nullopt;
  const auto inner = FindInnerPixels(Prober(*imported, feed.feed, channel_axis), channels);
  return inner.has_value() && ChangesPixels(*inner) ? inner : std::nullopt;
}

PixelProposal ProposePixels(const InnerPixels& inner) {
  constexpr double kMostMisfit = 0.6;  // pixels from 0 to 1 have a misfit of 0.5
  const struct {
    const char* normalize;
    double low, high;
  } forms[] = {{"raw", 0, 255}, {"unit", 0, 1}, {"0.5/0.5", -1, 1}};
  PixelProposal best;
  double least = kMostMisfit, white = 1;
  const bool shifts = !std::ranges::all_of(inner.shift, [](double b) { return b == 0; });
  const bool scales = shifts || !std::ranges::all_of(inner.scale, [](double a) { return a == 1; });
  for (const auto& form : forms) {
    const double misfit = Misfit(inner, form.low, form.high);
    if (!scales || misfit >= least || (form.low < 0 && !shifts)) continue;  // a factor alone keeps signs
    least = misfit;
    white = form.high;
    best.normalize = form.normalize;
  }
  if (!best.normalize.empty() && best.normalize != "0.5/0.5") best.order = FindOrder(inner, white);
  if (best.order.empty() && inner.reversed) best.order = "rgb";
  return best;
}

// The pixel format that a model declares; "": none.
struct PixelForm {
  std::string normalize, order, source;

  bool empty() const { return normalize.empty() && order.empty(); }
};

PixelForm ReadGraphForm(const OnnxModel& model, const ImportOptions& import, const FeedSpec& feed) {
  const std::optional<InnerPixels> inner = FindInnerPixels(model, import, feed);
  const PixelProposal proposal = inner.has_value() ? ProposePixels(*inner) : PixelProposal();
  return {.normalize = proposal.normalize,
          .order = proposal.order,
          .source = StrCat("what it does to input '", feed.feed, "' first")};
}

PixelForm ReadMetadataForm(const OnnxModel& model) {
  struct Range {
    const char *name, *normalize;
  };
  static constexpr Range kRanges[] = {
      {"NominalRange_0_255", "raw"}, {"Normalized_0_1", "unit"}, {"Normalized_1_1", "0.5/0.5"}};
  PixelForm form{.source = "its metadata"};
  const std::string& range = FindModelMetadata(model, "Image.NominalPixelRange");
  for (const Range& r : kRanges) {
    if (range == r.name) form.normalize = r.normalize;
  }
  const std::string& format = FindModelMetadata(model, "Image.BitmapPixelFormat");
  form.order = format.starts_with("Bgr") ? "bgr" : format.starts_with("Rgb") ? "rgb" : "";
  return form;
}

PixelForm ReadProcessorForm(const std::string& model_path) {
  const ProcessorConfig config = ReadProcessorConfig(model_path);
  return {.normalize = config.normalize, .source = config.path};
}

std::vector<double> PerChannel(std::vector<double> values, double none) {
  if (values.empty()) values = {none};
  if (values.size() == 1) values.resize(3, values[0]);
  return values;
}

bool AreEqual(const std::string& a, const std::string& b) {
  const auto x = ParseNormalize(a), y = ParseNormalize(b);
  return x.ok() && y.ok() && x->scale == y->scale && PerChannel(x->mean, 0) == PerChannel(y->mean, 0) &&
         PerChannel(x->std, 1) == PerChannel(y->std, 1);
}

// A view with the three channels in reverse order.
class ReversedChannels : public DatasetView {
 public:
  using DatasetView::DatasetView;
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    RETURN_IF_ERROR(source_->Read(i, c, pass, out));
    const Column& column = columns()[c];
    if (!column.image || column.sample.rank() != 3) return absl::OkStatus();
    const bool last = column.sample.shape[2] == 3 && column.sample.shape[0] != 3;
    const size_t plane = out.size() / 3;
    for (size_t p = 0; p < plane; ++p) std::swap(out[last ? 3 * p : p], out[last ? 3 * p + 2 : 2 * plane + p]);
    return absl::OkStatus();
  }
};

bool HasThreeChannels(const Column& column) {
  const Shape& shape = column.sample.shape;
  return column.picture && shape.size() == 3 && (shape.front() == 3 || shape.back() == 3);
}

bool IsImageFeed(const FeedSpec& feed, const Dataset& data) {
  return feed.columns.size() == 1 && data.columns()[feed.columns[0]].image;
}

// Takes samples at regular distances, so that all classes are likely among them.
TrainData TakeSamples(const TrainData& data, int64_t multiple) {
  constexpr int64_t kSamples = 64;
  const int64_t size = data.dataset->size();
  const int64_t count = std::min(size, std::max<int64_t>(1, kSamples / multiple) * multiple);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i * size / count);
  return {SubsetDataset(data.dataset, std::move(rows)), data.specs};
}

// Returns the samples with another normalization, and with reversed channels if `reversed`; fails if it does not apply.
absl::StatusOr<TrainData> Renormalize(const TrainData& data, const std::string& normalize, bool reversed) {
  TrainData other = data;
  if (reversed) other.dataset = std::make_shared<ReversedChannels>(data.dataset);
  ASSIGN_OR_RETURN(const PixelScale pixels, ParseNormalize(normalize));
  for (FeedSpec& feed : other.specs) {
    if (!IsImageFeed(feed, *data.dataset)) continue;
    feed.channel_axis = 0;
    RETURN_IF_ERROR(SetPixelScale(pixels, &feed));
  }
  return other;
}

std::string DescribeFlags(const std::string& normalize, bool reversed, const OpenedData& data) {
  if (!reversed) return StrCat("`normalize` ", normalize);
  const bool bgr = data.pictures->channel_order == "bgr";
  return StrCat("`normalize` ", normalize, " `channel_order` ", bgr ? "rgb" : "bgr");
}

}  // namespace

std::string DescribeDeclaredPixels(const OnnxModel& model, const ImportOptions& import, const FeedSpec& feed,
                                   const GivenPixels& given) {
  PixelForm form = ReadGraphForm(model, import, feed);
  if (form.empty() && !given.specified) form = ReadMetadataForm(model);
  if (form.empty() && !given.specified) form = ReadProcessorForm(model.path());
  std::string flags;
  if (!form.normalize.empty() && !AreEqual(form.normalize, given.normalize)) flags = "`normalize` " + form.normalize;
  if (!form.order.empty() && given.bgr.has_value() && *given.bgr != (form.order == "bgr"))
    StrAppend(&flags, flags.empty() ? "" : " ", "`channel_order` ", form.order);
  return flags.empty() ? "" : StrCat("the model wants other pixels, says ", form.source, ": ", flags);
}

absl::StatusOr<std::string> FindBetterPixels(Session& session, const OpenedData& data, const TrainData& samples) {
  constexpr double kGood = 0.7, kGain = 0.25;  // four standard deviations of 64 samples
  const auto feed =
      std::ranges::find_if(samples.specs, [&](const auto& f) { return IsImageFeed(f, *samples.dataset); });
  if (!session.loss().classes || feed == samples.specs.end()) return "";
  const TrainData few = TakeSamples(samples, std::max<int64_t>(1, session.fixed_batch()));
  ASSIGN_OR_RETURN(const EvalMetrics now, EvaluateAll(session, few, 0));
  double best = std::max(now.accuracy + kGain, 0.0);
  std::string flags;
  const bool order = HasThreeChannels(samples.dataset->columns()[feed->columns[0]]);
  for (const bool reversed : {false, true}) {
    if (now.accuracy >= kGood || (reversed && !order)) break;
    for (const char* normalize : {"unit", "raw", "imagenet", "0.5/0.5"}) {
      const auto other = Renormalize(few, normalize, reversed);
      if (!other.ok()) continue;
      ASSIGN_OR_RETURN(const EvalMetrics then, EvaluateAll(session, *other, 0));
      if (then.accuracy <= best) continue;
      best = then.accuracy;
      flags = DescribeFlags(normalize, reversed, data);
    }
  }
  if (flags.empty()) return "";
  return absl::StrFormat(
      "the pixels are probably normalized in another way: of %d samples the model predicts %.0f%%, "
      "and %.0f%% with %s",
      few.dataset->size(), 100 * now.accuracy, 100 * best, flags);
}

}  // namespace onnxtrain
