// Builds graphs as expressions: Val a, b; Val y = Exp(a) * b + 1.0;
//
// Errors are sticky, so formulas need no error handling: after the first error, every call returns an invalid Val, and
// status() returns that error. Import code checks status() at the end; gradients and decompositions may CHECK it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

class Builder;

// A handle of a value of the graph of a Builder, which must outlive it.
class Val {
 public:
  Val() = default;
  Val(Builder* b, ValueId id) : b_(b), id_(id) {}

  bool valid() const { return b_ != nullptr; }
  explicit operator bool() const { return valid(); }
  ValueId id() const { return id_; }
  Builder& b() const { return *b_; }

  // Returns the type; f32 scalar for an invalid Val.
  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  int rank() const { return type().rank(); }
  // Returns the extent of an axis, which counts from the end if negative; 1 if the axis does not exist.
  int64_t dim(int axis) const;
  // Returns the tensor of a Constant, or null for any other value.
  const HostTensor* constant() const;

 private:
  Builder* b_ = nullptr;
  ValueId id_ = kNoValue;
};

class Builder {
 public:
  // Appends to *graph, which must outlive the Builder.
  explicit Builder(Graph* graph) : graph_(graph) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Graph& graph() { return *graph_; }
  const absl::Status& status() const { return status_; }
  // Records the error unless one is recorded already. Returns an invalid Val.
  Val Fail(absl::Status status);
  // Returns and clears the error, so that the importer can continue and collect several errors.
  absl::Status TakeStatus();

  // Sets the source name of new nodes.
  void set_source(Shared<std::string> source) { source_ = std::move(source); }
  const std::string& source() const { return *source_; }
  // Evaluates operators on constants immediately if the result has at most so many bytes. 0: never.
  void set_fold_limit(size_t bytes) { fold_limit_ = bytes; }

  Val Input(InputKind kind, std::string name, Type type);
  Val Wrap(ValueId id) { return id == kNoValue ? Val() : Val(this, id); }
  // Append an operator of the table. Invalid Vals in `inputs` are absent optional inputs; trailing ones are dropped. Op
  // returns output 0, Ops all outputs. On error, Ops returns one invalid Val per output of the row, and at least one.
  Val Op(std::string_view op, std::vector<Val> inputs, Attrs attrs = {});
  std::vector<Val> Ops(std::string_view op, std::vector<Val> inputs, Attrs attrs = {});

  Val Constant(HostTensor tensor);
  Val Scalar(DType dtype, double value) { return Constant(HostTensor::Scalar(dtype, value)); }
  Val Ints(const std::vector<int64_t>& values) { return Constant(HostTensor::FromInts(values)); }

 private:
  bool Fold(std::string_view op, const std::vector<Val>& inputs, const Attrs& attrs, const std::vector<Type>& types,
            std::vector<Val>* results);

  Graph* graph_;
  absl::Status status_;
  Shared<std::string> source_;
  size_t fold_limit_ = 0;
};

// Arithmetic with broadcasting. A double becomes a scalar constant with the element type of the other operand.
Val operator+(Val a, Val b);
Val operator-(Val a, Val b);
Val operator*(Val a, Val b);
Val operator/(Val a, Val b);
Val operator+(Val a, double b);
Val operator-(Val a, double b);
Val operator*(Val a, double b);
Val operator/(Val a, double b);
Val operator-(double a, Val b);
Val operator/(double a, Val b);
Val operator-(Val a);

Val Exp(Val x);
Val Log(Val x);
Val Sqrt(Val x);
Val Rsqrt(Val x);  // 1/sqrt(x)
Val Tanh(Val x);
Val Sigmoid(Val x);
Val Abs(Val x);
Val Max(Val a, Val b);
Val Max(Val a, double b);
Val Min(Val a, Val b);
Val Min(Val a, double b);
Val Pow(Val a, Val b);
Val Pow(Val a, double b);
Val Where(Val condition, Val a, Val b);
Val Cast(Val x, DType to);  // x itself if it already has the type
Val Equal(Val a, Val b);
Val Greater(Val a, Val b);
Val Less(Val a, Val b);
Val And(Val a, Val b);
Val Or(Val a, Val b);
Val Not(Val x);

// Reductions. Axes may be negative; empty axes stand for all axes.
Val ReduceSum(Val x, std::vector<int64_t> axes, bool keepdims = true);
Val ReduceMean(Val x, std::vector<int64_t> axes, bool keepdims = true);
Val ReduceMax(Val x, std::vector<int64_t> axes, bool keepdims = true);
Val ArgMax(Val x, int64_t axis);  // removes the axis
Val Softmax(Val x, int64_t axis);
Val LogSoftmax(Val x, int64_t axis);
// Sums x over the axes along which `shape` broadcasts to the shape of x; this is the gradient of broadcasting. Takes
// the shape by value, since appending nodes invalidates references to shapes of the graph.
Val SumTo(Val x, Shape shape);

Val MatMul(Val a, Val b, bool trans_a = false, bool trans_b = false);
Val Reshape(Val x, Shape shape);                  // static extents only; x itself if the shape is the same
Val Transpose(Val x, std::vector<int64_t> perm);  // x itself if perm is the identity
Val Expand(Val x, Shape shape);
Val Concat(std::vector<Val> parts, int64_t axis);
Val Slice(Val x, int64_t axis, int64_t start, int64_t length);  // [start, start + length) along one axis
Val Gather(Val x, Val index, int64_t axis);
Val GatherElements(Val x, Val index, int64_t axis);
Val ZerosLike(Val x);  // an Expand of a scalar

// Returns `axis` normalized to [0, rank), or an error for an axis outside [−rank, rank).
absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank);

}  // namespace onnxtrain
