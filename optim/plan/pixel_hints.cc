#include "optim/plan/pixel_hints.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json_reader.h"
#include "frontend/onnx/read/model_metadata.h"
#include "optim/plan/inner_pixels.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// What a model wants of its pixels; "": it does not say.
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

absl::Status ReadProcessor(const Json& json, PixelForm* form) {
  bool rescales = true, normalizes = true;
  std::vector<double> mean, std;
  RETURN_IF_ERROR(ReadField(json, "do_rescale", &rescales));
  RETURN_IF_ERROR(ReadField(json, "do_normalize", &normalizes));
  RETURN_IF_ERROR(ReadField(json, "image_mean", &mean));
  RETURN_IF_ERROR(ReadField(json, "image_std", &std));
  if (mean.empty() || std.empty()) normalizes = false;
  if (!json.contains("image_mean") && !json.contains("do_rescale")) return Invalid("it is no image processor");
  form->normalize = normalizes ? StrCat(absl::StrJoin(mean, ","), "/", absl::StrJoin(std, ",")) : "unit";
  if (!rescales) form->normalize = normalizes ? "" : "raw";
  return absl::OkStatus();
}

// Of the file that transformers writes beside a model.
PixelForm ReadProcessorForm(const std::string& model_path) {
  const std::string path = (std::filesystem::path(model_path).parent_path() / "preprocessor_config.json").string();
  PixelForm form{.source = path};
  auto file = InputFile::Open(path);
  if (!file.ok()) return form;
  const auto text = ReadAll(file->reader(), 1 << 20);
  const Json json = text.ok() ? ParseJson<Json>(*text) : Json();
  if (!json.is_object() || !ReadProcessor(json, &form).ok()) form.normalize.clear();
  return form;
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

// Shows three channels in reverse order.
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

// Samples that lie apart, so that those of all classes are among them.
TrainData TakeSamples(const TrainData& data, int64_t multiple) {
  constexpr int64_t kSamples = 64;
  const int64_t size = data.dataset->size();
  const int64_t count = std::min(size, std::max<int64_t>(1, kSamples / multiple) * multiple);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i * size / count);
  return {SubsetDataset(data.dataset, std::move(rows)), data.specs};
}

// The samples with another normalization, and the channels as they are or reversed; fails where they do not fit.
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
