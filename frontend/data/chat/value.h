// Defines the values of templates, with the semantics of the Python objects that Jinja works on.
#pragma once

#include <array>
#include <bit>
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
  Value(std::string text) : Value(Kind::kText, std::move(text)) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Sequence> sequence) : Value(Kind::kSequence, std::move(sequence)) {}
  Value(const std::shared_ptr<const Dict>& dict);
  Value(std::shared_ptr<Object> object) : Value(Kind::kObject, std::move(object)) {}
  // NOLINTEND(google-explicit-constructor)
  static Value MakeMarkup(std::string text) { return {Kind::kMarkup, std::move(text)}; }
  static Value MakeUndefined(std::string reason) { return {Kind::kUndefined, std::move(reason)}; }

  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_markup() const { return kind_ == Kind::kMarkup; }

  // Each returns null if the value is of another kind.
  const std::string* text() const { return kind_ == Kind::kText || is_markup() ? Held<const std::string>() : nullptr; }
  Sequence* sequence() const { return kind_ == Kind::kSequence ? Held<Sequence>() : nullptr; }
  const Dict* dict() const { return kind_ == Kind::kDict ? Held<const Dict>() : nullptr; }
  Object* object() const { return kind_ == Kind::kObject ? Held<Object>() : nullptr; }
  std::shared_ptr<Object> shared_object() const { return std::static_pointer_cast<Object>(held_); }
  // Returns why an undefined value is missing.
  const std::string& reason() const;

  // Returns the integer of an int or bool.
  std::optional<int64_t> integer() const { return is_int() || is_bool() ? std::optional(number_) : std::nullopt; }
  // Returns the number of an int, bool or float.
  std::optional<double> number() const;

 private:
  enum class Kind : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kText, kMarkup, kSequence, kDict, kObject };

  Value(Kind kind, std::string text) : kind_(kind), held_(std::make_shared<std::string>(std::move(text))) {}
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

// A mapping in the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  absl::flat_hash_map<std::string, size_t> positions;  // indices into many items, by MakeKey
  Extent extent = {.depth = 1, .weight = 1};

  const Value* Find(const Value& key) const;
  const Value* FindText(std::string_view key) const;
  // Returns the index of the item whose key has this MakeKey.
  std::optional<size_t> FindPosition(std::string_view key) const;
  // Inserts or replaces. Fails if the key is not hashable or the limits are exceeded.
  absl::Status Set(const Value& key, Value value);
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
  virtual std::string Print() const;
  virtual std::optional<absl::StatusOr<Value>> GetAttribute(std::string_view name);
  virtual bool is_callable() const { return true; }
  virtual absl::StatusOr<Value> Call(Interpreter& interpreter, CallArguments&& arguments);
  // Returns the extent of the values that it is bound to, unless the interpreter tracks it.
  virtual Extent extent() const { return {}; }
  // Drops references to other values, to break cycles when a rendering ends.
  virtual void Release() {}
};

// Return containers. Fail if the limits are exceeded.
absl::StatusOr<Value> MakeSequence(SequenceKind kind, Values items);
inline absl::StatusOr<Value> MakeList(Values items) { return MakeSequence(SequenceKind::kList, std::move(items)); }
inline absl::StatusOr<Value> MakeTuple(Values items) { return MakeSequence(SequenceKind::kTuple, std::move(items)); }
absl::StatusOr<Value> MakeGenerator(Values items, absl::Status error = absl::OkStatus());
inline Value MakeMarkup(std::string text) { return Value::MakeMarkup(std::move(text)); }
inline Value MakeUndefined(std::string reason) { return Value::MakeUndefined(std::move(reason)); }

Extent GetExtent(const Value& value);
std::string_view GetTypeName(const Value& value);
bool IsTrue(const Value& value);
bool IsHashable(const Value& value);
// Returns a text that equal hashable values share: the text itself, or a byte that no text contains and a description.
std::string MakeKey(const Value& value);
bool IsEqual(const Value& a, const Value& b);
// Returns a value below, equal to or above 0, nullopt for NaN, or an error if the types have no order.
absl::StatusOr<std::optional<int>> Compare(const Value& a, const Value& b);

// Returns the items of a sequence, the keys of a mapping or the characters of a text. Exhausts a generator.
absl::StatusOr<Values> ReadItems(const Value& value);
// Returns the length of a value that has one.
std::optional<int64_t> GetLength(const Value& value);

// Return the results of Python's str and repr.
std::string Print(const Value& value);
void AppendPrinted(const Value& value, std::string* out);
std::string PrintRepr(const Value& value);
std::string PrintFloat(double number);

// Returns the byte offset of the character with this index, or the size if there are fewer.
size_t FindCharOffset(std::string_view text, int64_t index);
int64_t CountChars(std::string_view text);

}  // namespace onnxtrain::jinja
