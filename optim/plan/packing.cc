#include "optim/plan/packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "frontend/base/philox.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/text/token_rows.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/text_setup.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

PackedInputs FindPackedInputs(const OnnxModel& model) {
  PackedInputs packed;
  for (const ModelInput& input : model.inputs()) {
    if (IsPairMask(input)) packed.separates = true;
    if (!IsTokenInput(input)) continue;
    const std::optional<TokenRole> role = FindTokenRole(input.name);
    if (role == TokenRole::kMask || role == TokenRole::kPadding) {
      packed.constants[input.name] = role == TokenRole::kMask ? 1 : 0;
    } else {
      packed.tokens.push_back(input.name);
    }
  }
  return packed;
}

absl::Status CheckPackable(const TrainConfig& config, const OnnxModel& model, const LanguageModel& language,
                           int64_t length) {
  if (!language.own_loss.empty())
    return Invalid("the model has no output of logits: it computes its loss, '", language.own_loss, "', itself");
  if (config.pipeline > 1 || config.tensor > 1)
    return Invalid("no process has the whole model to prove it on (`pipeline`, `tensor`)");
  ASSIGN_OR_RETURN(ImportOptions import, MakeImportOptions(config, model));
  import.packed = FindPackedInputs(model);
  if (import.packed.separates) return absl::OkStatus();
  for (const std::string& name : import.packed.tokens) import.input_shapes[name] = {kTrialBatch, length};
  for (const auto& [name, number] : import.packed.constants) import.input_shapes[name] = {kTrialBatch, length};
  const PrepareOptions options{.import = std::move(import), .loss = MakeOutputSpec(config, model)};
  return ImportForward(model, options, kTrialBatch, /*training=*/true).status();
}

namespace {

constexpr size_t kSamples = 3;

// Three samples of random tokens that fill most of a row, and their lengths.
class TrialRows {
 public:
  TrialRows(std::shared_ptr<const Dataset> source, int64_t length, int64_t ids)
      : source_(std::move(source)), length_(length), ids_(ids) {
    lengths_ = {length / 3, length / 4, length - length / 3 - length / 4 - length / 8};
  }

  int64_t Begin(size_t sample) const { return sample == 0 ? 0 : Begin(sample - 1) + lengths_[sample - 1]; }
  int64_t Length(size_t sample) const { return lengths_[sample]; }

  // Returns `count` equal rows of these samples. The tokens of `changed` are other ones.
  std::shared_ptr<const Dataset> Make(const std::vector<size_t>& samples, size_t changed, int64_t count) const {
    AnsweredSamples answered;
    std::vector<int64_t> row;
    for (const size_t s : samples) {
      AnsweredSample sample{.trained = std::vector<uint8_t>(lengths_[s], 1)};
      for (int64_t k = 0; k < lengths_[s]; ++k) sample.ids.push_back(Token(s, k, s == changed));
      row.push_back(answered.size());
      answered.Add(sample, 0);
    }
    const BlockOptions options{.length = length_, .max_id = ids_ - 1, .separate = true};
    return std::make_shared<TokenRows>(source_, std::move(answered), std::vector(count, row), options, true);
  }

 private:
  int64_t Token(size_t sample, int64_t k, bool changed) const {
    const PhiloxBlock random = Philox4x32({static_cast<uint32_t>(k), static_cast<uint32_t>(sample), 0, 0}, {1, 2});
    const int64_t token = random[0] % ids_;
    return changed ? (token + 1 + random[1] % (ids_ - 1)) % ids_ : token;
  }

  std::shared_ptr<const Dataset> source_;
  int64_t length_, ids_;
  std::array<int64_t, kSamples> lengths_;
};

// Runs the model on trial rows.
class SeparationTrial {
 public:
  SeparationTrial(Session& session, const TrainData& data, const FeedSpec& ids)
      : session_(session), data_(data), rows_(data.dataset, ids.sample.shape[0], CountIds(ids)) {
    count_ = std::max<int64_t>(1, session.fixed_batch());
  }

  absl::Status Run(double tolerance) {
    const std::string& output = session_.loss().output();
    ASSIGN_OR_RETURN(const HostTensor whole, Predict({0, 1, 2}, kSamples));
    if (whole.type().rank() < 3)
      return Invalid("`packing`: output '", output, "' has no values per token to prove that samples are kept apart");
    for (size_t changed = 0; changed < kSamples; ++changed) {
      ASSIGN_OR_RETURN(const HostTensor other, Predict({0, 1, 2}, changed));
      for (size_t s = 0; s < kSamples; ++s) {
        if (s != changed && !AreSame(whole, other, s))
          return Invalid("`packing`: output '", output, "' of a sample changes with the tokens of another sample of ",
                         "its row");
      }
    }
    ASSIGN_OR_RETURN(const HostTensor alone, Predict({1}, kSamples));
    const double difference = Compare(whole, alone);
    if (difference <= tolerance) return absl::OkStatus();
    return Invalid("`packing`: output '", output, "' of the second sample of a row differs by ", difference,
                   " from that of the sample alone: its positions do not begin again");
  }

 private:
  static int64_t CountIds(const FeedSpec& ids) {
    return ids.range.has_value() ? static_cast<int64_t>(ids.range->max) + 1 : 2;
  }

  absl::StatusOr<HostTensor> Predict(const std::vector<size_t>& samples, size_t changed) {
    TrainData rows{.dataset = rows_.Make(samples, changed, count_)};
    const auto columns = static_cast<int>(rows.dataset->columns().size());
    std::vector<size_t> feeds;
    for (size_t i = 0; i < data_.specs.size(); ++i) {
      if (data_.specs[i].columns[0] >= columns) continue;  // the default of an input
      feeds.push_back(i);
      rows.specs.push_back(data_.specs[i]);
    }
    ASSIGN_OR_RETURN(GlobalBatch batch, ReadGlobalBatch(data_, count_));
    ASSIGN_OR_RETURN(const GlobalBatch trial, ReadGlobalBatch(rows, count_));
    for (size_t i = 0; i < feeds.size(); ++i) batch.Set(feeds[i], trial.tensor(i).Clone());
    ASSIGN_OR_RETURN(Evaluation e, session_.Predict(batch));
    const auto found = e.outputs.find(session_.loss().output());
    return found == e.outputs.end() ? HostTensor::Scalar(DType::kFloat32, 0) : std::move(found->second);
  }

  // Returns true if the outputs of a sample are the same bits.
  bool AreSame(const HostTensor& a, const HostTensor& b, size_t sample) const {
    const size_t row = a.bytes().size() / a.shape()[0], token = row / a.shape()[1];
    for (int64_t r = 0; r < a.shape()[0]; ++r) {
      const size_t begin = r * row + rows_.Begin(sample) * token;
      if (std::memcmp(&a.bytes()[begin], &b.bytes()[begin], rows_.Length(sample) * token) != 0) return false;
    }
    return true;
  }

  // Returns the largest difference between the second sample of `whole` and the first of `alone`, relative to the
  // largest value. Ignores NaN in both.
  double Compare(const HostTensor& whole, const HostTensor& alone) const {
    const int64_t token = whole.size() / whole.shape()[0] / whole.shape()[1], begin = rows_.Begin(1) * token;
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < rows_.Length(1) * token; ++i) {
      const double a = whole.At(begin + i), b = alone.At(i);
      largest = std::max(largest, std::abs(a));
      if (a != b && !(std::isnan(a) && std::isnan(b))) difference = std::max(difference, std::abs(a - b));
      if (std::isnan(a) != std::isnan(b)) return std::numeric_limits<double>::infinity();
    }
    return difference == 0 ? 0 : difference / largest;
  }

  Session& session_;
  const TrainData& data_;
  const TrialRows rows_;
  int64_t count_;
};

}  // namespace

absl::Status CheckSeparation(Session& session, const TrainData& data, const std::string& ids, DType compute) {
  constexpr double kRounding = 1e-5, kLowRounding = 5e-2;
  const auto feed = std::ranges::find(data.specs, ids, &FeedSpec::feed);
  constexpr int64_t kShortest = 8;  // three samples and padding
  if (feed == data.specs.end() || feed->sample.shape[0] < kShortest) return absl::OkStatus();
  return SeparationTrial(session, data, *feed).Run(DTypeSize(compute) < 4 ? kLowRounding : kRounding);
}

}  // namespace onnxtrain
