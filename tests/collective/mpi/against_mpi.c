/* Random programs of calls, each made twice: with libamldist and with MPI, which knows nothing of it. The results must
 * be the same, bit for bit: inputs are small whole numbers, so that every order of additions gives the same.
 *
 *   against_mpi SEED CALLS [BACK_END]
 *
 * All ranks draw from the same seed. The program initialises MPI itself, at the level that most programs have; with
 * BACK_END, the provenance must name it ("mpi between", "shared memory"). */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amldist/amldist.h"

enum { MOST = 70000, TYPES = 10, OPERATIONS = 12, ROOM = 8 };
static const amldist_type types[TYPES] = {AMLDIST_INT8,    AMLDIST_UINT8,  AMLDIST_INT16, AMLDIST_UINT16,
                                          AMLDIST_INT32,   AMLDIST_UINT32, AMLDIST_INT64, AMLDIST_UINT64,
                                          AMLDIST_FLOAT32, AMLDIST_FLOAT64};
static const size_t widths[TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

static amldist_comm* comm;
static MPI_Comm mpi;
static int rank, size;
static uint64_t seed, number;

#define REQUIRE(condition)                                                                                  \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "rank %d, seed %" PRIu64 ", call %" PRIu64 ": %s is false: %s\n", rank, seed, number, \
              #condition, amldist_last_error());                                                            \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                         \
    }                                                                                                       \
  } while (0)

/* ---- dice ---- */
static uint64_t state;
static uint64_t dice(uint64_t sides) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % sides;
}
/* Mostly small, sometimes round borders, seldom large. */
static size_t some_count(void) {
  switch (dice(8)) {
    case 0:
      return dice(3);
    case 1:
      return 4094 + dice(5);
    case 2:
      return dice(MOST / (uint64_t)size);
    default:
      return dice(400);
  }
}

/* ---- values ---- */
static MPI_Datatype mpi_type(int t) {
  const MPI_Datatype all[TYPES] = {MPI_INT8_T,   MPI_UINT8_T, MPI_INT16_T,  MPI_UINT16_T, MPI_INT32_T,
                                   MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T, MPI_FLOAT,    MPI_DOUBLE};
  return all[t];
}
static MPI_Op mpi_op(amldist_op op) {
  switch (op) {
    case AMLDIST_PROD:
      return MPI_PROD;
    case AMLDIST_MAX:
      return MPI_MAX;
    case AMLDIST_MIN:
      return MPI_MIN;
    default:
      return MPI_SUM;
  }
}
static void put(void* data, size_t i, int t, int value) {
  switch (types[t]) {
    case AMLDIST_FLOAT32:
      ((float*)data)[i] = (float)value;
      break;
    case AMLDIST_FLOAT64:
      ((double*)data)[i] = value;
      break;
    case AMLDIST_INT64:
    case AMLDIST_UINT64:
      ((int64_t*)data)[i] = value;
      break;
    case AMLDIST_INT32:
    case AMLDIST_UINT32:
      ((int32_t*)data)[i] = value;
      break;
    case AMLDIST_INT16:
    case AMLDIST_UINT16:
      ((int16_t*)data)[i] = (int16_t)value;
      break;
    default:
      ((int8_t*)data)[i] = (int8_t)value;
      break;
  }
}
/* Own values on every rank, from a stream of the rank's own; products stay exact because their factors are 1 and 2. */
static void fill(void* data, size_t count, int t, amldist_op op) {
  uint64_t own = seed * 1000003 + number * 8191 + (uint64_t)rank;
  for (size_t i = 0; i < count; ++i) {
    own = own * 6364136223846793005ULL + 1442695040888963407ULL;
    put(data, i, t, op == AMLDIST_PROD ? 1 + (int)(own >> 40) % 2 : (int)(own >> 40) % 16);
  }
}

/* One program's memory: what goes in, and what comes out of either library. A count of all ranks fits. */
static char *input, *ours, *theirs, *shared;
static int t;
static size_t width, count, all;
static amldist_op op;
static int root, in_place;

static void compare(size_t elements, const char* what) {
  if (memcmp(ours, theirs, elements * width) == 0) return;
  fprintf(stderr,
          "rank %d of %d, seed %" PRIu64 ", call %" PRIu64
          ": %s of %zu (type %d, op %d, root %d, in place %d) differs\n",
          rank, size, seed, number, what, count, (int)types[t], (int)op, root, in_place);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- calls ---- */
static void one_allreduce(int waits) {
  amldist_request* request = NULL;
  fill(input, count, t, op);
  /* The library's own memory now and then, on some ranks only. */
  const int lent = shared != NULL && dice(2) && (dice(4) + (uint64_t)rank) % 3 != 0;
  char* target = lent ? shared : ours;
  if (in_place) memcpy(target, input, count * width);
  const void* from = in_place ? target : input;
  if (waits) REQUIRE(amldist_allreduce(comm, from, target, count, types[t], op) == 0);
  else REQUIRE(amldist_iallreduce(comm, from, target, count, types[t], op, &request) == 0);
  MPI_Allreduce(input, theirs, (int)count, mpi_type(t), mpi_op(op), mpi);
  REQUIRE(amldist_wait(&request) == 0);
  if (lent) memcpy(ours, target, count * width);
  compare(count, waits ? "allreduce" : "iallreduce");
}

static void one_reduce(void) {
  fill(input, count, t, op);
  if (in_place) memcpy(ours, input, count * width);
  REQUIRE(amldist_reduce(comm, in_place ? ours : input, ours, count, types[t], op, root) == 0);
  MPI_Reduce(input, theirs, (int)count, mpi_type(t), mpi_op(op), root, mpi);
  if (rank == root) compare(count, "reduce");
}

static void one_reduce_scatter(void) {
  fill(input, all, t, op);
  MPI_Reduce_scatter_block(input, theirs, (int)count, mpi_type(t), mpi_op(op), mpi);
  char* to = in_place ? input + (size_t)rank * count * width : ours;
  REQUIRE(amldist_reduce_scatter(comm, input, to, count, types[t], op) == 0);
  if (in_place) memcpy(ours, to, count * width);
  compare(count, "reduce_scatter");
}

static void one_broadcast(void) {
  fill(ours, count, t, AMLDIST_SUM);
  memcpy(theirs, ours, count * width);
  REQUIRE(amldist_broadcast(comm, ours, count, types[t], root) == 0);
  MPI_Bcast(theirs, (int)count, mpi_type(t), root, mpi);
  compare(count, "broadcast");
}

static void one_allgather(void) {
  fill(input, count, t, AMLDIST_SUM);
  char* from = in_place ? ours + (size_t)rank * count * width : input;
  if (in_place) memcpy(from, input, count * width);
  REQUIRE(amldist_allgather(comm, from, ours, count, types[t]) == 0);
  MPI_Allgather(input, (int)count, mpi_type(t), theirs, (int)count, mpi_type(t), mpi);
  compare(all, "allgather");
}

static void one_gather_and_scatter(void) {
  fill(input, all, t, AMLDIST_SUM);
  REQUIRE(amldist_gather(comm, input, ours, count, types[t], root) == 0);
  MPI_Gather(input, (int)count, mpi_type(t), theirs, (int)count, mpi_type(t), root, mpi);
  if (rank == root) compare(all, "gather");
  REQUIRE(amldist_scatter(comm, input, ours, count, types[t], root) == 0);
  MPI_Scatter(input, (int)count, mpi_type(t), theirs, (int)count, mpi_type(t), root, mpi);
  compare(count, "scatter");
}

static void one_alltoall(void) {
  fill(input, all, t, AMLDIST_SUM);
  if (in_place) memcpy(ours, input, all * width);
  REQUIRE(amldist_alltoall(comm, in_place ? ours : input, ours, count, types[t]) == 0);
  MPI_Alltoall(input, (int)count, mpi_type(t), theirs, (int)count, mpi_type(t), mpi);
  compare(all, "alltoall");
}

/* Lists of counts that every rank draws whole, so that both sides of a pair know theirs. */
static void one_of_lists(void) {
  static size_t counts[64][64], out[64], out_at[64], in[64], in_at[64];
  static int c_out[64], c_out_at[64], c_in[64], c_in_at[64];
  size_t sent = 0, received = 0;
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b) counts[a][b] = dice(count + 1);
  for (int r = 0; r < size; ++r) {
    out[r] = counts[rank][r], out_at[r] = sent, sent += out[r];
    in[r] = counts[r][rank], in_at[r] = received, received += in[r];
    c_out[r] = (int)out[r], c_out_at[r] = (int)out_at[r], c_in[r] = (int)in[r], c_in_at[r] = (int)in_at[r];
  }
  fill(input, sent, t, AMLDIST_SUM);
  REQUIRE(amldist_alltoallv(comm, input, out, out_at, ours, in, in_at, types[t]) == 0);
  MPI_Alltoallv(input, c_out, c_out_at, mpi_type(t), theirs, c_in, c_in_at, mpi_type(t), mpi);
  compare(received, "alltoallv");
  received = 0;
  for (int r = 0; r < size; ++r) {
    in[r] = counts[r][0], in_at[r] = received, received += in[r];
    c_in[r] = (int)in[r], c_in_at[r] = (int)in_at[r];
  }
  REQUIRE(amldist_allgatherv(comm, input, in[rank], ours, in, in_at, types[t]) == 0);
  MPI_Allgatherv(input, c_in[rank], mpi_type(t), theirs, c_in, c_in_at, mpi_type(t), mpi);
  compare(received, "allgatherv");
}

/* A few messages along a random permutation, without waiting, in any order of calls. */
static void some_messages(void) {
  if (size == 1) return;
  const int step = 1 + (int)dice((uint64_t)size - 1), to = (rank + step) % size, from = (rank + size - step) % size;
  const int receives_first = (int)((dice(2) + (uint64_t)rank) % 2);
  amldist_request* requests[2] = {NULL, NULL};
  fill(input, count, t, AMLDIST_SUM);
  for (int half = 0; half < 2; ++half) {
    if (half == receives_first) REQUIRE(amldist_isend(comm, input, count, types[t], to, &requests[half]) == 0);
    else REQUIRE(amldist_irecv(comm, ours, count, types[t], from, &requests[half]) == 0);
  }
  for (int done = 0; !done;) REQUIRE(amldist_test(&requests[1], &done) == 0);
  REQUIRE(amldist_wait(&requests[0]) == 0);
  MPI_Sendrecv(input, (int)count, mpi_type(t), to, 7, theirs, (int)count, mpi_type(t), from, 7, mpi, MPI_STATUS_IGNORE);
  compare(count, "messages");
}

/* The next calls are made on a part of the world, both libraries' own. */
static void split(amldist_comm* world) {
  if (comm != world) {
    REQUIRE(amldist_finalize(comm) == 0);
    MPI_Comm_free(&mpi);
    comm = world, mpi = MPI_COMM_WORLD;
  } else {
    const int color = (int)((dice(1000) >> (amldist_rank(world) % 8)) & 1);
    const int key = (int)dice(2) ? amldist_rank(world) : -amldist_rank(world);
    REQUIRE(amldist_split(world, color, key, &comm) == 0);
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &mpi);
  }
  rank = amldist_rank(comm), size = amldist_size(comm);
  int mpi_rank, mpi_size;
  MPI_Comm_rank(mpi, &mpi_rank), MPI_Comm_size(mpi, &mpi_size);
  REQUIRE(rank == mpi_rank && size == mpi_size);
}

static void one_call(void) {
  t = (int)dice(TYPES), width = widths[t];
  op = (amldist_op)dice(4);
  root = (int)dice((uint64_t)size), in_place = (int)dice(2);
  count = some_count(), all = count * (size_t)size;
  switch (dice(OPERATIONS)) {
    case 0:
    case 1:
      one_allreduce(1);
      break;
    case 2:
      one_allreduce(0);
      break;
    case 3:
      one_reduce();
      break;
    case 4:
      one_reduce_scatter();
      break;
    case 5:
      one_broadcast();
      break;
    case 6:
      one_allgather();
      break;
    case 7:
      one_gather_and_scatter();
      break;
    case 8:
      one_alltoall();
      break;
    case 9:
      one_of_lists();
      break;
    case 10:
      some_messages();
      break;
    default:
      REQUIRE(amldist_barrier(comm) == 0);
      break;
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s SEED CALLS [BACK_END]\n", argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);
  state = seed = strtoull(argv[1], NULL, 10);
  amldist_comm* world = NULL;
  REQUIRE(amldist_init(&world, 30000) == 0);
  comm = world, mpi = MPI_COMM_WORLD;
  rank = amldist_rank(comm), size = amldist_size(comm);
  if (argc > 3 && strstr(amldist_provenance(world), argv[3]) == NULL) {
    fprintf(stderr, "rank %d: no %s in %s\n", rank, argv[3], amldist_provenance(world));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const size_t bytes = (size_t)MOST * ROOM * 2;
  REQUIRE((input = malloc(bytes)) && (ours = malloc(bytes)) && (theirs = malloc(bytes)));
  void* lent = NULL;
  REQUIRE(amldist_alloc(world, bytes, &lent) == 0);
  const uint64_t calls = strtoull(argv[2], NULL, 10);
  for (number = 1; number <= calls; ++number) {
    if (number % 25 == 0) {
      split(world);
      state = seed * 31 + number * 1000; /* parts of different sizes have drawn differently */
    }
    shared = comm == world ? lent : NULL;
    one_call();
  }
  if (comm != world) split(world);
  REQUIRE(amldist_free(world, lent) == 0);
  REQUIRE(amldist_finalize(world) == 0);
  MPI_Finalize();
  return 0;
}
