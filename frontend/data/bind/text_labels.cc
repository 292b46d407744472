#include "frontend/data/bind/text_labels.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// The classes of all texts, one after the other.
struct TextClasses {
  std::vector<int32_t> classes;
  std::vector<int64_t> ends;               // by sample
  std::map<int64_t, absl::Status> errors;  // of samples that cannot be read
  int64_t longest = 1;

  void Add(const absl::StatusOr<std::vector<int64_t>>& text) {
    if (text.ok()) {
      classes.insert(classes.end(), text->begin(), text->end());
      longest = std::max(longest, static_cast<int64_t>(text->size()));
    } else {
      errors.emplace(std::ssize(ends), text.status());
    }
    ends.push_back(std::ssize(classes));
  }
};

class TextClassView : public DatasetView {
 public:
  TextClassView(std::shared_ptr<const Dataset> source, int column, TextClasses texts, int64_t padding)
      : DatasetView(std::move(source)),
        column_(column),
        padding_(padding),
        texts_(std::move(texts)),
        columns_(source_->columns()) {
    Column& own = columns_[column];
    own.sample = {DType::kInt64, {texts_.longest}};
    own.text = false;
    own.problem.clear();
  }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c != column_) return source_->Read(i, c, pass, out);
    if (const auto error = texts_.errors.find(i); error != texts_.errors.end()) return error->second;
    auto* values = reinterpret_cast<int64_t*>(out.data());
    const int64_t begin = i == 0 ? 0 : texts_.ends[i - 1], count = texts_.ends[i] - begin;
    std::copy_n(texts_.classes.begin() + begin, count, values);
    std::fill(values + count, values + texts_.longest, padding_);
    return absl::OkStatus();
  }
  int64_t memory_bytes() const override {
    return source_->memory_bytes() + std::ssize(texts_.classes) * static_cast<int64_t>(sizeof(int32_t)) +
           std::ssize(texts_.ends) * static_cast<int64_t>(sizeof(int64_t));
  }

 private:
  int column_;
  int64_t padding_;
  TextClasses texts_;
  std::vector<Column> columns_;
};

class PaddedView : public DatasetView {
 public:
  PaddedView(std::shared_ptr<const Dataset> source, int column, int64_t length, int64_t padding)
      : DatasetView(std::move(source)), column_(column), padding_(padding), columns_(source_->columns()) {
    columns_[column].sample.shape[0] = length;
  }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c != column_) return source_->Read(i, c, pass, out);
    const int64_t own = source_->columns()[c].sample.shape[0];
    RETURN_IF_ERROR(source_->Read(i, c, pass, out.first(own * sizeof(int64_t))));
    auto* values = reinterpret_cast<int64_t*>(out.data());
    std::fill(values + own, values + columns_[c].sample.shape[0], padding_);
    return absl::OkStatus();
  }

 private:
  int column_;
  int64_t padding_;
  std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> WithTextClasses(std::shared_ptr<const Dataset> source, int column,
                                                               const Alphabet& alphabet, int64_t padding,
                                                               bool skip_bad) {
  TextClasses texts;
  const std::string& name = source->columns()[column].name;
  for (int64_t i = 0; i < source->size(); ++i) {
    auto text = source->ReadText(i, column);
    while (text.ok() && (text->ends_with('\n') || text->ends_with('\r'))) text->pop_back();
    auto classes = text.ok() ? alphabet.Encode(*text) : absl::StatusOr<std::vector<int64_t>>(text.status());
    if (text.ok() && !classes.ok())
      classes = Annotate(classes.status(), StrCat(source->Describe(i), ", column '", name, "': "));
    if (!classes.ok() && !skip_bad) return classes.status();
    texts.Add(classes);
  }
  return std::make_shared<TextClassView>(std::move(source), column, std::move(texts), padding);
}

std::shared_ptr<const Dataset> WithPadding(std::shared_ptr<const Dataset> source, int column, int64_t length,
                                           int64_t padding) {
  return std::make_shared<PaddedView>(std::move(source), column, length, padding);
}

}  // namespace onnxtrain
