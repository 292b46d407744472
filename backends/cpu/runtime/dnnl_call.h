// Wraps oneDNN's primitives and converts their exceptions to Status.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

dnnl::engine& Engine();
dnnl::primitive_attr UserScratchpad();

// Runs f and converts a dnnl::error or an allocation failure to a Status.
absl::Status CatchDnnlErrors(const std::function<void()>& f);
// Returns an error if no memory can be mapped for generated code, which oneDNN would write to address 0. Call it before
// creating a primitive.
absl::Status CheckJitMemory();

// Converts f32 or bf16, the types of the primitives, to oneDNN's type.
dnnl::memory::data_type DnnlType(DType dtype);
// Returns true if the processor has bf16 products; without them, oneDNN's bf16 is slower than its f32.
bool HasBFloat16();

// Describes a tensor with the given extents and strides, without blocking.
dnnl::memory::desc Plain(const Shape& extents, const Shape& strides, DType dtype = DType::kFloat32);
dnnl::memory::desc Plain(const Shape& extents);
// Describes a tensor whose layout the primitive chooses.
dnnl::memory::desc AnyLayout(const Shape& extents, DType dtype = DType::kFloat32);

inline size_t Aligned64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A prepared primitive with its arguments. Copies share the immutable primitive, but not the argument slots: copies may
// run concurrently, one object may not.
class DnnlCall {
 public:
  // `arguments` has DNNL_ARG_… and the layout of each argument, in the order of the pointers of Run.
  DnnlCall(const dnnl::primitive& primitive, const std::vector<std::pair<int, dnnl::memory::desc>>& arguments);
  DnnlCall(const DnnlCall& other);
  DnnlCall(DnnlCall&&) = default;
  DnnlCall& operator=(const DnnlCall&) = delete;

  // Executes the primitive. Throws dnnl::error on failure.
  void Run(std::initializer_list<const void*> pointers) const;

 private:
  void AddArgument(int arg, const dnnl::memory::desc& desc);

  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
  mutable std::vector<const void*> pointers_;  // the current data handles of memories_
};

// Converts a tensor from one layout into another. Run takes the source, the destination and scratch memory.
struct Reorder {
  DnnlCall call;
  size_t scratch;  // bytes
};
Reorder MakeReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

// Returns true for oneDNN's reference implementation, which is slower than the others by orders of magnitude.
template <typename PrimitiveDesc>
bool IsReference(const PrimitiveDesc& desc) {
  return std::string(desc.impl_info_str()).find("ref") != std::string::npos;
}

}  // namespace onnxtrain::cpu
