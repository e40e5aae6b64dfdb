#include "library_amldist.h"

#include <amldist/amldist.h>

static int status_of(int result) { return result == AMLDIST_OK ? BENCH_FINE : BENCH_FAILED; }

static int send_receive(amldist_comm* comm, const struct bench_call* call) {
  const int size = amldist_size(comm), rank = amldist_rank(comm);
  const amldist_type type = (amldist_type)call->type;
  int result = amldist_group_begin(comm);
  if (result == AMLDIST_OK) result = amldist_send(comm, call->send, call->count, type, (rank + 1) % size);
  if (result == AMLDIST_OK) result = amldist_recv(comm, call->recv, call->count, type, (rank + size - 1) % size);
  const int ended = amldist_group_end(comm);
  return result != AMLDIST_OK ? result : ended;
}

static int run(void* state, const struct bench_call* call) {
  amldist_comm* const comm = state;
  const amldist_type type = (amldist_type)call->type;
  const amldist_op op = (amldist_op)call->redop;
  switch (call->op) {
    case BENCH_ALLREDUCE:
      return status_of(amldist_allreduce(comm, call->send, call->recv, call->count, type, op));
    case BENCH_REDUCE:
      return status_of(amldist_reduce(comm, call->send, call->recv, call->count, type, op, 0));
    case BENCH_BROADCAST:
      return status_of(amldist_broadcast(comm, call->recv, call->count, type, 0));
    case BENCH_ALLGATHER:
      return status_of(amldist_allgather(comm, call->send, call->recv, call->count, type));
    case BENCH_REDUCE_SCATTER:
      return status_of(amldist_reduce_scatter(comm, call->send, call->recv, call->count, type, op));
    case BENCH_ALLTOALL:
      return status_of(amldist_alltoall(comm, call->send, call->recv, call->count, type));
    case BENCH_GATHER:
      return status_of(amldist_gather(comm, call->send, call->recv, call->count, type, 0));
    case BENCH_SCATTER:
      return status_of(amldist_scatter(comm, call->send, call->recv, call->count, type, 0));
    case BENCH_SENDRECV:
      return status_of(send_receive(comm, call));
    case BENCH_BARRIER:
      return status_of(amldist_barrier(comm));
    default:
      return BENCH_UNSUPPORTED;
  }
}

static int barrier(void* state) { return status_of(amldist_barrier(state)); }

static void* allocate(void* state, size_t bytes) {
  void* memory = NULL;
  return amldist_alloc(state, bytes, &memory) == AMLDIST_OK ? memory : NULL;
}

static void release(void* state, void* memory) { (void)amldist_free(state, memory); }

static const char* trouble(void* state) {
  (void)state;
  return amldist_last_error();
}

struct bench_library bench_library_amldist(amldist_comm* comm) {
  const struct bench_library library = {
      "amldist", amldist_rank(comm), amldist_size(comm), comm, run, barrier, allocate, release, trouble};
  return library;
}
