/* How one rank measures one collective: the same code for libamldist and for every library it is compared with, which
 * differ in a table of functions only (struct bench_library). Plain C, so that any mpicc compiles it.
 *
 * Sizes are those of nccl-tests: `bytes` is the whole array, so of an allgather what every rank gets, of a
 * reduce_scatter what every rank gives; of send-receive one message.
 */
#ifndef AMLDIST_BENCH_CORE_H
#define AMLDIST_BENCH_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_op {
  BENCH_ALLREDUCE,
  BENCH_REDUCE,
  BENCH_BROADCAST,
  BENCH_ALLGATHER,
  BENCH_REDUCE_SCATTER,
  BENCH_ALLTOALL,
  BENCH_GATHER,
  BENCH_SCATTER,
  BENCH_SENDRECV, /* to the next rank, from the one before */
  BENCH_BARRIER,
  BENCH_OPS
};

/* What is measured. Types and operators have the numbers of amldist_type and amldist_op. */
struct bench_request {
  int op;
  int type;
  int redop;
  int in_place;
  uint64_t bytes;
  uint64_t iterations; /* 0: check only */
  int off_cache;       /* every call takes another buffer, until the caches cannot hold them */
  int own_memory;      /* buffers from the library's own allocator, where it has one */
  int rewrite;         /* inputs are written anew before every call; the time for that is taken out */
};

struct bench_result {
  double microseconds; /* one call, mean over the iterations, of this rank */
  uint64_t wrong;      /* elements of this rank that are not what they should be, in a call of its own */
  int status;          /* enum bench_status */
};

enum bench_status { BENCH_FINE = 0, BENCH_UNSUPPORTED = 1, BENCH_FAILED = 2, BENCH_NO_MEMORY = 3 };

/* One call: counts in elements as in amldist.h. Returns an enum bench_status. */
struct bench_call {
  int op;
  int type;
  int redop;
  size_t count;
  const void* send;
  void* recv;
};

struct bench_library {
  const char* name;
  int rank;
  int size;
  void* state;
  int (*run)(void* state, const struct bench_call* call);
  int (*barrier)(void* state);
  void* (*allocate)(void* state, size_t bytes); /* NULL: there is no such thing */
  void (*release)(void* state, void* memory);
  const char* (*trouble)(void* state); /* words for the last failure */
};

/* "allreduce", ...; NULL for a number that is none. */
const char* bench_op_name(int op);
size_t bench_type_size(int type);

/* Elements per call (bench_call.count) of an array of `bytes` in a world of `size`. */
uint64_t bench_count(int op, uint64_t bytes, int type, int size);

/* Runs one request; collective over the library's ranks. */
struct bench_result bench_measure(const struct bench_library* library, const struct bench_request* request);

/* Serves requests that arrive on a Unix stream socket until it is closed: "hello NAME RANK SIZE\n" out, then for each
 * line "op type redop in_place bytes iterations off_cache own_memory rewrite\n" a line "status microseconds wrong\n"
 * back. Idle ranks sleep in read(2), so they do not disturb the ranks that are measured meanwhile. 0, or 1 after
 * trouble. */
int bench_serve(const struct bench_library* library, const char* socket_path);

#ifdef __cplusplus
}
#endif
#endif
