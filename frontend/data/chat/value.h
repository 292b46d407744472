// Defines the values of templates, with the semantics of the Python objects that Jinja works on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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

// A missing variable or attribute. It prints as empty; most operations on it fail with `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // valid UTF-8
  bool markup = false;                       // marked as HTML by the filters `safe` and `escape`
};

class Value {
 public:
  Value() = default;
  Value(None none) : data_(none) {}                 // NOLINT(google-explicit-constructor)
  Value(Undefined undefined) : data_(undefined) {}  // NOLINT(google-explicit-constructor)
  Value(Text text) : data_(std::move(text)) {}      // NOLINT(google-explicit-constructor)
  Value(bool truth) : data_(truth) {}               // NOLINT(google-explicit-constructor)
  Value(int64_t number) : data_(number) {}          // NOLINT(google-explicit-constructor)
  Value(double number) : data_(number) {}           // NOLINT(google-explicit-constructor)
  Value(std::string text)                           // NOLINT(google-explicit-constructor)
      : data_(Text{std::make_shared<const std::string>(std::move(text))}) {}
  Value(std::string_view text) : Value(std::string(text)) {}                 // NOLINT(google-explicit-constructor)
  Value(const char* text) : Value(std::string(text)) {}                      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Sequence> sequence) : data_(std::move(sequence)) {}  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}        // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}        // NOLINT(google-explicit-constructor)

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }

  // Each returns null if the value is of another kind.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const std::string* text() const;
  bool is_markup() const;
  Sequence* sequence() const;
  const Dict* dict() const;
  Object* object() const;
  const std::shared_ptr<Object>& shared_object() const { return std::get<std::shared_ptr<Object>>(data_); }

  // Returns the integer of an int or bool.
  std::optional<int64_t> integer() const;
  // Returns the number of an int, bool or float.
  std::optional<double> number() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      data_;
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
Value MakeMarkup(std::string text);
Value MakeUndefined(std::string reason);

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
std::string PrintRepr(const Value& value);
std::string PrintFloat(double number);

// Returns the byte offset of the character with this index, or the size if there are fewer.
size_t FindCharOffset(std::string_view text, int64_t index);
int64_t CountChars(std::string_view text);

}  // namespace onnxtrain::jinja
