// oneDNN's primitives, and the one place where its exceptions end. dnnl is seen nowhere outside this backend.
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

// Runs f and turns a dnnl::error, or memory running out, into a Status.
absl::Status CatchDnnlErrors(const std::function<void()>& f);
// Before oneDNN makes a primitive: where no memory can be mapped for its code, oneDNN writes it to address 0.
absl::Status CheckJitMemory();

// f32 and bf16: what our primitives compute with.
dnnl::memory::data_type DnnlType(DType dtype);
// Does the processor multiply bf16 itself? Without that, oneDNN's bf16 is slower than its f32.
bool HasBFloat16();

// A plain row-major tensor of these extents and strides.
dnnl::memory::desc Plain(const Shape& extents, const Shape& strides, DType dtype = DType::kFloat32);
dnnl::memory::desc Plain(const Shape& extents);
// Of any layout that the primitive likes best.
dnnl::memory::desc AnyLayout(const Shape& extents, DType dtype = DType::kFloat32);

inline size_t Aligned64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A prepared primitive with its arguments. Copies share the immutable primitive and have argument slots of their own,
// so copies may run in different threads; one object may not.
class DnnlCall {
 public:
  // `arguments`: DNNL_ARG_… with the layout of each, in the order in which Run gets the pointers.
  DnnlCall(const dnnl::primitive& primitive, const std::vector<std::pair<int, dnnl::memory::desc>>& arguments);
  DnnlCall(const DnnlCall& other);
  DnnlCall(DnnlCall&&) = default;
  DnnlCall& operator=(const DnnlCall&) = delete;

  // Throws dnnl::error.
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

// Is it oneDNN's reference implementation, slower than the others by orders of magnitude?
template <typename PrimitiveDesc>
bool IsReference(const PrimitiveDesc& desc) {
  return std::string(desc.impl_info_str()).find("ref") != std::string::npos;
}

}  // namespace onnxtrain::cpu
