// One reliable connection over verbs. Each step that fails names itself.
#pragma once

#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/time/clock.hpp"
#include "fabric/verbs/verbs_api.hpp"

namespace amldist::fabric {

/// The call that failed, and its errno or the completion's status.
struct VerbsFailure {
  std::string stage;
  int error = 0;
  std::uint32_t wc_status = 0;
};

/// nullopt on success.
using VerbsOutcome = std::optional<VerbsFailure>;

/// Port and addressing of one end.
struct LinkTarget {
  std::string device;
  std::uint8_t port = 1;
  std::uint32_t gid_index = 0;
  std::uint16_t pkey_index = 0;
  bool ethernet = false;
};

/// Memory of the other end that may be written, as wr.rdma of ibv_send_wr, the first member of a union.
struct RemotePlace {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

/// What the other end needs to connect.
struct LinkAddress {
  std::uint32_t qp_number = 0;
  std::uint32_t first_packet = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t mtu = 0;  ///< ibv_mtu
  std::uint64_t buffer = 0;
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
};

/// Destroys an object of libibverbs; the function comes from the loaded library.
template <typename Object>
using VerbsHandle = std::unique_ptr<Object, int (*)(Object*)>;

/// Pinned memory on its own pages.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t size);
  PinnedBuffer(PinnedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// An open device with registered memory. Queue pairs are created on it.
class RdmaDevice {
 public:
  /// Opens the device with the target's name and registers `bytes` of memory.
  [[nodiscard]] static VerbsOutcome open(const VerbsApi& api, const LinkTarget& target, std::size_t bytes,
                                         RdmaDevice& device);

  [[nodiscard]] const VerbsApi& api() const noexcept { return *api_; }
  [[nodiscard]] const LinkTarget& target() const noexcept { return target_; }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return buffer_.bytes(); }
  [[nodiscard]] bool registered() const noexcept { return region_ != nullptr; }
  [[nodiscard]] bool supports_dmabuf() const noexcept;

  /// Registers memory of a GPU, as a source and a target of writes: by its address (peer memory), else by `dmabuf`, if
  /// that is valid.
  [[nodiscard]] VerbsOutcome register_gpu(void* address, std::size_t bytes, int dmabuf);
  /// That memory, for peers; nullopt before register_gpu().
  [[nodiscard]] std::optional<RemotePlace> gpu_memory() const noexcept;

 private:
  friend class RdmaLink;
  VerbsOutcome find(const VerbsApi& api);
  VerbsOutcome read_port();

  const VerbsApi* api_ = nullptr;
  LinkTarget target_;
  PinnedBuffer buffer_;
  VerbsHandle<ibv_context> context_{nullptr, nullptr};
  VerbsHandle<ibv_pd> domain_{nullptr, nullptr};
  VerbsHandle<ibv_mr> region_{nullptr, nullptr};
  VerbsHandle<ibv_mr> gpu_region_{nullptr, nullptr};
  std::byte* gpu_address_ = nullptr;
  std::uint16_t lid_ = 0;
  std::uint32_t mtu_ = 0;
  ibv_gid gid_{};
};

/// The memory that a write reads.
enum class Source { host, gpu };

/// A queue pair with its completion queue. The device must outlive it.
class RdmaLink {
 public:
  [[nodiscard]] static VerbsOutcome make(const RdmaDevice& device, RdmaLink& link);
  [[nodiscard]] LinkAddress address() const noexcept;
  /// Brings the queue pair to ready-to-send towards the peer.
  [[nodiscard]] VerbsOutcome connect(const LinkAddress& peer);
  /// Starts such a write; each needs one finish_write(). Four at once at most.
  [[nodiscard]] VerbsOutcome start_write(std::size_t from, const RemotePlace& to, std::uint32_t bytes,
                                         Source source = Source::host);
  [[nodiscard]] VerbsOutcome finish_write(Clock::time_point deadline) { return wait(deadline); }
  /// Writes `bytes` from offset `from` of our memory to `to` of the peer's, and waits for the completion.
  [[nodiscard]] VerbsOutcome write(std::size_t from, const RemotePlace& to, std::uint32_t bytes,
                                   Clock::time_point deadline);

 private:
  VerbsOutcome to_init();
  VerbsOutcome to_ready_to_receive(const LinkAddress& peer);
  VerbsOutcome to_ready_to_send();
  VerbsOutcome wait(Clock::time_point deadline);

  const RdmaDevice* device_ = nullptr;
  VerbsHandle<ibv_cq> queue_{nullptr, nullptr};
  VerbsHandle<ibv_qp> pair_{nullptr, nullptr};
};

}  // namespace amldist::fabric
