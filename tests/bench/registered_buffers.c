/* What registering a buffer gains: all-reduce on private, registered and library memory, on ranks of this node.
 *
 *   registered_buffers [--ranks N] [--rounds N] [--json]
 *
 * All ways in turn, round after round, each rank on a processor of its own where there are enough. A figure is the
 * least of the rounds, or the median over the rounds of the time with private buffers over the time of the other way in
 * the same round. The same private buffers stand there twice: their ratio is the noise. */
#include <amldist/amldist.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"

enum { MOST_ROUNDS = 200, HUGE_PAGE = 2 << 20 };

enum way { PRIVATE, PRIVATE_AGAIN, REGISTERED, LIBRARY, PRIVATE_APART, REGISTERED_APART, WAYS };
static const char* const names[WAYS] = {"private", "again",          "registered",
                                        "library", "private, apart", "registered, apart"};

static void must(int status, const char* what) {
  if (status == AMLDIST_OK) return;
  fprintf(stderr, "registered_buffers: %s: %s\n", what, amldist_last_error());
  exit(1);
}

static float* buffer(size_t bytes) {
  void* const memory = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  if (memory == NULL) exit(1);
  memset(memory, 0, bytes);
  return memory;
}

struct buffers {
  float* send[WAYS];
  float* recv[WAYS];
};

static struct buffers make(amldist_comm* comm, size_t bytes) {
  struct buffers all;
  for (int way = 0; way < WAYS; ++way) {
    if (way == LIBRARY) must(amldist_alloc(comm, bytes, (void**)&all.send[way]), "alloc");
    else all.send[way] = way == PRIVATE_AGAIN ? all.send[PRIVATE] : buffer(bytes);
    all.recv[way] = way == PRIVATE_APART || way == REGISTERED_APART ? buffer(bytes) : all.send[way];
    if (way != REGISTERED && way != REGISTERED_APART) continue;
    must(amldist_register(comm, all.send[way], bytes), "register");
    if (all.recv[way] != all.send[way]) must(amldist_register(comm, all.recv[way], bytes), "register");
  }
  return all;
}

static void drop(amldist_comm* comm, struct buffers all) {
  for (int way = 0; way < WAYS; ++way) {
    if (way == PRIVATE_AGAIN) continue;
    if (way == LIBRARY) {
      must(amldist_free(comm, all.send[way]), "free");
      continue;
    }
    if (way == REGISTERED || way == REGISTERED_APART) must(amldist_deregister(comm, all.send[way]), "deregister");
    if (way == REGISTERED_APART) must(amldist_deregister(comm, all.recv[way]), "deregister");
    if (all.recv[way] != all.send[way]) free(all.recv[way]);
    free(all.send[way]);
  }
}

static double time_of(amldist_comm* comm, const float* send, float* recv, size_t bytes, int calls) {
  const size_t count = bytes / sizeof(float);
  must(amldist_allreduce(comm, send, recv, count, AMLDIST_FLOAT32, AMLDIST_MAX), "allreduce");
  must(amldist_barrier(comm), "barrier");
  const double start = now_us();
  for (int i = 0; i < calls; ++i)
    must(amldist_allreduce(comm, send, recv, count, AMLDIST_FLOAT32, AMLDIST_MAX), "allreduce");
  return (now_us() - start) / calls;
}

static void run(amldist_comm* comm, size_t bytes, int rounds, int json, int is_last) {
  double times[WAYS][MOST_ROUNDS], ratios[WAYS][MOST_ROUNDS], least[WAYS];
  const struct buffers all = make(comm, bytes);
  const int calls = bytes > 4 << 20 ? 4 : 40;
  for (int round = -1; round < rounds; ++round) { /* the first warms up */
    for (int way = 0; way < WAYS; ++way) {
      const double us = time_of(comm, all.send[way], all.recv[way], bytes, calls);
      if (round >= 0) times[way][round] = us;
    }
  }
  for (int way = 0; way < WAYS; ++way) {
    const int base = way >= PRIVATE_APART ? PRIVATE_APART : PRIVATE;
    for (int round = 0; round < rounds; ++round) ratios[way][round] = times[base][round] / times[way][round];
  }
  for (int way = 0; way < WAYS; ++way) {
    least[way] = times[way][0];
    for (int round = 1; round < rounds; ++round)
      least[way] = times[way][round] < least[way] ? times[way][round] : least[way];
  }
  if (amldist_rank(comm) == 0) {
    printf(json ? "  {\"bytes\": %zu" : "%9zu", bytes);
    for (int way = 0; way < WAYS; ++way) {
      const double ratio = median(ratios[way], rounds);
      if (json) printf(", \"%s\": {\"least_us\": %.2f, \"ratio\": %.3f}", names[way], least[way], ratio);
      else printf("  %9.1f us %5.2fx", least[way], ratio);
    }
    printf(json ? "}%s\n" : "\n", is_last ? "" : ",");
  }
  drop(comm, all);
}

static void bind_to_processor(int rank) {
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  int left = rank % (count > 0 ? count : 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

static int be_rank(int rank, int rounds, int json) {
  static const size_t sizes[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  const size_t count = sizeof sizes / sizeof *sizes;
  bind_to_processor(rank);
  amldist_comm* comm = NULL;
  must(amldist_init(&comm, 60000), "init");
  if (rank == 0 && json) printf("[\n");
  if (rank == 0 && !json) {
    printf("%9s", "bytes");
    for (int way = 0; way < WAYS; ++way) printf("  %19s", names[way]);
    printf("\n");
  }
  for (size_t i = 0; i < count; ++i) run(comm, sizes[i], rounds, json, i + 1 == count);
  if (rank == 0 && json) printf("]\n");
  must(amldist_finalize(comm), "finalize");
  return 0;
}

int main(int argc, char** argv) {
  int ranks = 2, rounds = 12, json = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--json") == 0) json = 1;
    else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) ranks = atoi(argv[++i]);
    else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = atoi(argv[++i]);
  }
  if (ranks < 1 || rounds < 1 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "usage: registered_buffers [--ranks N] [--rounds 1 to %d] [--json]\n", MOST_ROUNDS);
    return 2;
  }
  const int rank = start_ranks(ranks);
  return rank >= 0 ? be_rank(rank, rounds, json) : await_ranks(ranks);
}
