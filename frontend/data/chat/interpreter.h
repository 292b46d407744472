// Runs the tree of a template: scopes of variables, output, limits, errors, and calls of functions.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/data/chat/chat_template.h"
#include "frontend/data/chat/syntax.h"

namespace onnxtrain::jinja {

// The variables of a block. Those of enclosing blocks are visible but cannot be changed.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// Runs one template once, in one thread. `variables`, the options and the tree must outlive it.
//
// The first error of a rendering is kept. From then on, expressions are undefined and statements have no effect, so
// that functions need not check for errors before they return: they only must not loop over, or dereference, what
// failed.
class Interpreter {
 public:
  Interpreter(const Dict& variables, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders a template. Errors begin with "line N: ".
  absl::StatusOr<RenderedChat> Run(const Node& body);
  std::time_t now() const { return options_.now != 0 ? options_.now : std::time(nullptr); }

  // Records an error unless there is one, and returns undefined.
  template <typename... Args>
  Value Fail(const Args&... message) {
    Check(Invalid(message...));
    return {};
  }
  bool failed() const { return !error_.ok(); }
  // Records an error. Returns false if there is one, now or before.
  bool Check(const absl::Status& status);
  // Returns the value, or records its error and returns a default.
  template <typename T>
  T Get(absl::StatusOr<T> value) {
    return Check(value.status()) ? *std::move(value) : T();
  }
  // Forgets an error that was recorded, and returns it.
  absl::Status TakeError() { return std::exchange(error_, absl::OkStatus()); }

  // Evaluates an expression, or executes a statement, of which the value is undefined.
  Value Evaluate(const Node& node);
  // Returns the value of an operand without copying it, or evaluates it into `place`. The pointer is valid while
  // expressions are evaluated, since only statements change variables.
  const Value* View(const Node& node, Value* place);
  // Executes in a new scope and returns the text instead of writing it.
  std::string Capture(const Node& body);
  void Write(std::string_view text);
  // Writes the text of a generation block and records its range.
  void WriteGenerated(std::string_view text);

  // Returns null if no variable has this name.
  const Value* FindVariable(std::string_view name) const { return scope_->Find(name); }
  void Assign(const Node& target, Value value);
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  Value Call(const Value& function, CallArguments arguments);

  // Count steps, or the bytes of a text that is about to be made. Return false if a limit is exceeded, or after errors.
  bool CountSteps(int64_t steps) {
    steps_ += steps;
    return steps_ <= options_.max_steps ? !failed() : FailForSteps();
  }
  bool CountBytes(int64_t bytes) { return CheckBytes(bytes) && CountSteps(bytes / kBytesPerStep); }
  // Returns false if a text of this size exceeds the limit, without counting it.
  bool CheckBytes(int64_t bytes);

  Value MakeList(Values items) { return Get(MakeSequence(SequenceKind::kList, std::move(items))); }
  Value MakeTuple(Values items) { return Get(MakeSequence(SequenceKind::kTuple, std::move(items))); }
  // Makes an object whose references are dropped at the end of the rendering, to break cycles.
  template <typename T, typename... Args>
  std::shared_ptr<T> Make(Args&&... args) {
    auto object = std::make_shared<T>(std::forward<Args>(args)...);
    Track(object);
    return object;
  }

  // Replaces the scope during its lifetime, by default by a new one inside of it.
  class InScope {
   public:
    InScope(Interpreter& run, std::shared_ptr<Scope> scope) : run_(run), saved_(std::move(run.scope_)) {
      run_.scope_ = std::move(scope);
    }
    explicit InScope(Interpreter& run) : InScope(run, run.MakeScope()) {}
    ~InScope() { run_.scope_ = std::move(saved_); }
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;

   private:
    Interpreter& run_;
    std::shared_ptr<Scope> saved_;
  };
  std::shared_ptr<Scope> MakeScope() const { return std::make_shared<Scope>(Scope{scope_, {}}); }

  // Says what follows a statement: the next one, the end of the loop, or its next iteration.
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  Flow flow = Flow::kNext;

 private:
  static constexpr int64_t kBytesPerStep = 64;
  static constexpr size_t kReservedBytes = 4096;  // of the output

  void Track(std::shared_ptr<Object> object);
  bool FailForSteps();

  const RenderOptions& options_;
  std::shared_ptr<Scope> scope_;
  std::string root_, *output_ = &root_;
  std::vector<TextRange> generated_;
  // Keeps the objects of the template, so that a long chain of them is not destroyed recursively.
  std::vector<std::shared_ptr<Object>> objects_;
  absl::Status error_;
  int64_t steps_ = 0;
  int depth_ = 0, error_line_ = 0;
};

}  // namespace onnxtrain::jinja
