#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace nvfp4 {

/// A pool of reusable values for tasks that run at the same time.
template <class T>
class LendingPool {
 public:
  class Lease {
   public:
    explicit Lease(LendingPool& pool) : pool_(pool), value_(pool.take()) {}
    ~Lease() { pool_.give(std::move(value_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T* operator->() { return &value_; }
    T& operator*() { return value_; }

   private:
    LendingPool& pool_;
    T value_;
  };

  /// Creates an empty pool. `make` is called from any thread if no value is free.
  explicit LendingPool(std::function<T()> make = [] { return T(); }) : make_(std::move(make)) {}

 private:
  T take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        T value = std::move(free_.back());
        free_.pop_back();
        return value;
      }
    }
    return make_();
  }
  void give(T&& value) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(value));
  }

  std::function<T()> make_;
  std::mutex mutex_;
  std::vector<T> free_;
};

}  // namespace nvfp4
