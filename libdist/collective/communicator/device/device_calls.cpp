#include "collective/communicator/device/device_calls.hpp"

namespace amldist::collective {

Result<void> DeviceCalls::open(int device, CallWatchdog& watchdog) {
  if (backend_) return {};
  ControlExchange exchange(gather_, watchdog);
  const CudaDriver& driver = *cuda_.look(0);  // known since device_of()
  auto made = NcclBackend::create(load_nccl(nccl_library_), driver, device, exchange, watchdog.deadline());
  if (!made) return made.error();
  backend_ = std::move(*made);
  pending_ = std::make_unique<PendingDeviceCalls>(context_, observer_, driver, *backend_);
  return {};
}

Result<void> DeviceCalls::run(int device, const calls::Call& call, CallWatchdog& watchdog) {
  if (auto status = open(device, watchdog); !status) return status;
  return watchdog.with_cause(backend_->run(call, watchdog));
}

Result<void> DeviceCalls::run_group(int device, std::span<const calls::Call> messages, CallWatchdog& watchdog) {
  if (auto status = open(device, watchdog); !status) return status;
  return watchdog.with_cause(backend_->run_group(messages, watchdog));
}

Result<void> DeviceCalls::synchronize(void* stream, CallWatchdog& watchdog) {
  if (!backend_) return {};
  return watchdog.with_cause(backend_->synchronize(stream, watchdog));
}

}  // namespace amldist::collective
