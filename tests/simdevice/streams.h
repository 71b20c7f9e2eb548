// Time on the sim device: streams, events, and the guard through which PyTorch uses them.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/irange.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace sim {

using c10::Device, c10::DeviceIndex, c10::StreamId;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr auto kSim = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex kDevices = 2;
constexpr StreamId kStreams = 8;  // stream 0 is the default one; the others are handed out in turn

inline std::atomic<bool> forked{false};  // threads do not survive a fork, so neither does the device
inline std::atomic<bool> capturing{false};
inline std::atomic<int64_t> calls_while_capturing{0};  // records, queries, waits: a careful tool makes none

inline thread_local DeviceIndex current_device = 0;
inline thread_local std::array<StreamId, kDevices> current_stream_id{};

using Moment = std::shared_future<Clock::time_point>;

// A stream: one worker thread doing one task after the other.
class Queue {
 public:
  // Returns when the work will have been done; without any work, when the worker gets there.
  Moment submit(std::function<void()> work = {}) {
    TORCH_CHECK(!forked, "Cannot use the sim device in a forked subprocess");
    const std::lock_guard lock(mutex_);
    // Detached and never joined: a worker must not keep the interpreter from exiting.
    if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
    auto& task = tasks_.emplace_back(Task{std::move(work), {}});
    wake_.notify_one();
    return task.done.get_future().share();
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

 private:
  struct Task {
    std::function<void()> work;
    std::promise<Clock::time_point> done;
  };

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      auto& task = tasks_.front();  // stays queued while it runs, or a busy stream would look idle
      if (task.work) {
        lock.unlock();
        task.work();
        lock.lock();
      }
      task.done.set_value(Clock::now());  // under the lock: who has waited for it finds the stream idle
      tasks_.pop_front();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool started_ = false;
};

inline Queue& queue_of(DeviceIndex device, StreamId stream) {
  // Never destroyed: at exit the workers still look at it.
  static auto* queues = new std::array<std::array<Queue, kStreams>, kDevices>;
  return queues->at(device).at(stream);
}

inline Queue& queue_of(const c10::Stream& stream) { return queue_of(stream.device_index(), stream.id()); }

inline Queue& current_queue(DeviceIndex device) { return queue_of(device, current_stream_id.at(device)); }

// One recording of an event. Recording it again makes a new mark; whoever waits for the old one keeps that.
struct Mark {
  Moment reached;
  DeviceIndex device;

  bool done() const { return reached.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

// As on CUDA, where such a call also spoils the capture.
inline void forbid_while_capturing() {
  if (!capturing) return;
  ++calls_while_capturing;
  TORCH_CHECK(false, "operation not permitted when stream is capturing");
}

inline void wait_for(Queue& queue) {
  forbid_while_capturing();
  queue.submit().wait();
}

inline void wait_for_current_stream(DeviceIndex device) { wait_for(current_queue(device)); }

inline void wait_for_device(DeviceIndex device) {
  forbid_while_capturing();
  for (const auto stream : c10::irange(kStreams)) {
    auto& queue = queue_of(device, stream);
    if (!queue.idle()) wait_for(queue);
  }
}

// The fake kernel.
inline void keep_busy(DeviceIndex device, double ms) {
  if (ms <= 0) return;
  current_queue(device).submit([ms] { std::this_thread::sleep_for(Milliseconds(ms)); });
}

// A negative index means "the current one" throughout PyTorch.
inline DeviceIndex exchange_device(DeviceIndex device) {
  TORCH_CHECK(device < kDevices, "invalid sim device ordinal ", int(device));
  return device < 0 ? current_device : std::exchange(current_device, device);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSim; }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }

  Device getDevice() const override { return {kSim, current_device}; }
  Device exchangeDevice(Device device) const override { return {kSim, exchange_device(device.index())}; }
  void setDevice(Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) current_device = device.index();
  }

  c10::Stream getDefaultStream(Device device) const override { return stream(device, 0); }
  c10::Stream getStream(Device device) const override {
    return stream(device, current_stream_id.at(with_index(device).index()));
  }
  c10::Stream getNewStream(Device device, int) const override {
    static std::atomic<StreamId> next{0};
    return stream(device, 1 + next++ % (kStreams - 1));
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    return stream(wanted.device(), std::exchange(current_stream_id.at(wanted.device_index()), wanted.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    forbid_while_capturing();
    return queue_of(stream).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(queue_of(stream)); }
  void synchronizeDevice(DeviceIndex device) const override { wait_for_device(device); }
  bool isStreamCapturing(const c10::Stream&) const override { return capturing; }

  void record(void** event, const c10::Stream& stream, DeviceIndex device, c10::EventFlag) const override {
    TORCH_CHECK(device < 0 || device == stream.device_index(), "this event belongs to another device");
    calls_while_capturing += capturing;
    if (!*event) *event = new Mark;
    mark_of(*event) = {queue_of(stream).submit(), stream.device_index()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    queue_of(stream).submit([reached = mark_of(event).reached] { reached.wait(); });
  }
  bool queryEvent(void* event) const override {
    forbid_while_capturing();
    return mark_of(event).done();
  }
  void synchronizeEvent(void* event) const override {
    forbid_while_capturing();
    mark_of(event).reached.wait();
  }
  double elapsedTime(void* start, void* end, DeviceIndex) const override {
    TORCH_CHECK(mark_of(start).device == mark_of(end).device, "these events belong to different devices");
    return Milliseconds(mark_of(end).reached.get() - mark_of(start).reached.get()).count();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete &mark_of(event); }

 private:
  static Mark& mark_of(void* event) { return *static_cast<Mark*>(event); }
  static Device with_index(Device device) {
    return device.has_index() ? device : Device(kSim, current_device);
  }
  static c10::Stream stream(Device device, StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, with_index(device), id);
  }
};

}  // namespace sim
