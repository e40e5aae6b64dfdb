/* Messages of a node that are long enough for a single copy: lengths around each threshold, in and out of place,
 * against plain arithmetic. Elements are whole numbers, so that every order of adding them gives the same. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

static float value(int of, size_t i) { return (float)(((size_t)of * 31 + i * 7) % 1021); }
static float sum(size_t i) {
  float all = 0;
  for (int r = 0; r < size; ++r) all += value(r, i);
  return all;
}
static float* fill(float* data, int of, size_t from, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] = value(of, from + i);
  return data;
}
static float* memory(size_t count) {
  float* const data = malloc(count * sizeof *data + 1);
  CHECK(data != NULL);
  return data;
}
/* `what` is printed where element i is not `value(of, from + i)`; of -1: the sum of all ranks. */
static void expect(const char* what, const float* data, int of, size_t from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float wanted = of < 0 ? sum(from + i) : value(of, from + i);
    if (data[i] == wanted) continue;
    fprintf(stderr, "rank %d: %s: element %zu is %g instead of %g\n", rank, what, i, (double)data[i], (double)wanted);
    exit(1);
  }
}

/* ---- one call of each kind; `each`: elements of a block ---- */
static void reductions(size_t each, float* send, float* recv) {
  const size_t all = each * (size_t)size, mine = each * (size_t)rank;
  OK(amldist_allreduce(world, fill(send, rank, 0, all), recv, all, AMLDIST_FLOAT32, AMLDIST_SUM));
  expect("all-reduce", recv, -1, 0, all);
  expect("the input of an all-reduce", send, rank, 0, all);
  OK(amldist_allreduce(world, send, send, all, AMLDIST_FLOAT32, AMLDIST_SUM));
  expect("all-reduce in place", send, -1, 0, all);
  OK(amldist_reduce_scatter(world, fill(send, rank, 0, all), recv, each, AMLDIST_FLOAT32, AMLDIST_SUM));
  expect("reduce-scatter", recv, -1, mine, each);
  OK(amldist_reduce_scatter(world, send, send + mine, each, AMLDIST_FLOAT32, AMLDIST_SUM));
  expect("reduce-scatter in place", send + mine, -1, mine, each);
}

static void blocks_of_all(const char* what, const float* recv, size_t each, size_t from) {
  for (int r = 0; r < size; ++r) expect(what, recv + each * (size_t)r, r, from, each);
}

static void movements(size_t each, float* send, float* recv) {
  const size_t all = each * (size_t)size, mine = each * (size_t)rank;
  const int root = size - 1;
  OK(amldist_allgather(world, fill(send, rank, 0, each), recv, each, AMLDIST_FLOAT32));
  blocks_of_all("all-gather", recv, each, 0);
  memset(recv, 0, all * sizeof *recv);
  OK(amldist_allgather(world, fill(recv + mine, rank, 0, each), recv, each, AMLDIST_FLOAT32));
  blocks_of_all("all-gather in place", recv, each, 0);
  OK(amldist_scatter(world, fill(send, root, 0, all), recv, each, AMLDIST_FLOAT32, root));
  expect("scatter", recv, root, mine, each);
  OK(amldist_broadcast(world, rank == root ? fill(send, root, 0, all) : memset(send, 0, all * sizeof *send), all,
                       AMLDIST_FLOAT32, root));
  expect("broadcast", send, root, 0, all);
  OK(amldist_gather(world, fill(send, rank, 0, each), recv, each, AMLDIST_FLOAT32, root));
  if (rank == root) blocks_of_all("gather", recv, each, 0);
  OK(amldist_alltoall(world, fill(send, rank, 0, all), recv, each, AMLDIST_FLOAT32));
  blocks_of_all("all-to-all", recv, each, mine);
  if (amldist_nodes(world) > 1) return;
  /* Only some ranks work in place: the others must not fetch what those have overwritten. */
  float* const to = rank % 2 == 0 ? send : recv;
  OK(amldist_alltoall(world, fill(send, rank, 0, all), to, each, AMLDIST_FLOAT32));
  blocks_of_all("all-to-all, partly in place", to, each, mine);
}

/* Ranks with the same counts and each with offsets of its own. */
static void other_offsets(size_t each, float* send, float* recv) {
  size_t counts[64], offsets[64], first[64];
  CHECK(size <= 64);
  size_t from = 0;
  for (int r = 0; r < size; ++r) {
    const int slot = (r + rank) % size; /* where this rank has the block of rank r */
    counts[r] = each - (size_t)r;
    first[r] = from;
    offsets[r] = (size_t)slot * each;
    fill(send + offsets[r], rank, from, counts[r]);
    from += counts[r];
  }
  OK(amldist_reduce_scatterv(world, send, recv, counts, offsets, AMLDIST_FLOAT32, AMLDIST_SUM));
  expect("reduce-scatter with offsets of each rank's own", recv, -1, first[rank], counts[rank]);
}

/* How far ranks are from each other is measured again from time to time, and the next call may go another way. */
static void many_long_reductions(void) {
  enum { CALLS = 600, LONG = 1 << 20 };
  float *send = memory(LONG), *recv = memory(LONG);
  fill(send, rank, 0, LONG);
  for (int i = 0; i < CALLS; ++i) {
    OK(amldist_allreduce(world, send, recv, LONG, AMLDIST_FLOAT32, AMLDIST_SUM));
    if (i % 64 == 0) expect("one of many all-reduces", recv, -1, 0, LONG);
    recv[i] = 0;
  }
  free(send);
  free(recv);
}

void run_single_copy(void) {
  const char* const policy = getenv("AMLDIST_SINGLE_COPY");
  const int always = policy != NULL && strcmp(policy, "always") == 0;
  CHECK(!always || strstr(amldist_provenance(world), "single copy") != NULL); /* else nothing here is fetched */
  static const size_t bytes[] = {60000, 140000, 300000, 1100000, (4 << 20) + 256, (17 << 20) + 4};
  for (size_t s = 0; s < sizeof bytes / sizeof *bytes; ++s) {
    const size_t each = bytes[s] / sizeof(float) / (size_t)size + 1;
    float *send = memory(each * (size_t)size), *recv = memory(each * (size_t)size);
    reductions(each, send, recv);
    movements(each, send, recv);
    other_offsets(each, send, recv);
    free(send);
    free(recv);
  }
  if (size == 2 && !always) many_long_reductions();
}

/* The last rank scatters what is no memory. Who fetches from it names it, or it ends by itself before. */
void run_nowhere(void) {
  enum { COUNT = 1 << 18 };
  const size_t all = (size_t)COUNT * (size_t)size;
  float* const nowhere = mmap(NULL, all * sizeof(float), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(nowhere != MAP_FAILED);
  OK(amldist_set_timeout(world, 20000));
  const int status = amldist_scatter(world, nowhere, memory(COUNT), COUNT, AMLDIST_FLOAT32, size - 1);
  printf("%d: %s\n", status, amldist_last_error());
  fflush(stdout);
  _Exit(0);
}

static void check(const char* what, const float* data, size_t count, float wanted) {
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == wanted) continue;
    printf("wrong %s: element %zu is %g instead of %g\n", what, i, (double)data[i], (double)wanted);
    exit(1);
  }
}

/* Fetches until a call fails. Then other things come into the buffers, as in a program that goes on, and the process
 * stays for a while: a rank that was stopped in a call fetches from it. */
void run_fetching(void) {
  enum { DEADLINE_MS = 1500, GOES_ON_S = 3 };
  const size_t count = (5 << 20) / sizeof(float), each = count / (size_t)size;
  float *send = memory(count), *recv = memory(count);
  OK(amldist_set_timeout(world, DEADLINE_MS));
  printf("ready\n");
  fflush(stdout);
  int status = AMLDIST_OK;
  for (int call = 0; status == AMLDIST_OK; ++call) {
    const int root = call % size, more = call % 5;
    for (size_t i = 0; i < count; ++i) send[i] = (float)(rank + more);
    status = amldist_allreduce(world, send, recv, count, AMLDIST_FLOAT32, AMLDIST_SUM);
    if (status == AMLDIST_OK) check("all-reduce", recv, count, (float)(size * (size - 1) / 2 + size * more));
    if (status == AMLDIST_OK) status = amldist_scatter(world, send, recv, each, AMLDIST_FLOAT32, root);
    if (status == AMLDIST_OK) check("scatter", recv, each, (float)(root + more));
    if (status == AMLDIST_OK) status = amldist_alltoall(world, send, recv, each, AMLDIST_FLOAT32);
    for (int r = 0; status == AMLDIST_OK && r < size; ++r)
      check("all-to-all", recv + each * (size_t)r, each, (float)(r + more));
  }
  memset(send, 0x7f, count * sizeof *send);
  memset(recv, 0x7f, count * sizeof *recv);
  printf("error %s\n", amldist_last_error());
  fflush(stdout);
  struct timespec goes_on = {GOES_ON_S, 0};
  nanosleep(&goes_on, NULL);
  _Exit(7);
}
