#include "trace/nccl/nccl_recorder.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <new>
#include <optional>
#include <string>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/record_format.hpp"
#include "trace/record/settings.hpp"

namespace amldist::trace::nccl {
namespace {

using calls::DataType;
using calls::Operation;
using calls::ReduceOp;
using Ticket = FlightRecorder::Ticket;

constexpr DataType unknown_type{255};

template <typename Value, std::size_t N>
Value value_of(std::string_view word, const std::array<std::pair<std::string_view, Value>, N>& table, Value other) {
  for (const auto& [name, value] : table) {
    if (word == name) return value;
  }
  return other;
}

Operation operation_of(std::string_view function) {
  constexpr std::array<std::pair<std::string_view, Operation>, 10> names = {
      {{"AllReduce", Operation::allreduce},
       {"AllGather", Operation::allgather},
       {"ReduceScatter", Operation::reduce_scatter},
       {"Broadcast", Operation::broadcast},
       {"Reduce", Operation::reduce},
       {"AlltoAll", Operation::alltoall},
       {"Gather", Operation::gather},
       {"Scatter", Operation::scatter},
       {"Send", Operation::send},
       {"Recv", Operation::recv}}};
  if (function.starts_with("nccl")) function.remove_prefix(4);
  return value_of(function, names, Operation::none);
}

DataType type_of(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, DataType>, 10> names = {{{"ncclInt8", DataType::int8},
                                                                            {"ncclUint8", DataType::uint8},
                                                                            {"ncclInt32", DataType::int32},
                                                                            {"ncclUint32", DataType::uint32},
                                                                            {"ncclInt64", DataType::int64},
                                                                            {"ncclUint64", DataType::uint64},
                                                                            {"ncclFloat16", DataType::float16},
                                                                            {"ncclFloat32", DataType::float32},
                                                                            {"ncclFloat64", DataType::float64},
                                                                            {"ncclBfloat16", DataType::bfloat16}}};
  return value_of(type, names, unknown_type);
}

/// In bytes if the type is known, else in elements.
std::uint64_t bytes_of(std::uint64_t count, DataType type) {
  const std::size_t size = calls::size_of(type);
  return size != 0 ? count * size : count;
}

std::optional<std::uint32_t> first_number(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto number = text::to_number(own_variable(name).value_or(""), 1U << 30);
    if (number) return static_cast<std::uint32_t>(*number);
  }
  return std::nullopt;
}

}  // namespace

NcclRecorder& recorder() noexcept {
  alignas(NcclRecorder) static std::array<std::byte, sizeof(NcclRecorder)> room;
  static auto* const one =
      ::new (room.data()) NcclRecorder;  // never destroyed: NCCL's threads may outlive static objects
  return *one;
}

bool NcclRecorder::start() noexcept try {
  const std::lock_guard lock(mutex_);
  if (tried_) return recorder_.on();
  tried_ = true;
  const std::string step = own_variable(variable::trace).value_or("");
  const auto rank = first_number({"RANK", "SLURM_PROCID"});
  const auto size = first_number({"WORLD_SIZE", "SLURM_STEP_NUM_TASKS"});
  if (step.empty() || !rank || !size || *rank >= *size) return false;
  const auto folder = trace::make_trace_folder(own_variable(variable::trace_folder).value_or(""), step);
  if (!folder || !*folder) return false;
  auto made =
      FlightRecorder::create(**folder, {step, *rank, *size, first_number({"LOCAL_RANK", "SLURM_LOCALID"}).value_or(0),
                                        own_variable("SLURMD_NODENAME").value_or(""), "nccl"});
  if (made) recorder_ = std::move(*made);
  else std::fprintf(stderr, "aml-dist: rank %u's NCCL calls are not traced: %s\n", *rank, made.error().message.c_str());
  return recorder_.on();
} catch (...) {  // no memory: the program goes on untraced
  return false;
}

Communicator* NcclRecorder::add(std::uint64_t id, int rank, int ranks, const char* name) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!recorder_.on() || rank < 0) return nullptr;
  auto* const made = new Communicator;
  made->id = id;
  const std::string_view shown = name != nullptr ? std::string_view(name).substr(0, 64) : std::string_view();
  const auto known_size = static_cast<std::uint32_t>(ranks > rank ? ranks : rank + 1);
  made->slot = recorder_.add_communicator({id, static_cast<std::uint32_t>(rank), known_size, shown, 0, {}});
  recorder_.tick();
  return made;
} catch (...) {
  return nullptr;
}

Communicator* NcclRecorder::find_or_add(std::uint64_t id, int rank, const char* name) noexcept try {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    if (found != by_id_.end()) return found->second;
  }
  Communicator* const made = add(id, rank, 0, name);
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = by_id_.emplace(id, made);
  if (!is_new) delete made;  // another thread was faster
  return place->second;
} catch (...) {
  return nullptr;
}

void NcclRecorder::close(Communicator* communicator) noexcept {
  if (communicator == nullptr) return;
  const std::lock_guard lock(mutex_);
  recorder_.complete(communicator->last.exchange(0));
  recorder_.close_communicator(communicator->slot);
  delete communicator;
}

void NcclRecorder::enqueue(Communicator& communicator, const CollectiveFacts& facts) noexcept {
  const DataType type = type_of(facts.type);
  const Operation operation = operation_of(facts.function);
  const bool known = operation != Operation::none && trace::recorder_format::is_collective(operation);
  const Ticket ticket =
      recorder_.begin({known ? operation : trace::recorder_format::other::neighbor, type, ReduceOp::sum,
                       communicator.slot, ++communicator.sequence, bytes_of(facts.count, type), facts.root});
  recorder_.complete(communicator.last.exchange(ticket));
}

void NcclRecorder::enqueue(Communicator& communicator, const MessageFacts& facts) noexcept {
  const DataType type = type_of(facts.type);
  const bool sends = operation_of(facts.function) == Operation::send;
  recorder_.complete(recorder_.begin({sends ? Operation::send : Operation::recv, type, ReduceOp::sum, communicator.slot,
                                      0, bytes_of(facts.count, type), facts.peer}));
}

}  // namespace amldist::trace::nccl
