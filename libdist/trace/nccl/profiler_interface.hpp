// NCCL's interface to profiler plugins, versions 1 to 6, redeclared as far as it is needed here. Source: the headers
// src/include/plugin/profiler/profiler_v*.h and nccl_profiler.h of NVIDIA/nccl (2.23 has version 1, 2.29 version 6).
//
// NCCL looks for a table `ncclProfiler_vN`, the newest that it knows first. Every version's table has the same six
// members; the parameters of init and the descriptor of an event differ.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amldist::trace::nccl {

/// Bits of the mask that init gives, and types of events.
inline constexpr int event_collective = 1 << 1;       ///< enqueued
inline constexpr int event_message = 1 << 2;          ///< enqueued
inline constexpr int event_collective_call = 1 << 9;  ///< called; from version 5 on

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using StopEvent = int (*)(void* event);
using RecordState = int (*)(void* event, int state, void* arguments);
using Finalize = int (*)(void* context);

/// The head of every descriptor: its type is a byte up to version 4, eight bytes from 5 on. The bytes between the type
/// and the parent are padding then, so the type is read according to the version.
struct EventHead1 {
  std::uint8_t type;
  void* parent;
  int rank;
};
struct EventHead5 {
  std::uint64_t type;
  void* parent;
  int rank;
};

struct Collective1 {
  const char* name;
  std::uint64_t comm_hash;
  std::uint64_t sequence;
  std::uint8_t function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  std::uint8_t type;
  std::uint32_t op;
};
struct Message1 {
  const char* name;
  std::uint64_t comm_hash;
  std::uint8_t function;
  void* buffer;
  std::uint8_t type;
  std::size_t count;
  int peer;
};
/// Versions 2 and 3 differ only after these members.
struct Collective2 {
  const char* name;
  std::uint64_t comm_hash;
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
};
struct Message2 {
  const char* name;
  std::uint64_t comm_hash;
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
};
/// From version 4 on init names the communicator.
struct Collective4 {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
};
struct Message4 {
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
};
/// From version 5 on.
struct CollectiveCall5 {
  const char* function;
  std::size_t count;
  const char* type;
  int root;
};

template <typename Head, typename Body>
struct Event {
  Head head;
  Body body;
};

/// The unions behind a head begin where a pointer or an eight-byte number may stand.
using FirstEvent = Event<EventHead1, Collective1>;
using FifthEvent = Event<EventHead5, CollectiveCall5>;
static_assert(offsetof(FirstEvent, body) == 24 && offsetof(FifthEvent, body) == 24);

}  // namespace amldist::trace::nccl
