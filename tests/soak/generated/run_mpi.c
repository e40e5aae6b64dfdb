/* Plays a generated program over MPI:  run_mpi PROGRAM FAULT  (FAULT: how the culprit stands still, or "none") */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { most_groups = 64, most_ranks = 64, most_bytes = 1 << 16 };

static MPI_Comm groups[most_groups];
static int ranks_of_groups;

static void make_group(char* line) {
  int rank, is_in = MPI_UNDEFINED;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (char* word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n"))
    if (atoi(word) == rank) is_in = 0;
  if (ranks_of_groups == 0) groups[0] = MPI_COMM_WORLD;
  else MPI_Comm_split(MPI_COMM_WORLD, is_in, rank, &groups[ranks_of_groups]);
  ++ranks_of_groups;
}

static void stand_still(const char* fault) {
  if (strcmp(fault, "exit") == 0) _exit(0);
  if (strcmp(fault, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 3);
  if (strcmp(fault, "kill") == 0) raise(SIGKILL);
  if (strcmp(fault, "stop") == 0) raise(SIGSTOP);
  if (strcmp(fault, "io") == 0) {
    int ends[2];
    char byte;
    if (pipe(ends) == 0 && read(ends[0], &byte, 1) == 0) abort();
  }
  if (strcmp(fault, "slow") == 0) usleep(300000);
  if (strcmp(fault, "busy") == 0)
    for (volatile unsigned turns = 0;;) turns = turns + 1;
}

static void call(const char* operation, MPI_Comm comm, int bytes, int root) {
  static char in[most_bytes], out[most_bytes * most_ranks];
  const int count = bytes / 4;
  if (strcmp(operation, "allreduce") == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm);
  if (strcmp(operation, "broadcast") == 0) MPI_Bcast(in, count, MPI_FLOAT, root, comm);
  if (strcmp(operation, "barrier") == 0) MPI_Barrier(comm);
  if (strcmp(operation, "allgather") == 0) MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, comm);
  if (strcmp(operation, "send") == 0) MPI_Ssend(in, count, MPI_FLOAT, root, 7, comm);
  if (strcmp(operation, "recv") == 0) MPI_Recv(in, count, MPI_FLOAT, root, 7, comm, MPI_STATUS_IGNORE);
}

int main(int count, char** words) {
  char line[4096], operation[32], ignored[32];
  int rank, culprit = -1, at = -1, made = 0, caller, group, root;
  unsigned long bytes;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  FILE* const program = fopen(words[1], "r");
  if (program == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  int ended = 0;
  while (!ended && fgets(line, sizeof line, program) != NULL) {
    if (strncmp(line, "group ", 6) == 0) make_group(line + 6);
    sscanf(line, "fault %31s %d %d", ignored, &culprit, &at);
    if (sscanf(line, "call %d %31s %d %lu %d", &caller, operation, &group, &bytes, &root) != 5 || caller != rank)
      continue;
    if (rank == culprit && made >= at) stand_still(words[2]);
    usleep((unsigned)rand() % 3000);
    ++made;
    ended = strcmp(operation, "finalize") == 0;
    if (!ended) call(operation, groups[group], (int)bytes, root);
  }
  return MPI_Finalize();
}
