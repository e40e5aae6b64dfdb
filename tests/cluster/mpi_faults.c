/* An MPI program that knows nothing of aml-dist, whose rank 2 does something wrong after a random number of rounds:
 *
 *   mpi_faults KIND SEED ROUNDS
 *
 * `none` does nothing wrong: it pauses at random. In `stages` the ranks are the stages of a pipeline, balanced but for
 * random pauses; in `slow-stage` rank 2 takes six times as long as the others. */
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5 /* an extension there */
#include <mpi-ext.h>
#define MPI_Allreduce_init MPIX_Allreduce_init
#define MPI_Bcast_init MPIX_Bcast_init
#define MPI_Barrier_init MPIX_Barrier_init
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef LONG_MESSAGE /* so long that no MPI takes it in before somebody asks for it */
#define LONG_MESSAGE (1 << 20)
#endif
enum { culprit = 2, elements = 4, long_message = LONG_MESSAGE };

static float input[elements], output[elements];
static int shared;
static MPI_Comm half, everybody;
static MPI_Request prepared[2];

static void work(int rank, int size) {
  MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, half);
  MPI_Request requests[3];
  int sent = rank, got = 0;
  MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, requests);
  MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, requests + 1);
  MPI_Iallreduce(input, output, elements, MPI_FLOAT, MPI_MAX, everybody, requests + 2);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
#ifdef I_MPI_VERSION /* deadlocks where the order differs */
  const int first = 0;
#else
  const int first = rank % 2; /* the standard lets persistent collectives start in any order */
#endif
  MPI_Start(prepared + first);
  MPI_Start(prepared + 1 - first);
  MPI_Waitall(2, prepared, MPI_STATUSES_IGNORE);
}

static void pause_at_random(void) { usleep((useconds_t)(rand() % 4 == 0 ? rand() % 300000 : 0)); }

/* The parts of a batch go through all stages, and then back. Each stage works on a part for a while. */
static void pass(int rank, int from, int to, useconds_t longest) {
  enum { parts = 8 };
  for (int part = 0; part < parts; ++part) {
    if (from >= 0) MPI_Recv(input, elements, MPI_FLOAT, from, part, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    usleep(rank == culprit ? longest : longest / 2 + (useconds_t)rand() % (longest / 2));
    if (to >= 0) MPI_Send(input, elements, MPI_FLOAT, to, part, MPI_COMM_WORLD);
  }
}

static void train(int rank, int size, int is_slow) {
  const useconds_t longest = rank == culprit && is_slow ? 48000 : 8000;
  const int next = rank + 1 < size ? rank + 1 : -1;
  pass(rank, rank - 1, next, longest);
  pass(rank, next, rank - 1, longest);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const char* const kind = argv[1];
  const int rounds = atoi(argv[3]);
  int rank = 0, size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  MPI_Comm_dup(MPI_COMM_WORLD, &everybody);
  MPI_Allreduce_init(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, prepared);
  MPI_Bcast_init(&shared, 1, MPI_INT, 1, MPI_COMM_WORLD, MPI_INFO_NULL, prepared + 1);
  srand((unsigned)atoi(argv[2]));
  const int wrong_round = rand() % rounds;
  srand((unsigned)(atoi(argv[2]) + rank));
  char* const message = calloc(2, long_message);
  for (int round = 0; round < rounds; ++round) {
    const int wrong = rank == culprit && round == wrong_round;
    if (strcmp(kind, "stages") == 0 || strcmp(kind, "slow-stage") == 0) {
      train(rank, size, kind[1] == 'l');
      continue;
    }
    if (strcmp(kind, "straggler") == 0 && rank == culprit) usleep(800000);
    work(rank, size);
    if (strcmp(kind, "none") == 0) pause_at_random();
    if (strcmp(kind, "circle") == 0 && round == wrong_round) {
      MPI_Ssend(message, long_message, MPI_CHAR, (rank + 1) % size, 1, MPI_COMM_WORLD); /* no MPI may take it in */
      MPI_Recv(message + long_message, long_message, MPI_CHAR, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
    }
    if (strcmp(kind, "message") == 0 && round == wrong_round && rank == 3) {
      MPI_Recv(message, 1, MPI_CHAR, culprit, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* it never sends this */
    }
    if (strcmp(kind, "persistent") == 0 && round == wrong_round && rank == 3) {
      MPI_Request again;
      MPI_Recv_init(message, 1, MPI_CHAR, culprit, 11, MPI_COMM_WORLD, &again);
      for (int i = 0; i < 3; ++i) { /* the third never comes */
        MPI_Start(&again);
        MPI_Wait(&again, MPI_STATUS_IGNORE);
      }
    }
    if (strcmp(kind, "persistent") == 0 && wrong) {
      MPI_Request twice;
      MPI_Send_init(message, 1, MPI_CHAR, 3, 11, MPI_COMM_WORLD, &twice);
      for (int i = 0; i < 2; ++i) {
        MPI_Startall(1, &twice);
        MPI_Wait(&twice, MPI_STATUS_IGNORE);
      }
      MPI_Request_free(&twice);
    }
    if (strcmp(kind, "prepared") == 0 && round == wrong_round) { /* rank 2 does not start it */
      if (wrong) pause();
      MPI_Startall(1, prepared);
      MPI_Wait(prepared, MPI_STATUS_IGNORE);
    }
    if (strcmp(kind, "unprepared") == 0 && round == wrong_round) { /* rank 2 does not even prepare it */
      if (wrong) pause();
      MPI_Request more;
      MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &more);
      MPI_Start(&more);
      MPI_Wait(&more, MPI_STATUS_IGNORE);
    }
    if ((strcmp(kind, "message") == 0 || strcmp(kind, "persistent") == 0) && wrong) pause();
    if (strcmp(kind, "late") == 0 && wrong) sleep(1000);
    if (strcmp(kind, "stopped") == 0 && wrong) raise(SIGSTOP);
    if (strcmp(kind, "killed") == 0 && wrong) raise(SIGKILL);
    if (strcmp(kind, "skipped") == 0 && wrong) continue;
    if (strcmp(kind, "finalize") == 0 && wrong) break;
    if (strcmp(kind, "communicator") == 0 && wrong) {
      MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, everybody);
    } else if (strcmp(kind, "operation") == 0 && wrong) {
      MPI_Alltoall(message, 1, MPI_CHAR, message + long_message, 1, MPI_CHAR, MPI_COMM_WORLD);
    } else if (strcmp(kind, "root") == 0) {
      MPI_Bcast(message, long_message, MPI_CHAR, wrong ? 3 : 0, MPI_COMM_WORLD);
    } else if (strcmp(kind, "count") == 0) {
      MPI_Bcast(message, wrong ? 0 : long_message, MPI_CHAR, 0, MPI_COMM_WORLD);
    } else {
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  if (strcmp(kind, "skipped") == 0 && rank == culprit) sleep(1000);
  MPI_Request_free(prepared);
  MPI_Request_free(prepared + 1);
  MPI_Finalize();
  free(message);
  return 0;
}
