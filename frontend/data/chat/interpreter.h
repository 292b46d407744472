// Runs the tree of a template: scopes of variables, output, limits, and calls of functions.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "frontend/data/chat/syntax.h"

namespace onnxtrain::jinja {

// Limits of one rendering.
struct Limits {
  int64_t steps = 20'000'000;         // evaluated nodes, and copied bytes / 64
  int64_t bytes = int64_t{32} << 20;  // limit of the output, and of each text that is computed
  int depth = 1000;                   // limit of nested evaluations
};

// Characters [begin, end) of the output.
struct CharRange {
  int64_t begin = 0, end = 0;
};

// The variables of a block. Those of enclosing blocks are visible but cannot be changed.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// Runs one template once, in one thread. `variables` and the tree must outlive it.
class Interpreter {
 public:
  Interpreter(const Dict& variables, const std::tm& now, const Limits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders a template. Errors begin with "line N: ".
  absl::StatusOr<std::string> Run(const Body& body);
  const std::vector<CharRange>& generated() const { return generated_; }
  const std::tm& now() const { return now_; }

  absl::StatusOr<Value> Evaluate(const Expression& expression);
  // Returns the value of an operand without copying it, or evaluates it into `place`. The pointer is valid while
  // expressions are evaluated, since only statements change variables.
  absl::StatusOr<const Value*> View(const Expression& expression, Value* place);
  absl::StatusOr<Flow> Execute(const Body& body);
  // Executes in a new scope and returns the text instead of writing it.
  absl::StatusOr<std::string> Capture(const Body& body);
  // Returns the text that a function writes.
  absl::StatusOr<std::string> CaptureFrom(absl::FunctionRef<absl::Status()> write);
  absl::Status Write(std::string_view text);
  // Writes the text of a generation block and records its range.
  absl::Status WriteGenerated(std::string_view text);

  Value Lookup(const std::string& name) const;
  // Returns null if no variable has this name.
  const Value* FindVariable(std::string_view name) const { return scope_->Find(name); }
  absl::Status Assign(const Target& target, Value value);
  const std::shared_ptr<Scope>& scope() const { return scope_; }

  absl::StatusOr<CallArguments> EvaluateArguments(const Arguments& arguments);
  absl::StatusOr<Value> Call(const Value& function, CallArguments arguments);
  absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& operand, CallArguments arguments);
  absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& operand, CallArguments arguments);

  // Counts steps, or the bytes of a text that is about to be made. Fails if a limit is exceeded.
  absl::Status CountSteps(int64_t steps);
  absl::Status CountBytes(int64_t bytes);
  // Fails if a text of this size exceeds the limit, without counting it.
  absl::Status CheckBytes(int64_t bytes) const;
  // Makes an object whose references are dropped at the end of the rendering, to break cycles.
  template <typename T, typename... Args>
  std::shared_ptr<T> Make(Args&&... args) {
    auto object = std::make_shared<T>(std::forward<Args>(args)...);
    Track(object);
    return object;
  }

  // Replaces the scope during its lifetime.
  class InScope {
   public:
    InScope(Interpreter& run, std::shared_ptr<Scope> scope) : run_(run), saved_(std::move(run.scope_)) {
      run_.scope_ = std::move(scope);
    }
    ~InScope() { run_.scope_ = std::move(saved_); }
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;

   private:
    Interpreter& run_;
    std::shared_ptr<Scope> saved_;
  };
  std::shared_ptr<Scope> MakeScope() const { return std::make_shared<Scope>(Scope{scope_, {}}); }

 private:
  void Track(std::shared_ptr<Object> object);
  absl::Status AssignAttribute(const Target& target, Value value);

  const std::tm now_;
  const Limits limits_;
  std::shared_ptr<Scope> scope_;
  std::string root_, *output_ = &root_;
  int64_t root_chars_ = 0;  // characters of the first counted_bytes_ bytes of root_
  size_t counted_bytes_ = 0;
  std::vector<CharRange> generated_;
  // Keeps the objects of the template, so that a long chain of them is not destroyed recursively.
  std::vector<std::shared_ptr<Object>> objects_;
  int64_t steps_ = 0;
  int depth_ = 0, error_line_ = 0;
};

// A mutable set of attributes: namespace(…).
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<absl::StatusOr<Value>> GetAttribute(std::string_view name) override;
  bool is_callable() const override { return false; }
  void Release() override { attributes_ = {}; }
  absl::Status Set(std::string_view name, Value value);

 private:
  Dict attributes_;
};

}  // namespace onnxtrain::jinja
