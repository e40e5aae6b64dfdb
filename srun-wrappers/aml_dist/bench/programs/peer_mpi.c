/* An MPI as something to be measured: mpirun -n N peer_mpi SOCKET. MPI 3.1 calls only. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* By amldist_type; MPI_DATATYPE_NULL: MPI has no such type. */
static MPI_Datatype type_of(int type) {
  switch (type) {
    case 0:
      return MPI_INT8_T;
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_INT32_T;
    case 3:
      return MPI_UINT32_T;
    case 4:
      return MPI_INT64_T;
    case 5:
      return MPI_UINT64_T;
    case 7:
      return MPI_FLOAT;
    case 8:
      return MPI_DOUBLE;
    case 10:
      return MPI_INT16_T;
    case 11:
      return MPI_UINT16_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

/* By amldist_op; an average MPI does not know. */
static MPI_Op op_of(int op) {
  static const int known = 4;
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
  return op >= 0 && op < known ? ops[op] : MPI_OP_NULL;
}

static int is_reduction(int op) { return op == BENCH_ALLREDUCE || op == BENCH_REDUCE || op == BENCH_REDUCE_SCATTER; }

struct place {
  int rank;
  int size;
};

/* A call, and which of its buffers are in place. */
struct plan {
  const struct bench_call* call;
  MPI_Datatype type;
  MPI_Op op;
  int count;
  int root; /* this rank is */
  int same;
  int own_piece;  /* the piece that this rank gives lies where it belongs in the result */
  int own_result; /* what this rank gets lies where it was in the input */
};

static int reduction(const struct plan* plan) {
  const MPI_Comm world = MPI_COMM_WORLD;
  const void* send = plan->same ? MPI_IN_PLACE : plan->call->send;
  void* recv = plan->call->recv;
  switch (plan->call->op) {
    case BENCH_ALLREDUCE:
      return MPI_Allreduce(send, recv, plan->count, plan->type, plan->op, world);
    case BENCH_REDUCE:
      return MPI_Reduce(plan->root ? send : plan->call->send, plan->root ? recv : NULL, plan->count, plan->type,
                        plan->op, 0, world);
    default:
      return MPI_Reduce_scatter_block(plan->call->send, recv, plan->count, plan->type, plan->op, world);
  }
}

static int movement(const struct plan* plan, const struct place* here) {
  const MPI_Comm world = MPI_COMM_WORLD;
  const MPI_Datatype type = plan->type;
  const int count = plan->count, next = (here->rank + 1) % here->size,
            last = (here->rank + here->size - 1) % here->size;
  const void* send = plan->call->send;
  void* recv = plan->call->recv;
  switch (plan->call->op) {
    case BENCH_BROADCAST:
      return MPI_Bcast(recv, count, type, 0, world);
    case BENCH_ALLGATHER:
      return MPI_Allgather(plan->own_piece ? MPI_IN_PLACE : send, count, type, recv, count, type, world);
    case BENCH_ALLTOALL:
      return MPI_Alltoall(plan->same ? MPI_IN_PLACE : send, count, type, recv, count, type, world);
    case BENCH_GATHER:
      return MPI_Gather(plan->root && plan->own_piece ? MPI_IN_PLACE : send, count, type, recv, count, type, 0, world);
    case BENCH_SCATTER:
      return MPI_Scatter(send, count, type, plan->root && plan->own_result ? MPI_IN_PLACE : recv, count, type, 0,
                         world);
    case BENCH_SENDRECV:
      return MPI_Sendrecv(send, count, type, next, 0, recv, count, type, last, 0, world, MPI_STATUS_IGNORE);
    default:
      return MPI_Barrier(world);
  }
}

static int run(void* state, const struct bench_call* call) {
  const struct place* here = state;
  const size_t own = call->count * (size_t)here->rank * bench_type_size(call->type);
  const struct plan plan = {.call = call,
                            .type = type_of(call->type),
                            .op = op_of(call->redop),
                            .count = (int)call->count,
                            .root = here->rank == 0,
                            .same = call->send == call->recv,
                            .own_piece = (const char*)call->send == (const char*)call->recv + own,
                            .own_result = (const char*)call->recv == (const char*)call->send + own};
  const int reduces = is_reduction(call->op);
  if ((unsigned)call->op >= BENCH_OPS || plan.type == MPI_DATATYPE_NULL || call->count > INT_MAX)
    return BENCH_UNSUPPORTED;
  if (reduces && plan.op == MPI_OP_NULL) return BENCH_UNSUPPORTED;
  /* MPI puts the result at the front of the input. */
  if (call->op == BENCH_REDUCE_SCATTER && plan.own_result) return BENCH_UNSUPPORTED;
  if (call->op == BENCH_SENDRECV && plan.same) return BENCH_UNSUPPORTED;
  const int result = reduces ? reduction(&plan) : movement(&plan, here);
  return result == MPI_SUCCESS ? BENCH_FINE : BENCH_FAILED;
}

static int barrier(void* state) {
  (void)state;
  return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? BENCH_FINE : BENCH_FAILED;
}

static const char* trouble(void* state) {
  (void)state;
  return "MPI reports an error";
}

int main(int argc, char** argv) {
  struct place here;
  if (argc != 3) {
    fprintf(stderr, "peer_mpi: NAME SOCKET are needed; aml-dist bench --peer starts this program\n");
    return 2;
  }
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &here.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &here.size);
  const struct bench_library library = {argv[1], here.rank, here.size, &here, run, barrier, NULL, NULL, trouble};
  const int status = bench_serve(&library, argv[2]);
  MPI_Finalize();
  return status;
}
