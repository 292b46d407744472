// Defines the values of templates, with the semantics of the Python objects that Jinja works on.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "frontend/base/status.h"

namespace onnxtrain::jinja {

class Interpreter;
class Object;
class Value;
struct Dict;
struct Sequence;
using Values = std::vector<Value>;

// Limits of a container, so that every walk over it ends: nesting depth and total number of values. Shared values count
// each time they are reached, and 64 bytes of text count as one value.
inline constexpr int kMaxValueDepth = 128;
inline constexpr int64_t kMaxValueWeight = int64_t{1} << 22;

struct Extent {
  int depth = 0;
  int64_t weight = 1;
};

struct None {};

// A value that is cheap to copy and to move. Default: undefined, as a missing variable or attribute, which prints as
// empty; most operations on it fail with `reason`. Texts are valid UTF-8; a markup is one marked as HTML by the filters
// `safe` and `escape`.
class Value {
 public:
  Value() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  Value(None /*none*/) : kind_(Kind::kNone) {}
  Value(bool truth) : kind_(Kind::kBool), number_(truth) {}
  Value(int64_t number) : kind_(Kind::kInt), number_(number) {}
  Value(double number) : kind_(Kind::kFloat), number_(std::bit_cast<int64_t>(number)) {}
  Value(std::string text) : Value(Kind::kText, std::make_shared<std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Sequence> sequence) : Value(Kind::kSequence, std::move(sequence)) {}
  Value(std::shared_ptr<Dict> dict) : Value(Kind::kDict, std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : Value(Kind::kObject, std::move(object)) {}
  // NOLINTEND(google-explicit-constructor)
  static Value MakeMarkup(std::string text) { return {Kind::kMarkup, std::make_shared<std::string>(std::move(text))}; }
  static Value MakeUndefined(std::string reason) {
    return {Kind::kUndefined, std::make_shared<std::string>(std::move(reason))};
  }

  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_number() const { return kind_ == Kind::kInt || kind_ == Kind::kBool || kind_ == Kind::kFloat; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_markup() const { return kind_ == Kind::kMarkup; }

  // Each returns null if the value is of another kind.
  const std::string* text() const { return kind_ == Kind::kText || is_markup() ? Held<const std::string>() : nullptr; }
  Sequence* sequence() const { return kind_ == Kind::kSequence ? Held<Sequence>() : nullptr; }
  const Dict* dict() const { return kind_ == Kind::kDict ? Held<const Dict>() : nullptr; }
  Object* object() const { return kind_ == Kind::kObject ? Held<Object>() : nullptr; }
  // Returns why an undefined value is missing.
  std::string_view reason() const;

  // Returns the integer of an int or bool.
  std::optional<int64_t> integer() const { return is_int() || is_bool() ? std::optional(number_) : std::nullopt; }
  // Returns the number of an int, bool or float.
  std::optional<double> number() const;

 private:
  enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kText, kMarkup, kSequence, kDict, kObject };

  Value(Kind kind, std::shared_ptr<void> held) : kind_(kind), held_(std::move(held)) {}
  template <typename T>
  T* Held() const {
    return static_cast<T*>(held_.get());
  }

  Kind kind_ = Kind::kUndefined;
  int64_t number_ = 0;          // the bits of a float
  std::shared_ptr<void> held_;  // a std::string, the reason included, Sequence, Dict or Object
};

enum class SequenceKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

// Items are fixed at construction. A generator yields each item once.
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  Values items;
  Extent extent = {};
  size_t consumed = 0;                // items of a generator that were read
  absl::Status error = {};            // the error of a generator after its items
  std::array<int64_t, 3> range = {};  // start, stop and step of a range

  bool is_indexed() const { return kind <= SequenceKind::kRange; }
};

// Returns the name under which a mapping keeps an item: a text itself, or another name for an integer; nullopt for
// values that cannot be keys here.
std::optional<std::string> MakeKey(const Value& value);
std::string MakeKey(const std::string& text);
// Returns the value whose name this is.
Value ReadKey(const std::string& name);

// A mapping in the order of insertion, by names of MakeKey.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  absl::flat_hash_map<std::string, size_t> positions;  // indices into many items
  Extent extent = {.depth = 1, .weight = 1};

  // Returns the index of an item, or the number of items.
  size_t FindIndex(std::string_view key) const;
  const Value* Find(std::string_view key) const;
  const Value* FindItem(const Value& key) const;
  // Inserts or replaces. Fails if the limits are exceeded.
  absl::Status Set(std::string_view key, Value value);
};

struct CallArguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Namespaces, functions and the variable `loop`.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string Print() const { return StrCat("<", type_name(), ">"); }
  virtual std::optional<Value> GetAttribute(std::string_view /*name*/) { return std::nullopt; }
  virtual absl::Status SetAttribute(std::string_view name, Value value);
  virtual Value Call(Interpreter& run, CallArguments arguments);
  // Returns the extent of the values that it is bound to, unless the interpreter tracks it.
  virtual Extent extent() const { return {}; }
  // Drops references to other values, to break cycles when a rendering ends.
  virtual void Release() {}
};

// Returns a container. Fails if the limits are exceeded.
absl::StatusOr<Value> MakeSequence(SequenceKind kind, Values items);

Extent GetExtent(const Value& value);
std::string_view GetTypeName(const Value& value);
bool IsTrue(const Value& value);
bool IsHashable(const Value& value);
bool IsEqual(const Value& a, const Value& b);
// Returns the order, unordered for NaN, or an error if the types have no order.
absl::StatusOr<std::partial_ordering> Compare(const Value& a, const Value& b);

// Returns the items of a sequence, the keys of a mapping or the characters of a text. Exhausts a generator.
absl::StatusOr<Values> ReadItems(const Value& value);
// Returns the length of a value that has one.
std::optional<int64_t> GetLength(const Value& value);

// Return the results of Python's str and repr.
std::string Print(const Value& value);
std::string PrintRepr(const Value& value);

// Returns the byte offset of the character with this index, or the size if there are fewer.
size_t FindCharOffset(std::string_view text, int64_t index);
int64_t CountChars(std::string_view text);

}  // namespace onnxtrain::jinja
