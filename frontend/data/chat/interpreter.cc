#include "frontend/data/chat/interpreter.h"

#include <algorithm>

namespace onnxtrain::jinja {
namespace {

constexpr int kMaxDepth = 1000;  // of nested evaluations

}  // namespace

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  const auto it = std::ranges::find_if(variables, [&](const auto& variable) { return variable.first == name; });
  if (it != variables.end()) {
    it->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Interpreter::Interpreter(const Dict& variables, const RenderOptions& options)
    : options_(options), scope_(std::make_shared<Scope>()) {
  scope_->variables.assign(variables.items.begin(), variables.items.end());
  root_.reserve(kReservedBytes);
}

Interpreter::~Interpreter() {
  for (const auto& object : objects_) object->Release();
}

void Interpreter::Track(std::shared_ptr<Object> object) {
  if (objects_.size() == objects_.capacity()) std::erase_if(objects_, [](const auto& o) { return o.use_count() == 1; });
  objects_.push_back(std::move(object));
}

absl::StatusOr<RenderedChat> Interpreter::Run(const Node& body) {
  const InScope scope(*this);
  Evaluate(body);
  if (failed()) return OneLine(Annotate(error_, StrCat("line ", error_line_, ": ")));
  // A block whose text is captured has its range where the output was then.
  for (TextRange& range : generated_) {
    for (size_t* bound : {&range.begin, &range.end}) {
      *bound = std::min(*bound, root_.size());
      while (*bound < root_.size() && (static_cast<unsigned char>(root_[*bound]) & 0xc0) == 0x80) ++*bound;
    }
  }
  return RenderedChat{std::move(root_), std::move(generated_)};
}

bool Interpreter::Check(const absl::Status& status) {
  if (error_.ok() && !status.ok()) error_ = status;
  return error_.ok();
}

bool Interpreter::FailForSteps() {
  Fail("the template takes more than ", options_.max_steps, " steps");
  return false;
}

bool Interpreter::CheckBytes(int64_t bytes) {
  if (bytes > options_.max_bytes) Fail("the template makes a text of more than ", options_.max_bytes, " bytes");
  return !failed();
}

Value Interpreter::Evaluate(const Node& node) {
  if (depth_ >= kMaxDepth) Fail("the template nests calls more than ", kMaxDepth, " deep");
  if (!CountSteps(1)) return {};
  ++depth_;
  Value value = node.evaluate(*this, node);
  --depth_;
  if (failed() && error_line_ == 0) error_line_ = node.line;
  return value;
}

const Value* Interpreter::View(const Node& node, Value* place) {
  if (const Value* value = FindValue(*this, node)) {
    CountSteps(1);
    return value;
  }
  *place = Evaluate(node);
  return place;
}

std::string Interpreter::Capture(const Node& body) {
  const InScope scope(*this);
  std::string text;
  std::string* const saved = std::exchange(output_, &text);
  Evaluate(body);
  output_ = saved;
  return text;
}

void Interpreter::Write(std::string_view text) {
  if (!CountSteps(static_cast<int64_t>(text.size()) / kBytesPerStep)) return;
  output_->append(text);
  if (std::ssize(*output_) > options_.max_bytes) Fail("the template writes more than ", options_.max_bytes, " bytes");
}

void Interpreter::WriteGenerated(std::string_view text) {
  generated_.push_back({root_.size(), root_.size() + text.size()});
  Write(text);
}

void Interpreter::Assign(const Node& target, Value value) {
  if (target.evaluate == EvaluateName) return scope_->Set(target.text, std::move(value));
  if (target.evaluate == EvaluateAttribute) {
    const std::string& name = target.children[0].text;
    const Value* holder = FindVariable(name);
    if (holder == nullptr || holder->object() == nullptr) {
      Fail("an attribute of '", name, "', which is no namespace, is assigned");
    } else {
      Check(holder->object()->SetAttribute(*target.children[1].value.text(), std::move(value)));
    }
    return;
  }
  Values items = Get(ReadItems(value));
  if (items.size() != target.children.size())
    Fail(items.size(), " values cannot be assigned to ", target.children.size(), " names");
  for (size_t i = 0; i < items.size() && !failed(); ++i) Assign(target.children[i], std::move(items[i]));
}

Value Interpreter::Call(const Value& function, CallArguments arguments) {
  if (failed()) return {};
  if (function.is_undefined()) return Fail(function.reason());
  if (function.object() == nullptr) return Fail("'", GetTypeName(function), "' object is not callable");
  return function.object()->Call(*this, std::move(arguments));
}

// Overriders move the arguments.
// NOLINTBEGIN(performance-unnecessary-value-param)
Value Object::Call(Interpreter& run, CallArguments /*arguments*/) {
  return run.Fail("'", type_name(), "' object is not callable");
}

absl::Status Object::SetAttribute(std::string_view /*name*/, Value /*value*/) {
  return Invalid("an attribute of '", type_name(), "', which is no namespace, is assigned");
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace onnxtrain::jinja
