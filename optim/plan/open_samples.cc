#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/bind/split.h"
#include "frontend/data/load/cache.h"
#include "frontend/data/sources/file.h"
#include "optim/config/loss_text.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/folders.h"
#include "optim/plan/open_data.h"

namespace onnxtrain {

TrainConfig WithSplitFiles(TrainConfig config) {
  if (!FindFolderColumns(config, std::nullopt, config.data, true).empty()) return config;
  const auto files = FindSplitFiles(config.data);
  if (!files.has_value()) return config;
  config.data = files->train;
  if (config.eval_data.empty() && config.eval_split.empty()) config.eval_data = files->eval;
  return config;
}

std::string FindEvalFile(const TrainConfig& config, bool want_label) {
  if (!FindFolderColumns(config, std::nullopt, config.data, true).empty()) return config.data;
  const auto files = FindSplitFiles(config.data);
  if (!files.has_value()) return config.data;
  const std::string& file = want_label || files->test.empty() ? files->eval : files->test;
  return file.empty() ? files->train : file;
}

std::string SplitColumn(const TrainConfig& config) {
  const bool fraction = ParseNumber(config.eval_split).ok() || config.eval_split.starts_with("last:");
  return fraction ? "" : config.eval_split;
}

absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options) {
  if (data.size() < 2) return Invalid("`eval_split`: ", data.Describe(0), ": is the only sample: it cannot be split");
  HeldOut held_out;
  if (const std::string column = SplitColumn(config); !column.empty()) {
    held_out.text = StrCat("samples that column '", column, "' selects");
    ASSIGN_OR_RETURN(held_out.rows, SplitByColumn(data.size(), config.data, options, column));
    return held_out;
  }
  const auto split = ParseSplit(config.eval_split);
  if (!split.ok()) return Annotate(split.status(), "`eval_split`: ");
  const std::string part = StrCat(FormatNumber(100 * split->fraction), "% of the data");
  held_out.text = split->last ? StrCat("the last ", part) : StrCat("about ", part, ", by hash");
  held_out.rows = split->last ? SplitAtEnd(data.size(), split->fraction)
                              : SplitByHash(data, split->fraction, static_cast<uint64_t>(config.seed));
  return held_out;
}

namespace {

// Returns true if the text columns had numbers for names in training, as in a file without a header, whose texts may
// look like names.
bool HadNoHeader(const std::optional<Preprocess>& before) {
  const auto numbered = [](const std::string& name) { return ParseInt(name).ok(); };
  return before.has_value() && !before->text.columns.empty() && std::ranges::all_of(before->text.columns, numbered);
}

Header HeaderKind(const TrainConfig& config, const std::optional<Preprocess>& before) {
  if (config.header == "auto" && HadNoHeader(before)) return Header::kNo;
  return config.header == "yes" ? Header::kYes : config.header == "no" ? Header::kNo : Header::kAuto;
}

// Returns the last column that may be a label.
int LastColumn(const std::vector<Column>& columns, const std::string& leave_out, const DatasetOptions& options) {
  auto last = static_cast<int>(columns.size()) - 1;
  const auto is_text = [&](const Column& c) {
    return c.text && !(options.text_labels && !options.text.contains(c.name));
  };
  while (last > 0 && (is_text(columns[last]) || columns[last].name == leave_out)) --last;
  return last;
}

// Returns the column of a text that is the label by its name.
std::optional<int> FindTextLabel(const std::vector<Column>& columns) {
  for (const char* name : {"text", "transcription", "transcript", "sentence", "normalized_text"}) {
    const auto found = std::ranges::find(columns, name, &Column::name);
    if (found != columns.end()) return static_cast<int>(found - columns.begin());
  }
  return std::nullopt;
}

// Opens the data set; opens it again if the label column, found by name, is not the default one of the format.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenWithLabel(const DataRequest& request, DatasetOptions options,
                                                             bool label_known) {
  const bool explicit_label = !options.label.empty();
  std::vector<std::string> class_names;
  if (!request.want_label) options.class_names.clear();                       // other class names are no error
  if (!explicit_label) class_names = std::exchange(options.class_names, {});  // names of a column not known yet
  if (!request.folders.empty()) return OpenPicturePairs(request.path, request.folders, options.images);
  auto dataset = OpenDataset(request.path, options);
  if (!dataset.ok() && explicit_label && !label_known && absl::IsNotFound(dataset.status())) {
    options.label.clear();
    options.class_names.clear();
    return OpenDataset(request.path, options);
  }
  const bool table = IsTableFile(request.path);
  if (!dataset.ok() || explicit_label || (!table && class_names.empty())) return dataset;
  const std::vector<Column>& columns = (*dataset)->columns();
  ASSIGN_OR_RETURN(std::optional<int> named, LabelByName(columns, request.want_label));
  if (options.text_labels && !named.has_value()) named = FindTextLabel(columns);
  const bool sorted = named.has_value() && !columns[*named].classes.empty() && columns[*named].classes != class_names;
  if (!table && !sorted) return dataset;
  const auto last = static_cast<int>(columns.size()) - 1;
  const int label = named.value_or(LastColumn(columns, request.leave_out, options));
  if (label == last && class_names.empty()) return dataset;
  options.class_names = std::move(class_names);
  options.label = {columns[label].name};
  return OpenDataset(request.path, options);
}

// Returns the columns that must not be transformed: labels, and the column that splits the data.
absl::StatusOr<std::set<std::string>> FindUntouched(const std::vector<Column>& columns, const DataRequest& request,
                                                    const DatasetOptions& options, const LossSpec& loss) {
  const std::vector<std::string>& label = options.label;
  std::set<std::string> names = {request.leave_out};
  for (const std::string& name : label) names.insert(ResolveColumn(columns, name));
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(loss.name));
  for (const LossTermSpec& term : terms) names.insert(term.label.begin(), term.label.end());
  if (!label.empty()) return names;
  ASSIGN_OR_RETURN(const std::optional<int> named, LabelByName(columns, request.want_label));
  const bool by_place = request.want_label && IsTableFile(request.path) && columns.size() > 1;
  if (named.has_value()) names.insert(columns[*named].name);
  if (!named.has_value() && by_place) names.insert(columns[LastColumn(columns, request.leave_out, options)].name);
  return names;
}

std::vector<int64_t> TrainingRows(const OpenedSamples& opened) {
  if (opened.held_out.has_value()) return opened.held_out->rows.train;
  std::vector<int64_t> all(opened.dataset->size());
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

// Returns the transforms of the model's preprocess.json that apply to the columns of another file. New training data
// may have other columns.
std::vector<ColumnTransform> CarryOver(const Preprocess& before, const std::vector<Column>& columns,
                                       bool same_columns) {
  std::vector<ColumnTransform> transforms = before.columns;
  for (ColumnTransform& t : transforms) t.column = FindCounterpart(columns, t.column);
  if (!same_columns) std::erase_if(transforms, [&](const ColumnTransform& t) { return !HasColumn(columns, t.column); });
  return transforms;
}

// Sets how text columns are read, and whether numbers may be missing.
void AllowTransforms(const TransformSpec& spec, const std::optional<Preprocess>& before, DatasetOptions* options) {
  options->categories = spec.encoded();
  options->missing = spec.filled();
  if (!before.has_value()) return;
  for (const ColumnTransform& t : before->columns) {
    if (!t.categories.empty()) options->categories.names.insert(t.column);
    if (!t.fill.empty()) options->missing.names.insert(t.column);
  }
}

struct ColumnRoles {
  std::vector<ColumnTransform> texts;  // transforms of the columns that feed inputs of strings
  std::set<std::string> untouched;     // columns that the other transforms skip
};

// Opens the data set; opens it again if a column turns out to feed an input of strings.
absl::StatusOr<ColumnRoles> OpenFile(const TrainConfig& config, const DataRequest& request, bool fits,
                                     const LossSpec& loss, DatasetOptions* options, OpenedSamples* opened) {
  ColumnRoles roles;
  for (bool reopen = true; std::exchange(reopen, false);) {
    ASSIGN_OR_RETURN(opened->dataset, OpenWithLabel(request, *options, !config.label.empty()));
    opened->file_columns = opened->dataset->columns();
    if (!fits && request.raw_inputs.empty()) return roles;
    ASSIGN_OR_RETURN(roles.untouched, FindUntouched(opened->file_columns, request, *options, loss));
    roles.texts = PlaceTexts(request.raw_inputs, opened->file_columns, roles.untouched, options, &reopen);
  }
  for (const ColumnTransform& t : roles.texts) opened->text_columns.insert(t.column);
  roles.untouched.insert(opened->text_columns.begin(), opened->text_columns.end());
  return roles;
}

std::string DescribeTransform(const ColumnTransform& t) {
  if (t.categories.empty()) return "";
  if (t.open) return StrCat("column '", t.column, "' ← strings, which the model encodes");
  return StrCat("column '", t.column, "' ← ", t.categories.size(), t.one_hot ? " one-hot" : " numbered",
                " categories: ", t.categories.front(), t.categories.size() > 1 ? " … " + t.categories.back() : "");
}

absl::Status CheckNotEncoded(const TransformSpec& spec, const std::vector<ColumnTransform>& texts) {
  for (const ColumnTransform& t : texts) {
    for (const auto& [flag, columns] : {std::pair("encode", &spec.encode_of), std::pair("fill", &spec.fill_of)}) {
      if (columns->contains(t.column))
        return Invalid("`", flag, "` ", t.column, "=…: the column feeds an input of strings, which the model encodes");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> OpenedSamples::Resolve(const std::string& column) const {
  if (transforms.empty()) return {column};
  return TransformedColumns(transforms, ResolveColumn(file_columns, column));
}

absl::StatusOr<OpenedSamples> OpenSamples(const TrainConfig& config, const std::optional<Preprocess>& before,
                                          const DataRequest& request, DatasetOptions options, const LossSpec& loss) {
  TransformSpec spec;
  if (request.fit) {
    ASSIGN_OR_RETURN(spec, ParseTransforms(config.encode, config.fill));
  }
  const bool fits = request.fit && (!config.encode.empty() || !config.fill.empty());
  AllowTransforms(spec, fits ? std::nullopt : before, &options);
  AllowRawInputs(request.raw_inputs, &options);
  options.header = HeaderKind(config, before);
  options.skip_bad = config.on_bad_sample == "skip";
  OpenedSamples opened;
  ColumnRoles roles;
  ASSIGN_OR_RETURN(roles, OpenFile(config, request, fits, loss, &options, &opened));
  RETURN_IF_ERROR(CheckNotEncoded(spec, roles.texts));
  opened.notes = opened.dataset->notes();
  if (request.hold_out && request.fit && !config.eval_split.empty() && config.eval_data.empty()) {
    ASSIGN_OR_RETURN(opened.held_out, HoldOutSamples(config, *opened.dataset, options));
  }
  if (fits) {
    ASSIGN_OR_RETURN(opened.transforms, FitTransforms(*opened.dataset, TrainingRows(opened), spec, roles.untouched));
    const auto encoded = [](const ColumnTransform& t) { return !t.categories.empty(); };
    const auto filled = [](const ColumnTransform& t) { return !t.fill.empty(); };
    RETURN_IF_ERROR(RefuseUnused(config, {.has_categories = std::ranges::any_of(opened.transforms, encoded),
                                          .has_gaps = std::ranges::any_of(opened.transforms, filled)}));
  } else if (before.has_value()) {
    const bool same_columns = request.same_columns && !HoldsModelInputs(opened.file_columns, before->inputs);
    opened.transforms = CarryOver(*before, opened.file_columns, same_columns);
  }
  std::vector<ColumnTransform> applied = opened.transforms;
  applied.insert(applied.end(), roles.texts.begin(), roles.texts.end());
  for (const ColumnTransform& t : applied) {
    if (std::string text = DescribeTransform(t); !text.empty()) opened.notes.push_back(std::move(text));
  }
  ASSIGN_OR_RETURN(opened.dataset, ApplyTransforms(std::move(opened.dataset), applied, &opened.notes));
  return opened;
}

std::string FindCounterpart(const std::vector<Column>& columns, const std::string& name) {
  const size_t at = name.find("train");
  if (HasColumn(columns, name) || at == std::string::npos) return name;
  for (const std::string_view part : kEvalPartNames) {
    std::string other = name;
    other.replace(at, 5, part);
    if (HasColumn(columns, other)) return other;
  }
  return name;
}

absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config) {
  if (config.cache == "none") return nullptr;
  if (config.cache == "ram") return std::make_shared<CacheBudget>(DefaultMemoryLimit());
  const auto bytes =
      config.cache.starts_with("ram:") ? ParseSize(config.cache.substr(4)) : absl::StatusOr<int64_t>(Invalid(""));
  if (!bytes.ok() || *bytes < 1)
    return Invalid("`cache`: expected none, ram or ram:SIZE like ram:2GiB, got '", config.cache, "'");
  return std::make_shared<CacheBudget>(*bytes);
}

absl::Status KeepInMemory(const TrainConfig& config, const std::string& path,
                          const std::shared_ptr<CacheBudget>& budget, BoundData* bound) {
  std::vector<int> columns;
  for (const FeedSpec& feed : bound->feeds) columns.insert(columns.end(), feed.columns.begin(), feed.columns.end());
  auto cached = CacheInRam(bound->dataset, columns, budget);
  if (cached == nullptr) return RefuseUnused(config, {.subject = path, .decodes = false});
  bound->dataset = std::move(cached);
  bound->notes.push_back(StrCat("decoded samples stay in memory, up to ",
                                FormatBytes(static_cast<double>(budget->bytes())), " (`cache`)"));
  return absl::OkStatus();
}

}  // namespace onnxtrain
