// A pretend accelerator for PyTorch's PrivateUse1 slot, to test a profiler where no GPU is at hand.
//
// Time is real, arithmetic is not. Each stream is a worker thread with a queue: a fake kernel (`spin`) is a
// sleep in that queue, and an event is stamped when the worker reaches it. So launching is asynchronous, and
// a late batch leaves a gap that the device's own clock sees. Tensors live in host memory; operators run at
// once, on the calling thread, and take no device time: what a step costs is said with `spin`.
//
// What waits for the device is modelled on CUDA, since that is what a profiler must not get wrong:
//   `.item()`, equal, nonzero, masked_select   wait for the current stream
//   copies between host and device             wait, except a non_blocking one from or to pinned memory
//                                              (CUDA lets a small unpinned one go early; here it waits)
//   a query or a wait during graph capture     is an error

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include "memory.h"
#include "streams.h"

namespace sim {

std::atomic<double> copy_ms{0};  // how long a host-to-device copy keeps its stream busy

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)
REGISTER_ALLOCATOR(kSim, &DeviceMemory::get())
REGISTER_HOST_ALLOCATOR(kSim, &PinnedMemory::get())

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(DeviceIndex device) const override { exchange_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override { return exchange_device(device); }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchange_device(device); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::get(); }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::get().holds(data); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
};

// The CPU fallback brings operands to the host and results back. A real device would do neither, so those
// copies take no time and wait for nothing.
thread_local bool inside_fallback = false;

at::Tensor as_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const auto options = tensor.options().device(c10::DeviceType::CPU);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &DeviceMemory::get(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &DeviceMemory::get(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, size, format);
}

// The bytes move at once; what is simulated is how long the copy takes, and who waits for it.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  as_host(target).copy_(as_host(self));
  const bool within_device = !self.is_cpu() && !target.is_cpu();
  if (inside_fallback || within_device) return target;
  const auto& [host, device] = self.is_cpu() ? std::tie(self, target) : std::tie(target, self);
  if (self.is_cpu()) keep_busy(device.get_device(), copy_ms);
  if (!non_blocking || !host.is_pinned()) wait_for_current_stream(device.get_device());
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  resize_(target, self.sizes(), std::nullopt);
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  wait_for_current_stream(self.get_device());
  return as_host(self).item();
}

bool needs_an_answer(const std::string& op) {
  return op == "aten::equal" || op == "aten::nonzero" || op == "aten::masked_select";
}

using Stack = torch::jit::Stack;
using torch::CppFunction;

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  struct Scope {
    bool before = std::exchange(inside_fallback, true);
    ~Scope() { inside_fallback = before; }
  } scope;
  if (needs_an_answer(op.schema().name())) wait_for_current_stream(current_device);
  at::native::cpu_fallback(op, stack);
}

// Convolution asks each device for an operator of its own, which the CPU does not have: use the common one.
void convolution(const c10::OperatorHandle&, Stack* stack) {
  run_on_cpu(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", ""), stack);
}

void convolution_backward(const c10::OperatorHandle&, Stack* stack) {
  stack->insert(stack->begin() + 3, c10::IValue());  // the common one also takes the size of the bias
  run_on_cpu(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", ""), stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }

// Autocast is accepted, and casts nothing.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("convolution_overrideable", CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace sim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(new sim::Hooks);
  pthread_atfork(nullptr, nullptr, [] { sim::forked = true; });
  m.def("spin", [](double ms) { sim::keep_busy(sim::current_device, ms); });
  m.def("set_copy_ms", [](double ms) { sim::copy_ms = ms; });
  m.def("set_capacity", [](size_t bytes) { sim::capacity = bytes; });
  m.def("set_capturing", [](bool on) { sim::capturing = on; });
  m.def("is_capturing", [] { return sim::capturing.load(); });
  m.def("calls_while_capturing", [] { return sim::calls_while_capturing.load(); });
  m.def("is_forked", [] { return sim::forked.load(); });
}
