#include "frontend/data/bind/sound_lengths.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/names.h"

namespace onnxtrain {
namespace {

enum class LengthForm : uint8_t {
  kNumber,   // the length
  kFrames,   // 1 for frames, 0 for padding
  kPadding,  // 0 for frames, 1 for padding
};

std::optional<LengthForm> FindForm(const ModelInput& input) {
  if (!input.has_shape) return std::nullopt;
  const bool length = absl::StrContains(absl::AsciiStrToLower(input.name), "len");
  if (input.dims.size() == 1) return length ? std::optional(LengthForm::kNumber) : std::nullopt;
  const auto role = input.dims.size() == 2 ? FindTokenRole(input.name) : std::nullopt;
  if (role == TokenRole::kMask) return LengthForm::kFrames;
  return role == TokenRole::kPadding ? std::optional(LengthForm::kPadding) : std::nullopt;
}

class SoundLengthView : public DatasetView {
 public:
  SoundLengthView(std::shared_ptr<const Dataset> source, int sound)
      : DatasetView(std::move(source)), columns_(source_->columns()), sound_(columns_[sound]) {}

  void Add(const std::string& name, LengthForm form) {
    Column column{.name = name, .sample = {DType::kInt64, {}}, .measured = false};
    if (form != LengthForm::kNumber) {
      column.sample.shape = {frames()};
      column.variable = sound_.variable;
      column.sample_rate = sound_.sample_rate;  // not a sequence of tokens
    }
    columns_.push_back(std::move(column));
    forms_.push_back(form);
  }

  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return source_->StableName(i); }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    const int own = c - static_cast<int>(source_->columns().size());
    if (own < 0) return source_->Read(i, c, pass, out);
    const int64_t length = sound_.variable ? Length(i) : frames();
    const std::span values(reinterpret_cast<int64_t*>(out.data()), out.size() / sizeof(int64_t));
    if (forms_[own] == LengthForm::kNumber) return values[0] = length, absl::OkStatus();
    const int64_t sounding = forms_[own] == LengthForm::kFrames ? 1 : 0;
    for (int64_t t = 0; t < std::ssize(values); ++t) values[t] = t < length ? sounding : 1 - sounding;
    return absl::OkStatus();
  }

 private:
  int64_t frames() const { return sound_.sample.shape[sound_.length_axis]; }

  std::vector<Column> columns_;
  Column sound_;
  std::vector<LengthForm> forms_;
};

}  // namespace

std::shared_ptr<const Dataset> WithSoundLengths(const std::shared_ptr<const Dataset>& source, int sound,
                                                const std::vector<ModelInput>& inputs, const std::set<std::string>& fed,
                                                std::vector<std::string>* notes) {
  auto view = std::make_shared<SoundLengthView>(source, sound);
  const size_t columns = source->columns().size();
  for (const ModelInput& input : inputs) {
    const std::optional<LengthForm> form = FindForm(input);
    const bool given = fed.contains(input.name) ||
                       std::ranges::find(source->columns(), input.name, &Column::name) != source->columns().end();
    if (!form.has_value() || given) continue;
    view->Add(input.name, *form);
    notes->push_back(StrCat("input '", input.name, "' ← ",
                            form == LengthForm::kNumber ? "the lengths of the sounds" : "where the sounds are padded",
                            " (`input` ", input.name, "=COLUMN)"));
  }
  return view->columns().size() > columns ? view : source;
}

}  // namespace onnxtrain
