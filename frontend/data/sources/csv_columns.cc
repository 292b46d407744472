#include "frontend/data/sources/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/labels.h"

namespace onnxtrain {
namespace {

template <typename T>
bool ParseNumber(std::string_view s, T* value) {
  if (s.size() > 1 && s[0] == '+' && s[1] != '-') s.remove_prefix(1);
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), *value);
  return error == std::errc() && end == s.data() + s.size();
}

// Parses numbers with groups of three digits: 1,234,567.8, 1 234, 1'234 and 1_234. The first group must not begin with
// 0.
bool ParseGrouped(std::string_view s, double* value) {
  const std::string_view digits = s.substr(s.find_first_not_of("+-") == 1 ? 1 : 0);
  const size_t end = std::min(digits.find('.'), digits.size()), first = digits.find_first_not_of("0123456789");
  if (first == 0 || first > 3 || first >= end || digits[0] == '0') return false;
  const char separator = digits[first];
  if (std::string_view(", '_").find(separator) == std::string_view::npos) return false;
  if (digits.find(separator, end) != std::string_view::npos) return false;
  for (size_t i = 0; i < end; ++i) {
    const bool is_separator = digits[i] == separator, expects_separator = (end - i) % 4 == 0;
    if (is_separator != expects_separator) return false;
  }
  std::string plain(s);
  std::erase(plain, separator);
  return ParseNumber(plain, value);
}

// Parses 1,5, 1.234,5 and 1.234.567.
bool ParseDecimalComma(std::string_view s, double* value) {
  std::string swapped(s);
  for (char& c : swapped) c = c == ',' ? '.' : c == '.' ? ',' : c;
  return ParseNumber(swapped, value) || ParseGrouped(swapped, value);
}

// Removes a trailing percent sign or a currency sign on either side.
std::string_view StripUnit(std::string_view s) {
  if (s.ends_with('%')) return TrimBlanks(s.substr(0, s.size() - 1));
  for (const std::string_view currency : {"$", "€", "£", "¥"}) {
    if (s.starts_with(currency)) return TrimBlanks(s.substr(currency.size()));
    if (s.ends_with(currency)) return TrimBlanks(s.substr(0, s.size() - currency.size()));
  }
  return s;
}

bool IsSigned(std::string_view s) { return s.starts_with('-') || s.starts_with('+'); }

// Returns the amount in (5) and ($5), which accountants write for -5, and in -$5; "" for other texts.
std::string_view FindNegativeAmount(std::string_view s) {
  const bool brackets = s.starts_with('(') && s.ends_with(')') && s.size() > 2;
  const std::string_view inner =
      TrimBlanks(brackets ? s.substr(1, s.size() - 2) : s.substr(s.starts_with('-') ? 1 : 0));
  const std::string_view amount = StripUnit(inner);
  const bool negative = brackets || (s.starts_with('-') && amount.size() < inner.size());
  return negative && !inner.ends_with('%') && !IsSigned(amount) ? amount : std::string_view();
}

// Replaces typographic characters by ASCII: the minus U+2212 and the spaces U+00A0, U+2009 and U+202F.
std::string ReplaceTypesetting(std::string_view s) {
  std::string plain(s);
  for (const auto& [from, to] : {std::pair("\u2212", "-"), {"\u00a0", " "}, {"\u2009", " "}, {"\u202f", " "}}) {
    for (size_t at = plain.find(from); at != std::string::npos; at = plain.find(from, at + 1))
      plain.replace(at, std::string_view(from).size(), to);
  }
  return plain;
}

bool IsAscii(std::string_view s) {
  return std::ranges::all_of(s, [](unsigned char c) { return c < 128; });
}

// Parses plain numbers and 1,5 (with `decimal_comma`) or 1,234.5 (without), 12% and $5.
bool ParseWritten(std::string_view s, bool decimal_comma, double* value) {
  if (ParseNumber(s, value)) return true;
  std::string plain;
  if (!IsAscii(s)) {
    plain = ReplaceTypesetting(s);
    s = TrimBlanks(plain);
  }
  const std::string_view negative = FindNegativeAmount(s);
  s = negative.empty() ? StripUnit(s) : negative;
  if (!ParseNumber(s, value) && !(decimal_comma ? ParseDecimalComma(s, value) : ParseGrouped(s, value))) return false;
  if (!negative.empty()) *value = -*value;
  return true;
}

// Parses true, yes, t, y as 1 and their opposites as 0, for columns that hold nothing else.
std::optional<int64_t> ParseFlag(std::string_view s) {
  const std::string lower = absl::AsciiStrToLower(std::string(TrimBlanks(s)));
  for (const std::string_view name : {"true", "yes", "t", "y"}) {
    if (lower == name) return 1;
  }
  for (const std::string_view name : {"false", "no", "f", "n"}) {
    if (lower == name) return 0;
  }
  return std::nullopt;
}

std::string QuoteValue(std::string_view s) {
  size_t cut = std::min<size_t>(s.size(), 40);
  while (cut < s.size() && cut > 0 && (s[cut] & 0xC0) == 0x80) --cut;  // do not split a UTF-8 sequence
  return StrCat("'", Printable(s.substr(0, cut)), cut < s.size() ? "…'" : "'");
}

// Collects the numbers of a column: integers until a value is not one, then floats.
class Numbers {
 public:
  explicit Numbers(bool decimal_comma) : decimal_comma_(decimal_comma) {}

  // Returns false if the text is not a number.
  bool Add(std::string_view text) {
    text = TrimBlanks(text);
    int64_t i;
    double d;
    if (integral_ && ParseNumber(text, &i)) {
      ints_.push_back(i);
      return true;
    }
    if (!ParseWritten(text, decimal_comma_, &d) || std::isnan(d)) return false;
    double plain;
    const bool is_plain = ParseNumber(text, &plain);
    if (decimal_comma_ && text.find_first_of(".,") != std::string_view::npos) AddWithMark(text, is_plain);
    const bool is_obvious =
        is_plain || (decimal_comma_ && text.find('.') == std::string_view::npos && ParseDecimalComma(text, &plain));
    if (note_.empty() && !is_obvious) Note(text, d);
    AddFloat(d);
    return true;
  }
  void AddFloat(double value) {
    if (integral_) floats_.assign(ints_.begin(), ints_.end());
    integral_ = false;
    floats_.push_back(value);
  }
  void AddFlag(std::string_view text, int64_t value) {
    if (note_.empty()) Note(text, static_cast<double>(value));
    integral_ ? ints_.push_back(value) : floats_.push_back(static_cast<double>(value));
  }
  // Adds a placeholder that is never read.
  void AddPlaceholder() { integral_ ? ints_.push_back(0) : floats_.push_back(0); }

  HostTensor Tensor() {
    if (integral_) return HostTensor::FromInts(ints_);
    SettleGroups();
    return HostTensor::FromDoubles({DType::kFloat64, {static_cast<int64_t>(floats_.size())}}, floats_);
  }
  const std::string& note() const { return note_; }

 private:
  void Note(std::string_view text, double value) { note_ = StrCat(QuoteValue(text), " is read as ", value); }

  // Records what the separators in `text` imply for ambiguous values like 1.000, before the value is added.
  void AddWithMark(std::string_view text, bool is_plain) {
    double grouped;
    if (!is_plain) {
      has_commas_ = true;
    } else if (ParseDecimalComma(text, &grouped)) {
      if (groups_.empty()) first_group_ = text;
      groups_.emplace_back(integral_ ? ints_.size() : floats_.size(), grouped);
    } else {
      has_points_ = true;
    }
  }
  // Reads 1.000 as a thousand if other values have decimal commas and none has a decimal point.
  void SettleGroups() {
    if (groups_.empty() || has_points_) return;
    if (has_commas_) {
      for (const auto& [i, value] : groups_) floats_[i] = value;
      if (note_.empty()) Note(first_group_, groups_[0].second);
    } else if (note_.empty()) {
      note_ = StrCat(QuoteValue(first_group_), " is read as ", floats_[groups_[0].first], ", not as ",
                     groups_[0].second, ": no value of the column has a decimal comma");
    }
  }

  bool decimal_comma_, integral_ = true;
  bool has_commas_ = false, has_points_ = false;
  // Indices and values of numbers whose point or comma may separate thousands.
  std::vector<std::pair<size_t, double>> groups_;
  std::string first_group_;
  std::string note_;
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
};

// Collects names and numbers them in order of appearance.
class Names {
 public:
  void Add(const std::string& name) { ids_.push_back(FindId(name)); }
  int64_t FindId(const std::string& name) {
    const auto [it, added] = ids_of_.try_emplace(name, static_cast<int64_t>(names_.size()));
    if (added) names_.push_back(name);
    return it->second;
  }
  bool Has(const std::string& name) const { return ids_of_.contains(name); }
  const std::vector<int64_t>& ids() const { return ids_; }
  const std::vector<std::string>& names() const { return names_; }

  // Makes class indices of all fields. Classes are the names except `left_out` (index -1), sorted unless `fixed`.
  NamedTensor ClassIndices(const std::string& column, bool fixed, const std::string& left_out) const {
    std::vector<int64_t> order(names_.size()), place(names_.size(), -1), out;
    std::iota(order.begin(), order.end(), int64_t{0});
    std::erase_if(order, [&](int64_t id) { return names_[id] == left_out; });
    if (!fixed) std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return names_[a] < names_[b]; });
    std::vector<std::string> classes;
    for (int64_t id : order) {
      place[id] = static_cast<int64_t>(classes.size());
      classes.push_back(names_[id]);
    }
    for (int64_t id : ids_) out.push_back(place[id]);
    return {column, HostTensor::FromInts(out), std::move(classes)};
  }

 private:
  std::vector<int64_t> ids_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int64_t> ids_of_;
};

class ColumnBase : public CsvColumn {
 public:
  explicit ColumnBase(CsvColumnSpec spec) : spec_(std::move(spec)) {}

 protected:
  std::string InFile(int64_t row) const {
    return StrCat(spec_.unit, " ", row, ", column '", Printable(spec_.name), "': ");
  }
  std::string At(int64_t row) const { return StrCat(spec_.path, ": ", InFile(row)); }
  NamedTensor MakeUnusable(std::string problem) const {
    return {spec_.name, HostTensor({DType::kFloat64, {count_}}), {}, std::move(problem)};
  }
  NamedTensor WithUnreadable(NamedTensor column, std::map<int64_t, std::string> more = {}) {
    column.unreadable = std::move(unreadable_);
    column.unreadable.merge(more);
    return column;
  }

  CsvColumnSpec spec_;
  int64_t count_ = 0;                          // number of samples so far
  std::map<int64_t, std::string> unreadable_;  // reason, by sample
};

// A field that is not a number.
struct NonNumber {
  int64_t row = 0;
  std::string text;
  bool missing = false;
  bool decimal_comma = false;  // it would be a number with a decimal comma
};

class Feature : public ColumnBase {
 public:
  explicit Feature(CsvColumnSpec spec) : ColumnBase(std::move(spec)), numbers_(spec_.decimal_comma) {}

  absl::Status Add(int64_t row, const std::string& field) override {
    if (KeepsNames()) names_.Add(std::string(TrimBlanks(field)));
    if (!numbers_.Add(field)) AddNonNumber(row, field);
    ++count_;
    return absl::OkStatus();
  }
  void AddUnreadable(std::string why) override {
    if (KeepsNames()) names_.Add("");
    numbers_.AddPlaceholder();
    unreadable_.emplace(count_++, std::move(why));
  }
  NamedTensor Finish() override {
    if (KeepsNames() && (spec_.text == CsvColumnSpec::Text::kAlwaysCategories || IsMostlyText()))
      return FinishCategories();
    SettleFlags();
    if (spec_.skip_bad && IsMostlyText()) return MakeUnusable(Explain(non_numbers_.begin()->second));
    std::map<int64_t, std::string> bad;
    for (const auto& [sample, odd] : non_numbers_) {
      if (odd.missing && spec_.keep_missing) continue;
      if (!spec_.skip_bad) return MakeUnusable(Explain(odd));
      bad.emplace(sample, Explain(odd));
    }
    NamedTensor column{spec_.name, numbers_.Tensor()};
    if (!numbers_.note().empty()) note_ = StrCat("column '", Printable(spec_.name), "': ", numbers_.note());
    return WithUnreadable(std::move(column), std::move(bad));
  }
  std::string note() const override { return note_; }

 private:
  bool KeepsNames() const { return spec_.text != CsvColumnSpec::Text::kProblem; }
  bool IsMostlyText() const { return 2 * text_ > readable(); }
  std::string Explain(const NonNumber& odd) const {
    if (odd.missing) return StrCat(At(odd.row), "missing value");
    return StrCat(At(odd.row), odd.text, " is not a number",
                  odd.text.starts_with("'[") ? " (a field holds one number: JSON lines, .npz and .npy hold arrays)"
                  : odd.decimal_comma        ? " (decimal commas are read where ';' separates the fields)"
                                             : "");
  }

  int64_t readable() const { return count_ - missing_ - static_cast<int64_t>(unreadable_.size()); }
  bool AreFlags() const { return flag_count_ == readable(); }

  // Treats truth values as text if the column has other values, too.
  void SettleFlags() {
    if (AreFlags()) {
      text_ -= flag_count_;
    } else {
      non_numbers_.merge(flags_);
    }
  }

  void AddFlag(int64_t row, const std::string& field, int64_t value) {
    ++flag_count_;
    ++text_;
    numbers_.AddFlag(field, value);
    if (spec_.skip_bad || flags_.empty())
      flags_.emplace(spec_.skip_bad ? count_ : kFirstFlag, NonNumber{row, QuoteValue(field)});
  }

  // Records a field that is not a number; only the first one unless bad samples are skipped.
  void AddNonNumber(int64_t row, const std::string& field) {
    if (const auto flag = ParseFlag(field); flag.has_value()) return AddFlag(row, field, *flag);
    const bool missing = IsMissingValue(field);
    double ignored;
    ++(missing ? missing_ : text_);
    if (missing && spec_.keep_missing) {
      numbers_.AddFloat(std::numeric_limits<double>::quiet_NaN());
    } else {
      numbers_.AddPlaceholder();
    }
    if (spec_.skip_bad || non_numbers_.empty() || (non_numbers_.begin()->second.missing && spec_.keep_missing))
      non_numbers_.insert_or_assign(
          spec_.skip_bad ? count_ : 0,
          NonNumber{row, QuoteValue(field), missing, ParseDecimalComma(TrimBlanks(field), &ignored)});
    if (TrimBlanks(field).empty()) empty_.emplace_back(count_, row);
  }

  // Makes categories. Only an empty field is missing, since "None" may be a category.
  NamedTensor FinishCategories() {
    std::map<int64_t, std::string> bad;
    for (const auto& [sample, row] : empty_) {
      if (spec_.keep_missing) break;
      if (!spec_.skip_bad) return MakeUnusable(StrCat(At(row), "missing value"));
      bad.emplace(sample, StrCat(At(row), "missing value"));
    }
    return WithUnreadable(names_.ClassIndices(spec_.name, false, ""), std::move(bad));
  }

  Numbers numbers_;
  Names names_;                             // used if categories are allowed
  static constexpr int64_t kFirstFlag = 1;  // differs from the key of the first odd value, 0
  int64_t text_ = 0, missing_ = 0, flag_count_ = 0;
  std::map<int64_t, NonNumber> non_numbers_, flags_;  // all fields with skip_bad, else the first one
  std::string note_;
  std::vector<std::pair<int64_t, int64_t>> empty_;
};

class TextValues : public ColumnBase {
 public:
  using ColumnBase::ColumnBase;

  absl::Status Add(int64_t, const std::string& field) override {
    texts_.push_back(field);
    ++count_;
    return absl::OkStatus();
  }
  void AddUnreadable(std::string why) override {
    texts_.emplace_back();
    unreadable_.emplace(count_++, std::move(why));
  }
  NamedTensor Finish() override {
    NamedTensor column = WithUnreadable(MakeUnusable(StrCat(spec_.path, ": column '", spec_.name, "' is text")));
    column.texts = std::move(texts_);
    return column;
  }

 private:
  std::vector<std::string> texts_;
};

class Label : public ColumnBase {
 public:
  explicit Label(CsvColumnSpec spec)
      : ColumnBase(std::move(spec)), fixed_(!spec_.classes.empty()), spellings_(spec_.classes) {
    for (const std::string& name : spec_.classes) names_.FindId(name);
  }

  absl::Status Add(int64_t row, const std::string& field) override {
    const bool as_it_is = !spec_.trim_classes || (fixed_ && names_.Has(field));
    std::string name(as_it_is ? field : TrimBlanks(field));
    if (fixed_ && !name.empty() && !names_.Has(name)) {
      const std::string other = FindClass(name);
      if (other.empty()) return AddUnknown(row, field);
      other_spellings_.emplace(std::move(name), other);
      name = other;
    }
    if (IsMissingValue(name)) missing_.push_back({count_, row, name.empty()});
    names_.Add(name);
    ++count_;
    return absl::OkStatus();
  }
  void AddUnreadable(std::string why) override {
    names_.Add("");
    unreadable_.emplace(count_++, std::move(why));
  }

  NamedTensor Finish() override {
    const bool numbers =
        !fixed_ && std::all_of(names_.names().begin(), names_.names().end(), [&](const std::string& name) {
          return IsCsvNumber(name, spec_.decimal_comma) || IsMissingValue(name);
        });
    std::map<int64_t, std::string> bad;
    for (const Missing& m : missing_) {
      if (!numbers && !m.empty) continue;  // "None" is a class in a column of names
      if (!spec_.skip_bad) return MakeUnusable(StrCat(At(m.row), "missing value"));
      bad.emplace(m.sample, StrCat(At(m.row), "missing value"));
    }
    NamedTensor column = numbers ? MakeNumbers() : names_.ClassIndices(spec_.name, fixed_, "");
    column.note = DescribeSpellings();
    return WithUnreadable(std::move(column), std::move(bad));
  }

 private:
  struct Missing {
    int64_t sample, row;
    bool empty;
  };

  // Returns the class with another spelling of the name, or with this index.
  std::string FindClass(const std::string& name) const {
    const auto index = ParseInt(name);
    const bool is_index = index.ok() && *index >= 0 && *index < std::ssize(spec_.classes);
    return is_index ? spec_.classes[*index] : spellings_.Find(name);
  }

  absl::Status AddUnknown(int64_t row, const std::string& field) {
    const std::string why =
        StrCat(InFile(row), QuoteValue(field), " is not among the ", spec_.classes.size(), " classes",
               spellings_.Suggest(field), " (`class_map` FILE gives others, and their order)");
    if (!spec_.skip_bad) return Invalid(why);
    AddUnreadable(StrCat(spec_.path, ": ", why));
    return absl::OkStatus();
  }

  std::string DescribeSpellings() const {
    if (other_spellings_.empty()) return "";
    const auto& [field, name] = *other_spellings_.begin();
    const size_t more = other_spellings_.size() - 1;
    return StrCat("column '", Printable(spec_.name), "': ", QuoteValue(field), " is read as the class ",
                  QuoteValue(name), more == 0 ? "" : StrCat(", and ", more, " more spellings likewise"));
  }

  NamedTensor MakeNumbers() const {
    Numbers numbers(spec_.decimal_comma);
    for (int64_t id : names_.ids()) {
      if (!numbers.Add(names_.names()[id])) numbers.AddPlaceholder();
    }
    return {spec_.name, numbers.Tensor()};
  }

  bool fixed_;
  ClassSpellings spellings_;
  std::map<std::string, std::string> other_spellings_;  // spellings in the file by class
  Names names_;
  std::vector<Missing> missing_;
};

}  // namespace

std::string_view TrimBlanks(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool IsMissingValue(std::string_view s) {
  const std::string lower = absl::AsciiStrToLower(std::string(TrimBlanks(s)));
  constexpr std::string_view kNames[] = {"",     "na",   "n/a",  "#n/a", "#na", "<na>", "nan",
                                         "-nan", "null", "none", "?",    "-",   "--",   "."};
  return std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

std::optional<double> ParseCsvNumber(std::string_view s, bool decimal_comma) {
  double value;
  if (!ParseWritten(TrimBlanks(s), decimal_comma, &value) || std::isnan(value)) return std::nullopt;
  return value;
}

bool IsCsvNumber(std::string_view s, bool decimal_comma) { return ParseCsvNumber(s, decimal_comma).has_value(); }

std::unique_ptr<CsvColumn> MakeFeatureColumn(CsvColumnSpec spec) { return std::make_unique<Feature>(std::move(spec)); }
std::unique_ptr<CsvColumn> MakeTextColumn(CsvColumnSpec spec) { return std::make_unique<TextValues>(std::move(spec)); }
std::unique_ptr<CsvColumn> MakeLabelColumn(CsvColumnSpec spec) { return std::make_unique<Label>(std::move(spec)); }

std::unique_ptr<CsvColumn> MakeCsvColumn(CsvColumnSpec spec, bool is_label, const DatasetOptions& options) {
  spec.skip_bad = options.skip_bad;
  const std::string& name = spec.name;
  // True for the last column if it is a named category.
  const bool is_feature = options.label.empty() && options.categories.names.contains(name);
  const bool is_text = options.text.contains(name) || (options.text_labels && is_label && !is_feature);
  if (is_text) return MakeTextColumn(std::move(spec));
  if (is_label && !is_feature) {
    spec.classes = options.class_names;
    return MakeLabelColumn(std::move(spec));
  }
  using Text = CsvColumnSpec::Text;
  spec.text = options.categories.names.contains(name) ? Text::kAlwaysCategories
              : options.categories.all                ? Text::kCategories
                                                      : Text::kProblem;
  spec.keep_missing = options.missing.contains(name);
  return MakeFeatureColumn(std::move(spec));
}

}  // namespace onnxtrain
