#include "collective/communicator/call_runner.hpp"

#include "collective/communicator/host/unreceived_messages.hpp"
#include "collective/communicator/split_requests.hpp"

namespace amldist::collective {

Result<void> CallRunner::run(calls::Call& call, const std::atomic<bool>* is_awaited) {
  if (parts_.context.is_lost()) return refuse(call, is_awaited == nullptr);
  const std::uint64_t began = parts_.host.is_brief(call) ? clock_.now() : clock_.read_exactly();
  const int device = parts_.devices.device_of(call, began);
  const bool on_device = device != DeviceCalls::no_device;
  if (on_device) {
    if (auto status = NcclBackend::supports(call); !status) return status;
  }
  call.sequence = parts_.numbers.next(call, on_device);
  if (call.operation == calls::Operation::split) return run_split(call);
  return on_device ? run_on_device(device, call, clock_.exactly()) : run_on_host(call, began, is_awaited);
}

/// A blocking message may have begun (Transport::move_at_once()) before the communicator was lost: another rank must
/// not fetch its data any more. No other message is under way then; where calls are run from the queue, some may be.
Error CallRunner::refuse(const calls::Call& call, bool is_blocking) {
  if (is_blocking && is_point_to_point(call.operation)) parts_.host.messages().give_up();
  return parts_.refused.refuse(call, parts_.ticks.now());
}

template <typename Finish>
Result<void> CallRunner::observe(const calls::Call& call, std::uint64_t began, bool on_device,
                                 const std::atomic<bool>* is_awaited, Finish finish) {
  const auto ticket = parts_.recorder.begin(call, began);
  world::CommWatch& watch = parts_.context.watch();
  watch.enter(call);
  CallWatchdog watchdog(parts_.context, &parts_.progress, is_awaited);
  Result<void> result = finish(watchdog);
  // Before leave(), so that a rank whose device works on a call never appears to be outside of it.
  if (result && on_device) parts_.devices.watch(call, ticket);
  watch.leave();
  if (!result) fail(ticket, result.error());
  else if (!on_device) complete(call, ticket, began);
  return result;
}

/// A brief call began when it first looked for another rank in vain, if its beginning is not known better.
void CallRunner::complete(const calls::Call& call, CallObserver::Ticket ticket, std::uint64_t began) {
  if (!parts_.host.is_brief(call)) return parts_.recorder.complete(ticket);
  const VainLooks& looks = parts_.host.vain_looks();
  const std::uint64_t ended = looks.end(began, parts_.ticks);
  if (clock_.is_exact() || looks.first == 0) parts_.recorder.complete_at(ticket, ended);
  else parts_.recorder.complete(ticket, looks.first, ended);
  clock_.note(ended);
}

void CallRunner::fail(CallObserver::Ticket ticket, const Error& error) {
  parts_.recorder.fail(ticket, error);
  parts_.context.give_up(error);
}

/// The start comes first of all: the other ranks wait for it.
Result<void> CallRunner::run_on_host(const calls::Call& call, std::uint64_t began,
                                     const std::atomic<bool>* is_awaited) {
  const auto started = parts_.host.start(call);
  return observe(call, began, false, is_awaited, [&](CallWatchdog& watchdog) { return started.finish(watchdog); });
}

Result<void> CallRunner::run_on_device(int device, const calls::Call& call, std::uint64_t began) {
  return observe(call, began, true, nullptr,
                 [&](CallWatchdog& watchdog) { return parts_.devices.run(device, call, watchdog); });
}

Result<void> CallRunner::run_group(std::span<calls::Call> messages) {
  const std::uint64_t began = clock_.read_exactly();
  if (parts_.context.is_lost()) return parts_.refused.refuse(messages.back(), began);
  const int device = parts_.devices.device_of(messages.back(), began);
  const bool on_device = device != DeviceCalls::no_device;
  for (calls::Call& message : messages) message.sequence = parts_.numbers.next(message, on_device);
  return observe(messages.back(), began, on_device, nullptr, [&](CallWatchdog& watchdog) {
    return on_device ? parts_.devices.run_group(device, messages, watchdog)
                     : watchdog.with_cause(parts_.host.exchange(messages, watchdog));
  });
}

Result<void> CallRunner::run_to_completion(const std::vector<RequestPtr>& requests,
                                           const std::atomic<bool>& is_awaited) {
  Result<void> result;
  if (requests.size() == 1) {
    for (calls::Call call : requests.front()->calls()) {
      if (result) result = run(call, &is_awaited);
    }
  } else {
    std::vector<calls::Call> messages;
    messages.reserve(requests.size());
    for (const auto& request : requests) messages.push_back(request->first());
    result = run_group(messages);
  }
  if (!result) return result;
  CallWatchdog watchdog(parts_.context, &parts_.progress);
  return parts_.devices.synchronize(requests.front()->first().stream, watchdog);
}

/// Runs over the control channel, without the observer.
Result<void> CallRunner::run_split(const calls::Call& call) {
  world::CommWatch& watch = parts_.context.watch();
  watch.enter(call);
  CallWatchdog watchdog(parts_.context, &parts_.progress);
  const auto texts = parts_.gather.gather_all(to_string(*static_cast<const SplitRequest*>(call.send)), watchdog);
  watch.leave();
  if (!texts) return texts.error();
  auto* out = static_cast<SplitRequest*>(call.recv);
  for (std::size_t rank = 0; rank < texts->size(); ++rank) *out++ = parse_split_request((*texts)[rank]);
  return {};
}

Result<void> CallRunner::finalize() {
  calls::Call call;
  call.operation = calls::Operation::finalize;
  call.sequence = parts_.numbers.next(call, false);
  return observe(call, clock_.read_exactly(), false, nullptr, [&](CallWatchdog& watchdog) {
    auto met = parts_.host.start(call).finish(watchdog);
    return met ? check_all_received(parts_.context, parts_.host, parts_.numbers, call, watchdog) : met;
  });
}

}  // namespace amldist::collective
