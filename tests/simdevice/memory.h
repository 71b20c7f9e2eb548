// Memory of the sim device: host memory with a capacity, a cache and the usual statistics.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <map>
#include <unordered_map>

#include "streams.h"

namespace sim {

inline std::atomic<size_t> capacity{size_t{1} << 30};  // of each device

// Keeps freed blocks, as the real caching allocators do, so that reserved and allocated memory differ.
class DeviceMemory final : public c10::DeviceAllocator {
 public:
  static DeviceMemory& get() {
    static auto* memory = new DeviceMemory;  // tensors may outlive static objects
    return *memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const Device device(kSim, current_device);
    if (bytes == 0) return {nullptr, device};
    const std::lock_guard lock(mutex_);
    auto* block = take(bytes, current_device);
    auto& stats = stats_.at(block->device);
    stats.allocation[0].increase(1);
    stats.allocated_bytes[0].increase(block->size);
    stats.active_bytes[0].increase(block->size);
    stats.requested_bytes[0].increase(block->requested);
    return {block->data, block, &give_back, device};
  }

  bool initialized() override { return true; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // no operator is ever late here
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  void emptyCache(c10::MempoolId_t) override {
    const std::lock_guard lock(mutex_);
    for (const auto device : c10::irange(kDevices)) drop_cache(device);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return stats_.at(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    for (auto* stat : kept_stats(device)) stat->reset_accumulated();
  }
  void resetPeakStats(DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    for (auto* stat : kept_stats(device)) stat->reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    const size_t total = capacity;
    return {total - std::min(total, reserved(device)), total};
  }

 private:
  struct Block {
    void* data;
    size_t size;  // rounded up; what the statistics call allocated
    size_t requested;
    DeviceIndex device;
  };

  Block* take(size_t bytes, DeviceIndex device) {
    const size_t size = (bytes + 511) / 512 * 512;
    if (auto cached = cache_.at(device).extract(size)) {
      cached.mapped()->requested = bytes;
      return cached.mapped();
    }
    auto& stats = stats_.at(device);
    if (reserved(device) + size > capacity) {
      ++stats.num_alloc_retries;
      drop_cache(device);
    }
    if (reserved(device) + size > capacity) out_of_memory(bytes, device);
    ++stats.num_device_alloc;
    stats.segment[0].increase(1);
    stats.reserved_bytes[0].increase(size);
    return new Block{std::aligned_alloc(512, size), size, bytes, device};
  }

  static void give_back(void* context) {
    auto* block = static_cast<Block*>(context);
    auto& memory = get();
    const std::lock_guard lock(memory.mutex_);
    auto& stats = memory.stats_.at(block->device);
    stats.allocation[0].decrease(1);
    stats.allocated_bytes[0].decrease(block->size);
    stats.active_bytes[0].decrease(block->size);
    stats.requested_bytes[0].decrease(block->requested);
    memory.cache_.at(block->device).emplace(block->size, block);
  }

  void drop_cache(DeviceIndex device) {
    auto& stats = stats_.at(device);
    for (const auto& [size, block] : cache_.at(device)) {
      ++stats.num_device_free;
      stats.segment[0].decrease(1);
      stats.reserved_bytes[0].decrease(size);
      std::free(block->data);
      delete block;
    }
    cache_.at(device).clear();
  }

  void out_of_memory(size_t bytes, DeviceIndex device) {
    ++stats_.at(device).num_ooms;
    using c10::CachingAllocator::format_size;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory. Tried to allocate ", format_size(bytes),
                     ". Device ", int(device), " has ", format_size(capacity), ", of which ",
                     format_size(reserved(device)), " is reserved.");
  }

  size_t reserved(DeviceIndex device) const { return stats_.at(device).reserved_bytes[0].current; }

  std::array<c10::CachingAllocator::Stat*, 6> kept_stats(DeviceIndex device) {
    auto& stats = stats_.at(device);
    return {&stats.allocation[0],     &stats.segment[0],      &stats.allocated_bytes[0],
            &stats.requested_bytes[0], &stats.active_bytes[0], &stats.reserved_bytes[0]};
  }

  std::mutex mutex_;
  std::array<c10::CachingDeviceAllocator::DeviceStats, kDevices> stats_;
  std::array<std::unordered_multimap<size_t, Block*>, kDevices> cache_;
};

// Host memory that remembers its ranges: a pointer is pinned when it lies inside one of them.
class PinnedMemory final : public at::HostAllocator {
 public:
  static PinnedMemory& get() {
    static auto* memory = new PinnedMemory;
    return *memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = (bytes / 64 + 1) * 64;
    auto* data = static_cast<char*>(std::aligned_alloc(64, size));
    const std::lock_guard lock(mutex_);
    ranges_[data] = size;
    return {data, data, &give_back, c10::DeviceType::CPU};
  }
  bool holds(const void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto* address = static_cast<const char*>(pointer);
    const auto above = ranges_.upper_bound(address);
    return above != ranges_.begin() && address < std::prev(above)->first + std::prev(above)->second;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void give_back(void* data) {
    const std::lock_guard lock(get().mutex_);
    get().ranges_.erase(static_cast<const char*>(data));
    std::free(data);
  }

  std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

}  // namespace sim
