/* The patterns of OSU's micro-benchmarks, timed for one library: compiled once for aml-dist and once for each MPI
 * (-DWITH_MPI).
 *
 *   micro MILLISECONDS PAUSE all|PATTERN[,PATTERN]... BYTES...
 *
 * BYTES are those of a message, or of the larger buffer of a rank: what all-gather gathers, what reduce-scatter adds.
 * float32, inputs rewritten before each sample, results checked after the last. Rank 0 prints "PATTERN BYTES
 * MICROSECONDS": the median over the samples of the slowest rank; a barrier has 0 bytes. Samples are taken for
 * MILLISECONDS; then all ranks sleep for PAUSE milliseconds, so that other programs of the machine run.
 *
 * Messages go between rank i of the first half and rank i of the second. A ping-pong sends back what it received: each
 * processor has written last what it sends. A window's messages have places of their own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allreduce/library.h"
#include "benchlib/binding.h"
#include "benchlib/samples.h"

enum { ROOT = 0, MOST_SAMPLES = 400, WARMING = 32, MOST_WINDOW = 64, TAG = 7 }; /* while WARMING, libraries try ways */
static const size_t most_memory = (size_t)64 << 20;

/* Buffers of `all` elements for each message of the window; a rank's block has `block`. */
struct buffers {
  float *send, *recv;
  size_t all, block;
  int window;
};

#ifdef WITH_MPI
typedef MPI_Request request;
#define CALL(own, mpi) mpi
#else
typedef amldist_request* request;
#define CALL(own, mpi)                               \
  do {                                               \
    if ((own) != 0) {                                \
      fprintf(stderr, "%s\n", amldist_last_error()); \
      exit(1);                                       \
    }                                                \
  } while (0)
#endif

/* ---- messages ---- */
static int is_first(void) { return rank < size / 2; }
static int partner(void) { return is_first() ? rank + size / 2 : rank - size / 2; }
static float* own(const struct buffers* b) { return is_first() ? b->send : b->recv; }

static void send(float* data, size_t count) {
  CALL(amldist_send(world, data, count, AMLDIST_FLOAT32, partner()),
       MPI_Send(data, (int)count, MPI_FLOAT, partner(), 0, MPI_COMM_WORLD));
}
static void receive(float* data, size_t count) {
  CALL(amldist_recv(world, data, count, AMLDIST_FLOAT32, partner()),
       MPI_Recv(data, (int)count, MPI_FLOAT, partner(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}
static void send_tagged(float* data, size_t count) {
  CALL(amldist_send_tagged(world, data, count, AMLDIST_FLOAT32, partner(), TAG),
       MPI_Send(data, (int)count, MPI_FLOAT, partner(), TAG, MPI_COMM_WORLD));
}
static void receive_any(float* data, size_t count) {
  CALL(amldist_recv_tagged(world, data, count, AMLDIST_FLOAT32, AMLDIST_ANY_SOURCE, TAG, NULL),
       MPI_Recv(data, (int)count, MPI_FLOAT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}
static void isend(float* data, size_t count, request* out) {
  CALL(amldist_isend(world, data, count, AMLDIST_FLOAT32, partner(), out),
       MPI_Isend(data, (int)count, MPI_FLOAT, partner(), 0, MPI_COMM_WORLD, out));
}
static void ireceive(float* data, size_t count, request* out) {
  CALL(amldist_irecv(world, data, count, AMLDIST_FLOAT32, partner(), out),
       MPI_Irecv(data, (int)count, MPI_FLOAT, partner(), 0, MPI_COMM_WORLD, out));
}
static void wait_all(request* requests, int count) {
  for (int i = 0; i < count; ++i) CALL(amldist_wait(&requests[i]), MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
}

static void call_ping_pong(const struct buffers* b) {
  if (is_first()) send(own(b), b->all);
  receive(own(b), b->all);
  if (!is_first()) send(own(b), b->all);
}
static void call_tagged(const struct buffers* b) {
  if (is_first()) send_tagged(own(b), b->all);
  receive_any(own(b), b->all);
  if (!is_first()) send_tagged(own(b), b->all);
}
static void call_one_way(const struct buffers* b) {
  static request requests[MOST_WINDOW];
  float ack = 0;
  for (int i = 0; i < b->window; ++i)
    (is_first() ? isend : ireceive)(own(b) + (size_t)i * b->all, b->all, &requests[i]);
  wait_all(requests, b->window);
  if (is_first()) receive(&ack, 1);
  else send(&ack, 1);
}
static void call_both_ways(const struct buffers* b) {
  static request requests[2 * MOST_WINDOW];
  for (int i = 0; i < b->window; ++i) ireceive(b->recv + (size_t)i * b->all, b->all, &requests[i]);
  for (int i = 0; i < b->window; ++i) isend(b->send + (size_t)i * b->all, b->all, &requests[b->window + i]);
  wait_all(requests, 2 * b->window);
}

/* One copy between two processors' caches, back and forth, through memory that both have mapped: what a ping-pong takes
 * at the least. Only in aml-dist's program. */
static void call_one_copy(const struct buffers* b) {
  struct turn {
    _Alignas(64) atomic_ulong number;
  };
  static struct turn* turns; /* of each rank; its data follows both */
  static unsigned long number;
  const size_t bytes = b->all * sizeof(float);
  if (turns == NULL) {
    char name[64];
    snprintf(name, sizeof name, "/aml-dist-bench-%d", (int)getppid());
    const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, (off_t)(2 * most_memory + 4096)) != 0) exit(1);
    turns = mmap(NULL, 2 * most_memory + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (turns == MAP_FAILED) exit(1);
    barrier();
    shm_unlink(name);
    close(file);
  }
  char* const data = (char*)turns + 4096;
  const int other = 1 - rank;
  for (int turn = 0; turn < 2; ++turn) {
    ++number;
    if (turn == rank) {
      atomic_store_explicit(&turns[rank].number, number, memory_order_release);
      continue;
    }
    while (atomic_load_explicit(&turns[other].number, memory_order_acquire) < number) {
    }
    memcpy(data + (size_t)rank * most_memory, data + (size_t)other * most_memory, bytes);
  }
}

/* ---- collectives ---- */
static void call_barrier(const struct buffers* b) {
  (void)b;
  barrier();
}
static void call_allreduce(const struct buffers* b) { allreduce(b->send, b->recv, b->all); }
static void call_broadcast(const struct buffers* b) {
  float* data = rank == ROOT ? b->send : b->recv;
  CALL(amldist_broadcast(world, data, b->all, AMLDIST_FLOAT32, ROOT),
       MPI_Bcast(data, (int)b->all, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_reduce(const struct buffers* b) {
  CALL(amldist_reduce(world, b->send, b->recv, b->all, AMLDIST_FLOAT32, AMLDIST_SUM, ROOT),
       MPI_Reduce(b->send, b->recv, (int)b->all, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD));
}
static void call_allgather(const struct buffers* b) {
  CALL(amldist_allgather(world, b->send, b->recv, b->block, AMLDIST_FLOAT32),
       MPI_Allgather(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, MPI_COMM_WORLD));
}
static void call_reduce_scatter(const struct buffers* b) {
  CALL(amldist_reduce_scatter(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, AMLDIST_SUM),
       MPI_Reduce_scatter_block(b->send, b->recv, (int)b->block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}
static void call_gather(const struct buffers* b) {
  CALL(amldist_gather(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, ROOT),
       MPI_Gather(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_scatter(const struct buffers* b) {
  CALL(amldist_scatter(world, b->send, b->recv, b->block, AMLDIST_FLOAT32, ROOT),
       MPI_Scatter(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, ROOT, MPI_COMM_WORLD));
}
static void call_alltoall(const struct buffers* b) {
  CALL(amldist_alltoall(world, b->send, b->recv, b->block, AMLDIST_FLOAT32),
       MPI_Alltoall(b->send, (int)b->block, MPI_FLOAT, b->recv, (int)b->block, MPI_FLOAT, MPI_COMM_WORLD));
}

/* Work of about 2 us, and 0.25 ns more for each byte: a chain of multiplications. */
static void compute(size_t bytes) {
  volatile float result = 1;
  float value = result;
  for (size_t i = 0; i < 1500 + bytes / 6; ++i) value = value * 0.999F + 0.001F;
  result = value;
}
static void call_overlap(const struct buffers* b) {
  request started;
  CALL(amldist_iallreduce(world, b->send, b->recv, b->all, AMLDIST_FLOAT32, AMLDIST_SUM, &started),
       MPI_Iallreduce(b->send, b->recv, (int)b->all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &started));
  compute(b->all * sizeof(float));
  wait_all(&started, 1);
}

/* ---- patterns ---- */
enum kind { NONE, OF_PARTNER, SUM_EVERYWHERE, SUM_AT_ROOT, BLOCKS, BLOCKS_AT_ROOT, OF_ROOT };
static const struct pattern {
  const char* name;
  void (*call)(const struct buffers*);
  enum kind result;
  int own_block; /* the result is one block */
  int windows;   /* many messages at once */
  int messages;  /* one after the other, of which one is timed */
} patterns[] = {
    {"barrier", call_barrier, NONE, 0, 0, 1},
#ifndef WITH_MPI
    {"one-copy", call_one_copy, NONE, 0, 0, 2},
#endif
    {"ping-pong", call_ping_pong, OF_PARTNER, 0, 0, 2},
    {"any-source", call_tagged, OF_PARTNER, 0, 0, 2},
    {"one-way", call_one_way, OF_PARTNER, 0, 1, 1},
    {"both-ways", call_both_ways, NONE, 0, 1, 1},
    {"broadcast", call_broadcast, OF_ROOT, 0, 0, 1},
    {"reduce", call_reduce, SUM_AT_ROOT, 0, 0, 1},
    {"all-reduce", call_allreduce, SUM_EVERYWHERE, 0, 0, 1},
    {"overlap", call_overlap, SUM_EVERYWHERE, 0, 0, 1},
    {"all-gather", call_allgather, BLOCKS, 0, 0, 1},
    {"reduce-scatter", call_reduce_scatter, SUM_EVERYWHERE, 1, 0, 1},
    {"gather", call_gather, BLOCKS_AT_ROOT, 0, 0, 1},
    {"scatter", call_scatter, OF_ROOT, 1, 0, 1},
    {"all-to-all", call_alltoall, BLOCKS, 0, 0, 1},
};

/* What each element of the input is, and what a rank has to find in an element of the result, if anything. */
static float given(int of, int sample) { return (float)(of + sample % 7); }
static float sum_of_all(int sample) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += given(r, sample);
  return sum;
}
static float wanted(const struct pattern* p, size_t element, size_t block, int sample) {
  if (p->result == OF_ROOT) return given(ROOT, sample);
  if (p->result == OF_PARTNER) return given(is_first() ? rank : partner(), sample);
  if (p->result == BLOCKS || p->result == BLOCKS_AT_ROOT) return given((int)(element / block), sample);
  return sum_of_all(sample);
}
static void check(const struct pattern* p, const struct buffers* b, int sample) {
  const int at_root = p->result == SUM_AT_ROOT || p->result == BLOCKS_AT_ROOT;
  if (p->result == NONE || (at_root && rank != ROOT)) return;
  const float* got = p->result == OF_PARTNER ? own(b) : p->call == call_broadcast && rank == ROOT ? b->send : b->recv;
  const size_t count = p->own_block ? b->block : b->all * (size_t)b->window;
  for (size_t i = 0; i < count; ++i) {
    if (got[i] == wanted(p, i, b->block, sample)) continue;
    fprintf(stderr, "%s: element %zu of %zu is %g on rank %d\n", p->name, i, count, (double)got[i], rank);
    exit(1);
  }
}

/* Microseconds of a call; `whole` gets those of a sample with all that surrounds it. */
static double take_sample(const struct pattern* p, const struct buffers* b, int sample, int batch, double* whole) {
  const double began = now();
  for (size_t i = 0; i < b->all * (size_t)b->window; ++i) b->send[i] = given(rank, sample);
  barrier();
  const double start = now();
  for (int i = 0; i < batch; ++i) p->call(b);
  const double end = now();
  *whole = (end - began) / 1e3;
  return (end - start) / 1e3 / batch / p->messages / b->window;
}
static double measure(const struct pattern* p, const struct buffers* b, int batch, double budget) {
  static double times[MOST_SAMPLES];
  double whole = 0;
  for (int i = 0; i < WARMING; ++i) take_sample(p, b, i, batch, &whole);
  const double fit = budget / of_all(whole, LARGEST);
  const int samples = fit < 3 ? 3 : fit > MOST_SAMPLES ? MOST_SAMPLES : (int)fit;
  for (int i = 0; i < samples; ++i) times[i] = take_sample(p, b, i, batch, &whole);
  check(p, b, samples - 1);
  return of_all(median(times, samples), LARGEST);
}

/* MICRO_OFFSET: bytes from the beginning of a page to each buffer. malloc(3) begins long blocks at 16. */
static size_t offset(void) {
  const char* const text = getenv("MICRO_OFFSET");
  return text ? strtoul(text, NULL, 10) / sizeof(float) : 0;
}
static float* memory(size_t count) {
  void* out = NULL;
  if (posix_memalign(&out, 4096, (offset() + count) * sizeof(float)) != 0) exit(1);
  memset(out, 0, (offset() + count) * sizeof(float));
  return (float*)out + offset();
}
static void measure_size(const struct pattern* p, size_t bytes, double budget) {
  const size_t block = bytes / sizeof(float) / (size_t)size ? bytes / sizeof(float) / (size_t)size : 1;
  struct buffers b = {NULL, NULL, block * (size_t)size, block, 1};
  if (p->result == OF_PARTNER || p->windows) b.all = bytes / sizeof(float) ? bytes / sizeof(float) : 1;
  while (p->windows && b.window < MOST_WINDOW && (size_t)b.window * 2 * bytes <= most_memory) b.window *= 2;
  const size_t elements = b.all * (size_t)b.window;
  b.send = memory(elements), b.recv = memory(elements);
  const int batch = bytes <= 4096 && !p->windows ? 50 : p->messages == 2 && bytes <= 1 << 20 ? 4 : 1;
  const double time = measure(p, &b, batch, budget);
  if (rank == ROOT) printf("%s %zu %.3f\n", p->name, bytes, time);
  fflush(stdout);
  free(b.send - offset()), free(b.recv - offset());
}

static int is_named(const char* list, const char* name) {
  const size_t length = strlen(name);
  if (strcmp(list, "all") == 0) return 1;
  for (const char* at = list; (at = strstr(at, name)) != NULL; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == 0)) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  bind_to_processor(rank, size);
  if (argc < 4) {
    fprintf(stderr, "usage: micro MILLISECONDS PAUSE all|PATTERN[,PATTERN]... BYTES...\n");
    return 2;
  }
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
    const struct pattern* p = &patterns[i];
    for (int a = 4; a < argc && is_named(argv[3], p->name) && (size == 2 || strcmp(p->name, "one-copy") != 0); ++a) {
      measure_size(p, p->call == call_barrier ? 0 : strtoull(argv[a], NULL, 10), atof(argv[1]) * 1e3);
      usleep((useconds_t)atoi(argv[2]) * 1000);
      if (p->call == call_barrier) break;
    }
  }
  end();
  return 0;
}
