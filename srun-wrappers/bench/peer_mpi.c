/* An MPI as something to be measured: mpirun -n N peer_mpi SOCKET. MPI 3.1 calls only. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* By amldist_type; MPI_DATATYPE_NULL: MPI has no such type. */
static MPI_Datatype type_of(int type) {
  switch (type) {
    case 0: return MPI_INT8_T;
    case 1: return MPI_UINT8_T;
    case 2: return MPI_INT32_T;
    case 3: return MPI_UINT32_T;
    case 4: return MPI_INT64_T;
    case 5: return MPI_UINT64_T;
    case 7: return MPI_FLOAT;
    case 8: return MPI_DOUBLE;
    case 10: return MPI_INT16_T;
    case 11: return MPI_UINT16_T;
    default: return MPI_DATATYPE_NULL;
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

static int run(void *state, const struct bench_call *call) {
  const struct place *here = state;
  const MPI_Datatype type = type_of(call->type);
  const MPI_Op op = op_of(call->redop);
  const MPI_Comm world = MPI_COMM_WORLD;
  if (type == MPI_DATATYPE_NULL || call->count > INT_MAX) return BENCH_UNSUPPORTED;
  if (is_reduction(call->op) && op == MPI_OP_NULL) return BENCH_UNSUPPORTED;
  const int count = (int)call->count, root = here->rank == 0;
  const size_t own = call->count * (size_t)here->rank * bench_type_size(call->type);
  const int same = call->send == call->recv;
  const int own_piece_in_place = (const char *)call->send == (const char *)call->recv + own;
  const int own_result_in_place = (const char *)call->recv == (const char *)call->send + own;
  const void *send = call->send;
  int result = MPI_SUCCESS;
  switch (call->op) {
    case BENCH_ALLREDUCE:
      result = MPI_Allreduce(same ? MPI_IN_PLACE : send, call->recv, count, type, op, world);
      break;
    case BENCH_REDUCE:
      result = MPI_Reduce(same && root ? MPI_IN_PLACE : send, root ? call->recv : NULL, count, type, op, 0, world);
      break;
    case BENCH_BROADCAST:
      result = MPI_Bcast(call->recv, count, type, 0, world);
      break;
    case BENCH_ALLGATHER:
      result = MPI_Allgather(own_piece_in_place ? MPI_IN_PLACE : send, count, type, call->recv, count, type, world);
      break;
    case BENCH_REDUCE_SCATTER:
      if (own_result_in_place) return BENCH_UNSUPPORTED; /* MPI puts the result at the front of the input */
      result = MPI_Reduce_scatter_block(send, call->recv, count, type, op, world);
      break;
    case BENCH_ALLTOALL:
      result = MPI_Alltoall(same ? MPI_IN_PLACE : send, count, type, call->recv, count, type, world);
      break;
    case BENCH_GATHER:
      result = MPI_Gather(root && own_piece_in_place ? MPI_IN_PLACE : send, count, type, call->recv, count, type, 0, world);
      break;
    case BENCH_SCATTER:
      result = MPI_Scatter(send, count, type, root && own_result_in_place ? MPI_IN_PLACE : call->recv, count, type, 0, world);
      break;
    case BENCH_SENDRECV:
      if (same) return BENCH_UNSUPPORTED;
      result = MPI_Sendrecv(send, count, type, (here->rank + 1) % here->size, 0, call->recv, count, type,
                            (here->rank + here->size - 1) % here->size, 0, world, MPI_STATUS_IGNORE);
      break;
    case BENCH_BARRIER:
      result = MPI_Barrier(world);
      break;
    default:
      return BENCH_UNSUPPORTED;
  }
  return result == MPI_SUCCESS ? BENCH_FINE : BENCH_FAILED;
}

static int barrier(void *state) {
  (void)state;
  return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? BENCH_FINE : BENCH_FAILED;
}

static const char *trouble(void *state) {
  (void)state;
  return "MPI reports an error";
}

int main(int argc, char **argv) {
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
