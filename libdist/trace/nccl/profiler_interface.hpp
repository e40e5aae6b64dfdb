// NCCL's interface to profiler plugins, versions 1 to 7, redeclared as far as it is needed here. Source: the headers
// src/include/plugin/profiler/profiler_v*.h and nccl_profiler.h of NVIDIA/nccl (2.23 has version 1, 2.29 version 6,
// 2.31 version 7).
//
// NCCL looks for a table `ncclProfiler_vN`, the newest that it knows first. Every version's table has the same six
// members; the parameters of init and the descriptor of an event differ. Versions 6 and 7 add events, and members at
// the ends of those that there were.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amldist::trace::nccl {

/// Bits of the mask that init gives, and types of events.
inline constexpr int event_collective = 1 << 1;       ///< enqueued
inline constexpr int event_message = 1 << 2;          ///< enqueued
inline constexpr int event_collective_call = 1 << 9;  ///< called; from version 5 on
/// All that a version knows, from 5 on.
inline constexpr int events_of_5 = (1 << 12) - 1;
inline constexpr int events_of_6 = (1 << 15) - 1;

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

/// Up to version 3. `Word`: functions and types are numbers in version 1, and names from 2 on. Behind these members the
/// versions differ.
template <typename Word>
struct NamedCollective {
  const char* name;
  std::uint64_t comm_hash;
  std::uint64_t sequence;
  Word function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  Word type;
};
template <typename Word>
struct NamedMessage {
  const char* name;
  std::uint64_t comm_hash;
  Word function;
  void* buffer;
  Word type;
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
using FirstEvent = Event<EventHead1, NamedCollective<std::uint8_t>>;
using FifthEvent = Event<EventHead5, CollectiveCall5>;
static_assert(offsetof(FirstEvent, body) == 24 && offsetof(FifthEvent, body) == 24);
/// What version 7 has behind them (a stream, a flag, the user's tag) is not read.
static_assert(offsetof(CollectiveCall5, root) == 24 && sizeof(CollectiveCall5) == 32);
static_assert(offsetof(Message4, peer) == 32 && sizeof(Message4) == 40);

}  // namespace amldist::trace::nccl
