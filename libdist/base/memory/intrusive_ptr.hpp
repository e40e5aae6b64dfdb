// Shared ownership of an object that counts its owners itself, for objects that come and go by the million: one block
// of memory, and no locked operation while there is one owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace amldist {

/// The base class of such an object. It has one owner when it is made.
class ReferenceCounted {
 public:
  ReferenceCounted(const ReferenceCounted&) = delete;
  ReferenceCounted& operator=(const ReferenceCounted&) = delete;

  /// By an owner.
  void add_owner() noexcept {
    if (has_one_owner()) owners_.store(2, std::memory_order_relaxed);
    else owners_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Whether it was the last: then the object is to be deleted.
  [[nodiscard]] bool remove_owner() noexcept {
    return has_one_owner() || owners_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 protected:
  ReferenceCounted() = default;
  ~ReferenceCounted() = default;

 private:
  /// True only if the owner that asks is the only one: then nobody else can change the count. Acquire: it sees what
  /// former owners wrote.
  [[nodiscard]] bool has_one_owner() const noexcept { return owners_.load(std::memory_order_acquire) == 1; }

  std::atomic<std::uint32_t> owners_ = 1;
};

/// An owner. Several threads may have owners of one object, but an owner belongs to one thread at a time, even if it is
/// only copied.
template <typename T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  /// Takes over an owner that has no IntrusivePtr: of an object that was just made, or that release() has returned.
  explicit IntrusivePtr(T* object) noexcept : object_(object) {}
  /// One more owner of an object that has one.
  [[nodiscard]] static IntrusivePtr sharing(T& object) noexcept {
    object.add_owner();
    return IntrusivePtr(&object);
  }
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->add_owner();
  }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(other.release()) {}
  IntrusivePtr& operator=(const IntrusivePtr& other) noexcept {
    IntrusivePtr(other).swap(*this);
    return *this;
  }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept {
    IntrusivePtr(std::move(other)).swap(*this);
    return *this;
  }
  ~IntrusivePtr() { reset(); }

  /// The owner continues without an IntrusivePtr.
  [[nodiscard]] T* release() noexcept { return std::exchange(object_, nullptr); }
  void reset() noexcept {
    if (object_ != nullptr) remove(release());
  }
  void swap(IntrusivePtr& other) noexcept { std::swap(object_, other.object_); }

  [[nodiscard]] T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  /// Not inlined: most of these are empty when they end, because their object was passed on.
  [[gnu::noinline]] static void remove(T* object) noexcept {
    if (object->remove_owner()) delete object;
  }

  T* object_ = nullptr;
};

}  // namespace amldist
