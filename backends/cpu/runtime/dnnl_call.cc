#include "backends/cpu/runtime/dnnl_call.h"

#include <new>

#include "backends/kernel_table.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

dnnl::stream& Stream() {
  static auto* stream = new dnnl::stream(Engine());
  return *stream;
}

void Check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) throw dnnl::error(status, what);
}

}  // namespace

dnnl::engine& Engine() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::memory::data_type DnnlType(DType dtype) {
  return dtype == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool HasBFloat16() {
  static const bool has = [] {
    constexpr auto kBFloat16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kBFloat16) == kBFloat16;
  }();
  return has;
}

dnnl::memory::desc Plain(const Shape& extents, const Shape& strides, DType dtype) {
  return {dnnl::memory::dims(extents.begin(), extents.end()), DnnlType(dtype),
          dnnl::memory::dims(strides.begin(), strides.end())};
}

dnnl::memory::desc Plain(const Shape& extents) { return Plain(extents, Strides(extents)); }

dnnl::memory::desc AnyLayout(const Shape& extents, DType dtype) {
  return {dnnl::memory::dims(extents.begin(), extents.end()), DnnlType(dtype), dnnl::memory::format_tag::any};
}

DnnlCall::DnnlCall(const dnnl::primitive& primitive, const std::vector<std::pair<int, dnnl::memory::desc>>& arguments)
    : primitive_(primitive) {
  for (const auto& [arg, desc] : arguments) AddArgument(arg, desc);
}

DnnlCall::DnnlCall(const DnnlCall& other) : primitive_(other.primitive_) {
  for (size_t i = 0; i < other.args_.size(); ++i) AddArgument(other.args_[i].arg, other.memories_[i].get_desc());
}

void DnnlCall::AddArgument(int arg, const dnnl::memory::desc& desc) {
  // NOLINTNEXTLINE(modernize-use-emplace): DNNL_MEMORY_NONE is an integer to templates.
  memories_.push_back(dnnl::memory(desc, Engine(), DNNL_MEMORY_NONE));
  args_.push_back({arg, memories_.back().get()});
  pointers_.push_back(nullptr);
}

void DnnlCall::Run(std::initializer_list<const void*> pointers) const {
  size_t i = 0;
  for (const void* p : pointers) {
    if (p != pointers_[i]) memories_[i].set_data_handle(const_cast<void*>(p), Stream());
    pointers_[i++] = p;
  }
  // The C++ function would build a map in every call.
  Check(dnnl_primitive_execute(primitive_.get(), Stream().get(), static_cast<int>(args_.size()), args_.data()),
        "could not execute a primitive");
  Check(dnnl_stream_wait(Stream().get()), "could not wait for a stream");
}

Reorder MakeReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc desc(Engine(), from, Engine(), to, UserScratchpad());
  const auto scratch = desc.scratchpad_desc();
  const std::vector<std::pair<int, dnnl::memory::desc>> arguments = {
      {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch}};
  return {DnnlCall(dnnl::reorder(desc), arguments), scratch.get_size()};
}

absl::Status CatchDnnlErrors(const std::function<void()>& f) {
  try {
    f();
    return absl::OkStatus();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return absl::ResourceExhaustedError("oneDNN has run out of memory");
    return absl::InternalError(StrCat("oneDNN: ", e.message == nullptr ? "unknown error" : e.message, " (status ",
                                      static_cast<int>(e.status), ")"));
  } catch (const KernelFailure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory left");
  }
}

absl::Status CheckJitMemory() {
  constexpr double kRoom = double{16 << 20};
  if (AvailableAddressSpace() >= kRoom) return absl::OkStatus();
  return absl::ResourceExhaustedError("no address space is left for the code of a primitive (ulimit -v)");
}

}  // namespace onnxtrain::cpu
