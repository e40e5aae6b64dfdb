// The tables that NCCL looks up, one for each version of its interface.
//
// AMLDIST_NCCL_PROFILER names another profiler, of the user or the site, which receives every event that it asked for.
// Our own events need no handles, so all handles that NCCL holds belong to the other profiler.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>

#include "base/os/environment.hpp"
#include "trace/nccl/nccl_recorder.hpp"
#include "trace/nccl/profiler_interface.hpp"
#include "trace/record/settings.hpp"

namespace amldist::trace::nccl {
namespace {

template <typename Init>
struct Table {
  const char* name;
  Init init;
  int (*start_event)(void* context, void** event, void* descriptor);
  StopEvent stop_event;
  RecordState record_state;
  Finalize finalize;
};
using Init1 = int (*)(void** context, int* mask);
using Init4 = int (*)(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks, int rank,
                      Logger logger);
using Init5 = int (*)(void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                      Logger logger);

/// The context of a communicator that NCCL holds.
struct Context {
  Communicator* communicator = nullptr;  ///< nullptr: not traced, or before version 4
  void* other = nullptr;                 ///< of the other profiler
  int other_mask = 0;
};

/// The library of the other profiler; nullptr if there is no other.
void* other_library() noexcept try {
  static void* const library = [] {
    const auto path = own_variable(variable::nccl_profiler).value_or("");
    if (path.empty()) return static_cast<void*>(nullptr);
    void* const found = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return found != nullptr ? found : ::dlopen(("libnccl-profiler-" + path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }();
  return library;
} catch (...) {  // no memory: no other profiler is chained
  return nullptr;
}

template <typename Init>
const Table<Init>* other_table(const char* name) noexcept {
  void* const library = other_library();
  return library != nullptr ? static_cast<const Table<Init>*>(::dlsym(library, name)) : nullptr;
}

/// Names of the tables, by their version.
constexpr std::array<const char*, 8> table_names = {"",
                                                    "ncclProfiler_v1",
                                                    "ncclProfiler_v2",
                                                    "ncclProfiler_v3",
                                                    "ncclProfiler_v4",
                                                    "ncclProfiler_v5",
                                                    "ncclProfiler_v6",
                                                    "ncclProfiler_v7"};

/// A table of the other profiler; nullptr: there is no such table.
template <typename Init>
struct OtherTable {
  const Table<Init>* table = nullptr;
  int events = ~0;  ///< that its version knows

  explicit operator bool() const noexcept { return table != nullptr; }
  const Table<Init>* operator->() const noexcept { return table; }
};

void say_unreached() noexcept {
  const auto named = own_variable(variable::nccl_profiler);
  if (!named || named->empty()) return;
  const char* const why =
      other_library() == nullptr ? "it cannot be loaded" : "it has no table for this version of NCCL";
  std::fprintf(
      stderr,
      "aml-dist: trace: NCCL's events do not reach the profiler '%s' (%s): without trace NCCL loads it itself\n",
      named->c_str(), why);
}

/// The newest version of the other profiler's table that accepts what this version's callbacks provide: from 5 on an
/// older one, which is not shown the events that it does not know.
template <typename Init>
OtherTable<Init> newest_other(int version) noexcept {
  constexpr int extended = 5;
  for (int each = version; each >= std::min(version, extended); --each) {
    const auto* const table = other_table<Init>(table_names[static_cast<std::size_t>(each)]);
    if (table == nullptr) continue;
    return {table, each == version ? ~0 : each == extended ? events_of_5 : events_of_6};
  }
  say_unreached();
  return {};
}

// ---- what each version's descriptor says ----

template <typename Wanted>
const Wanted& body_of(const void* descriptor) noexcept {
  constexpr std::size_t behind_head = 24;
  return *reinterpret_cast<const Wanted*>(static_cast<const char*>(descriptor) + behind_head);
}

/// Function and type are numbers in version 1: ncclFunc_t and ncclDataType_t.
const char* function_name(const char* name) noexcept { return name != nullptr ? name : ""; }
const char* function_name(std::uint8_t number) noexcept {
  constexpr std::array<const char*, 8> names = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                                "AllReduce", "SendRecv", "Send",      "Recv"};
  return number < names.size() ? names[number] : "";
}
const char* type_name(const char* name) noexcept { return name != nullptr ? name : ""; }
const char* type_name(std::uint8_t number) noexcept {
  constexpr std::array<const char*, 10> names = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                                 "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                                 "ncclFloat64", "ncclBfloat16"};
  return number < names.size() ? names[number] : "";
}

template <typename Call>
void record_collective(Communicator* communicator, const Call& call) {
  const CollectiveFacts facts{function_name(call.function), type_name(call.type), call.count, call.root};
  if (communicator != nullptr) recorder().enqueue(*communicator, facts);
}
template <typename Call>
void record_message(Communicator* communicator, const Call& call) {
  const MessageFacts facts{function_name(call.function), type_name(call.type), call.count, call.peer};
  if (communicator != nullptr) recorder().enqueue(*communicator, facts);
}

/// Up to version 3 each event names its communicator.
template <typename Word>
void record_named(const void* descriptor, std::uint64_t type, int rank) {
  if (type == event_collective) {
    const auto& call = body_of<NamedCollective<Word>>(descriptor);
    record_collective(recorder().find_or_add(call.comm_hash, rank, call.name), call);
  } else if (type == event_message) {
    const auto& call = body_of<NamedMessage<Word>>(descriptor);
    record_message(recorder().find_or_add(call.comm_hash, rank, call.name), call);
  }
}

template <int version>
void record_later(Communicator* communicator, const void* descriptor, std::uint64_t type) {
  if (version == 4 && type == event_collective) record_collective(communicator, body_of<Collective4>(descriptor));
  else if (version >= 5 && type == event_collective_call)
    record_collective(communicator, body_of<CollectiveCall5>(descriptor));
  else if (type == event_message) record_message(communicator, body_of<Message4>(descriptor));
}

template <int version>
constexpr int own_mask = (version >= 5 ? event_collective_call : event_collective) | event_message;

// ---- the functions of a table ----

template <int version>
struct Version {
  using Init = std::conditional_t<version <= 3, Init1, std::conditional_t<version == 4, Init4, Init5>>;
  using Head = std::conditional_t<version <= 4, EventHead1, EventHead5>;

  static const OtherTable<Init>& other() noexcept {
    static const OtherTable<Init> table = newest_other<Init>(version);
    return table;
  }

  /// Gives NCCL its context and mask, after the other profiler has set its own in `made`.
  static int give(Context* made, bool traced, void** context, int* mask) noexcept {
    made->other_mask &= other().events;
    *context = made;
    *mask = made->other_mask | (traced ? own_mask<version> : 0);
    return 0;
  }

  static int init_first(void** context, int* mask) noexcept {
    auto* const made = new (std::nothrow) Context;
    *context = nullptr;
    *mask = 0;
    if (made == nullptr) return 0;
    if (other() && other()->init(&made->other, &made->other_mask) != 0) made->other_mask = 0;
    return give(made, recorder().start(), context, mask);
  }

  template <typename OtherInit>
  static int init_named(void** context, int* mask, std::uint64_t id, const char* name, int ranks, int rank,
                        OtherInit other_init) noexcept {
    auto* const made = new (std::nothrow) Context;
    *context = nullptr;
    *mask = 0;
    if (made == nullptr) return 0;
    if (other() && other_init(*made) != 0) made->other_mask = 0;
    if (recorder().start()) made->communicator = recorder().add(id, rank, ranks, name);
    return give(made, made->communicator != nullptr, context, mask);
  }

  static int init_fourth(void** context, int* mask, const char* name, std::uint64_t hash, int nodes, int ranks,
                         int rank, Logger logger) noexcept {
    return init_named(context, mask, hash, name, ranks, rank, [&](Context& made) {
      return reinterpret_cast<Init4>(reinterpret_cast<void*>(other()->init))(&made.other, &made.other_mask, name, hash,
                                                                             nodes, ranks, rank, logger);
    });
  }

  static int init_fifth(void** context, std::uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                        Logger logger) noexcept {
    return init_named(context, mask, id, name, ranks, rank, [&](Context& made) {
      return reinterpret_cast<Init5>(reinterpret_cast<void*>(other()->init))(&made.other, id, &made.other_mask, name,
                                                                             nodes, ranks, rank, logger);
    });
  }

  static int start_event(void* context, void** event, void* descriptor) noexcept {
    *event = nullptr;
    auto* const own = static_cast<Context*>(context);
    if (own == nullptr || descriptor == nullptr) return 0;
    const auto& head = *static_cast<const Head*>(descriptor);
    const std::uint64_t type = head.type;
    if constexpr (version == 1) record_named<std::uint8_t>(descriptor, type, head.rank);
    else if constexpr (version <= 3) record_named<const char*>(descriptor, type, head.rank);
    else record_later<version>(own->communicator, descriptor, type);
    if ((static_cast<std::uint64_t>(static_cast<unsigned>(own->other_mask)) & type) == 0) return 0;
    return other()->start_event(own->other, event, descriptor);
  }

  static int stop_event(void* event) noexcept { return event == nullptr ? 0 : other()->stop_event(event); }

  static int record_state(void* event, int state, void* arguments) noexcept {
    return event == nullptr ? 0 : other()->record_state(event, state, arguments);
  }

  static int finalize(void* context) noexcept {
    auto* const own = static_cast<Context*>(context);
    if (own == nullptr) return 0;
    recorder().close(own->communicator);
    const int status = other() ? other()->finalize(own->other) : 0;
    delete own;
    return status;
  }

  template <typename Function>
  static constexpr Table<Function> table(Function init) {
    return {"amldist", init, start_event, stop_event, record_state, finalize};
  }
};

}  // namespace
}  // namespace amldist::trace::nccl

#pragma GCC visibility push(default)
extern "C" {
using namespace amldist::trace::nccl;  // NOLINT: for the seven names below
extern const Table<Init1> ncclProfiler_v1, ncclProfiler_v2, ncclProfiler_v3;
extern const Table<Init4> ncclProfiler_v4;
extern const Table<Init5> ncclProfiler_v5, ncclProfiler_v6, ncclProfiler_v7;
constexpr Table<Init1> ncclProfiler_v1 = Version<1>::table<Init1>(Version<1>::init_first);
constexpr Table<Init1> ncclProfiler_v2 = Version<2>::table<Init1>(Version<2>::init_first);
constexpr Table<Init1> ncclProfiler_v3 = Version<3>::table<Init1>(Version<3>::init_first);
constexpr Table<Init4> ncclProfiler_v4 = Version<4>::table<Init4>(Version<4>::init_fourth);
constexpr Table<Init5> ncclProfiler_v5 = Version<5>::table<Init5>(Version<5>::init_fifth);
constexpr Table<Init5> ncclProfiler_v6 = Version<6>::table<Init5>(Version<6>::init_fifth);
constexpr Table<Init5> ncclProfiler_v7 = Version<7>::table<Init5>(Version<7>::init_fifth);
}
#pragma GCC visibility pop
