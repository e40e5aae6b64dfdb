/* Another profiler for NCCL, versions 1 and NEWEST: it asks for groups, collective calls and messages, and counts what
 * it gets. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct counts {
  int inits, starts, stops, states, finals, wrong_parents;
};
static struct counts seen;

struct counts* other_profiler_counts(void) {
  return &seen;
}

struct event {
  uint64_t magic;
};
static const uint64_t magic = 0x0123456789abcdef;

static int init1(void** context, int* mask) {
  __atomic_add_fetch(&seen.inits, 1, __ATOMIC_RELAXED);
  *context = &seen;
  *mask = 1 | 2;
  return 0;
}

static int init6(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                 void* logger) {
  (void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)logger;
  __atomic_add_fetch(&seen.inits, 1, __ATOMIC_RELAXED);
  *context = &seen;
  *mask = 1 | (1 << 9) | 4;
  return 0;
}

static int start(void* context, void** event, void* descriptor) {
  struct event* const parent = *(struct event**)((char*)descriptor + 8);
  if (context != &seen || (parent != NULL && parent->magic != magic))
    __atomic_add_fetch(&seen.wrong_parents, 1, __ATOMIC_RELAXED);
  struct event* const made = malloc(sizeof *made);
  made->magic = magic;
  *event = made;
  __atomic_add_fetch(&seen.starts, 1, __ATOMIC_RELAXED);
  return 0;
}

static int stop(void* event) {
  free(event);
  __atomic_add_fetch(&seen.stops, 1, __ATOMIC_RELAXED);
  return 0;
}

static int record(void* event, int state, void* arguments) {
  (void)state, (void)arguments;
  if (((struct event*)event)->magic == magic) __atomic_add_fetch(&seen.states, 1, __ATOMIC_RELAXED);
  return 0;
}

static int finalize(void* context) {
  if (context == &seen) __atomic_add_fetch(&seen.finals, 1, __ATOMIC_RELAXED);
  return 0;
}

struct table {
  const char* name;
  void* init;
  int (*start)(void*, void**, void*);
  int (*stop)(void*);
  int (*record)(void*, int, void*);
  int (*finalize)(void*);
};
const struct table ncclProfiler_v1 = {"other", (void*)init1, start, stop, record, finalize};
#if NEWEST == 7
const struct table ncclProfiler_v7 = {"other", (void*)init6, start, stop, record, finalize};
#else /* one that asks for all there is */
static int init_greedy(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank,
                       void* logger) {
  const int status = init6(context, id, mask, name, nodes, ranks, rank, logger);
  *mask = -1;
  return status;
}
#if NEWEST == 6
const struct table ncclProfiler_v6 = {"other", (void*)init_greedy, start, stop, record, finalize};
#else
const struct table ncclProfiler_v5 = {"other", (void*)init_greedy, start, stop, record, finalize};
#endif
#endif
