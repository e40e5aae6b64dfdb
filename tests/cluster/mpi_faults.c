/* An MPI program that knows nothing of aml-dist, whose rank 2 does something wrong after a random number of rounds:
 *
 *   mpi_faults KIND SEED ROUNDS
 *
 * `none` does nothing wrong: it pauses at random. In `stages` the ranks are the stages of a pipeline, balanced but for
 * random pauses; in `slow-stage` rank 2 takes six times as long as the others. In `service`, which does nothing wrong,
 * a thread of each rank waits for word to stop, and in `search` the ranks ask for it between two pieces of work.
 * `churn` makes and frees many communicators. In `busy`, `locked` and `paged` rank 2 comes some seconds late, with a
 * reason. */
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5 /* an extension there */
#include <mpi-ext.h>
#define MPI_Allreduce_init MPIX_Allreduce_init
#define MPI_Bcast_init MPIX_Bcast_init
#define MPI_Barrier_init MPIX_Barrier_init
#endif
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef LONG_MESSAGE /* so long that no MPI takes it in before somebody asks for it */
#define LONG_MESSAGE (1 << 20)
#endif
enum { culprit = 2, elements = 4, long_message = LONG_MESSAGE };

static float input[elements], output[elements];
static int shared;
static MPI_Comm half, everybody;
static MPI_Request prepared[2];
static MPI_Datatype every_second; /* of four numbers */

static void work(int rank, int size) {
  MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, half);
  MPI_Request requests[3];
  int sent = rank, got = 0;
  MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, requests);
  MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, requests + 1);
  MPI_Iallreduce(input, output, elements, MPI_FLOAT, MPI_MAX, everybody, requests + 2);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  int columns[4] = {rank, -1, rank, -1};
  MPI_Sendrecv_replace(columns, 1, every_second, (rank + 1) % size, 6, (rank + size - 1) % size, 6, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE);
  const int left = (rank + size - 1) % size;
  if (columns[0] != left || columns[1] != -1 || columns[2] != left || columns[3] != -1) MPI_Abort(MPI_COMM_WORLD, 3);
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

static void message_from(int rank) { MPI_Recv(input, 1, MPI_FLOAT, rank, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void message_from_member(MPI_Comm comm, int rank) {
  MPI_Recv(input, 1, MPI_FLOAT, rank, 12, comm, MPI_STATUS_IGNORE);
}
static void message_to(int rank) { MPI_Send(input, 1, MPI_FLOAT, rank, 12, MPI_COMM_WORLD); }

/* Rank 0 waits for a message of each of the others; those that have sent it go on without MPI. */
static void gather(int rank, int size) {
  MPI_Request all[64];
  if (rank == culprit) pause();
  if (rank != 0) message_to(0);
  if (rank != 0) sleep(1000);
  for (int i = 1; i < size; ++i) MPI_Irecv(output, 1, MPI_FLOAT, i, 12, MPI_COMM_WORLD, all + i);
  MPI_Waitall(size - 1, all + 1, MPI_STATUSES_IGNORE);
}

/* Rank 0 answers when all others have asked. */
static void serve(int rank, int size) {
  if (rank == culprit) pause();
  if (rank != 0) message_to(0);
  if (rank != 0) message_from(0);
  for (int i = 1; i < size; ++i) message_from(MPI_ANY_SOURCE);
  for (int i = 1; i < size; ++i) message_to(i);
}

/* Rank 2 computes in a child for some seconds, waits for a lock, or writes where nobody reads; then it comes. */
static void be_busy(const char* kind) {
  int ends[2];
  char block[4096] = {0};
  const int lock = open("mpi_faults.lock", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (pipe(ends) != 0 || lock < 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    const time_t end = time(NULL) + 8;
    if (strcmp(kind, "locked") == 0 && flock(lock, LOCK_EX) == 0) sleep(8);
    if (strcmp(kind, "paged") == 0) sleep(12);
    if (strcmp(kind, "paged") == 0) close(ends[1]);
    while (strcmp(kind, "paged") == 0 && read(ends[0], block, sizeof block) > 0) {
    }
    while (strcmp(kind, "busy") == 0 && time(NULL) < end) {
    }
    _exit(0);
  }
  close(lock);
  sleep(1);
  const int own = open("mpi_faults.lock", O_RDWR | O_CLOEXEC);
  if (strcmp(kind, "locked") == 0) flock(own, LOCK_EX);
  for (int i = 0; strcmp(kind, "paged") == 0 && i < 64; ++i) {
    if (write(ends[1], block, sizeof block) < 0) abort();
  }
  close(ends[1]);
  waitpid(child, NULL, 0);
}

static int is_busy_kind(const char* kind) {
  return strcmp(kind, "busy") == 0 || strcmp(kind, "locked") == 0 || strcmp(kind, "paged") == 0;
}

static void resize_file(int rank) {
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, "mpi_faults.data", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  if (rank == culprit) pause();
  MPI_File_set_size(file, 4096);
}

/* A call that nobody waits for yet is before the one to which rank 2 does not come. */
static void go_ahead(int rank) {
  MPI_Request posted;
  MPI_Ibarrier(MPI_COMM_WORLD, &posted);
  if (rank == culprit) pause();
  MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Wait(&posted, MPI_STATUS_IGNORE);
}

static void* wait_for_word(void* comm) {
  int word = 0;
  MPI_Recv(&word, 1, MPI_INT, 0, 13, *(MPI_Comm*)comm, MPI_STATUS_IGNORE);
  return NULL;
}

static void work_beside_a_thread(int rank, int size, int rounds) {
  MPI_Comm own;
  pthread_t thread;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  pthread_create(&thread, NULL, wait_for_word, &own);
  for (int round = 0; round < rounds; ++round) {
    usleep(200000);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  for (int i = 0; rank == 0 && i < size; ++i) MPI_Send(&rank, 1, MPI_INT, i, 13, own);
  pthread_join(thread, NULL);
}

static void ask_until_it_has_ended(MPI_Request* request) {
  for (int flag = 0; !flag;) MPI_Test(request, &flag, MPI_STATUS_IGNORE);
}

/* Rank 3 asks for a message of rank 2, all others for a call of all; rank 2 comes to neither. */
static void ask(int rank, int size) {
  MPI_Request requests[2];
  if (rank == culprit) pause();
  MPI_Iallreduce(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, requests);
  if (rank != size - 1) return ask_until_it_has_ended(requests);
  MPI_Irecv(output, 1, MPI_FLOAT, culprit, 12, MPI_COMM_WORLD, requests + 1);
  for (int flag = 0; !flag; usleep(2000)) MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
}

/* Rank 3 gives its number to rank 1 and waits for that of rank 2; those that need not wait go on without MPI. */
static void replace(int rank) {
  int number = rank;
  if (rank == 1) MPI_Recv(&number, 1, MPI_INT, 3, 16, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 3) MPI_Sendrecv_replace(&number, 1, MPI_INT, 1, 16, culprit, 16, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  sleep(1000);
}

/* A communicator of the even and the odd ranks. Rank 3 waits for a message of rank 2 on it, or all wait in a call of
 * all. */
static void join_groups(int rank, int is_message) {
  MPI_Comm between, merged;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 17, &between);
  MPI_Barrier(between);
  MPI_Intercomm_merge(between, rank % 2, &merged);
  MPI_Barrier(merged);
  if (rank == culprit) pause();
  if (is_message && rank == 3) message_from_member(between, culprit / 2);
  MPI_Barrier(is_message ? MPI_COMM_WORLD : between);
}

/* More communicators than are judged. Ranks 1 and 3 wait on one of the last, rank 0 for all. */
static void use_many(int rank) {
#ifdef I_MPI_VERSION /* takes longer for each */
  enum { many = 300 };
#else
  enum { many = 1000 };
#endif
  static MPI_Comm all[many];
  for (int i = 0; i < many; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, all + i);
    MPI_Barrier(all[i]);
  }
  if (rank == culprit) pause();
  MPI_Barrier(rank == 0 ? MPI_COMM_WORLD : all[many - 1]);
}

static void make_and_free_many(int count) {
  for (int i = 0; i < count; ++i) {
    MPI_Comm made;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    MPI_Allreduce(input, output, elements, MPI_FLOAT, MPI_SUM, made);
    MPI_Comm_free(&made);
  }
}

/* A search, which does nothing wrong: all but rank 0 look for something in small pieces, and ask between two of them
 * whether another one has found it. */
static void search(int rank, int size, int rounds) {
  int word = rank;
  if (rank == 0) {
    MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 1; i < size; ++i) MPI_Send(&word, 1, MPI_INT, i, 15, MPI_COMM_WORLD);
    return;
  }
  MPI_Request stop;
  MPI_Irecv(&word, 1, MPI_INT, 0, 15, MPI_COMM_WORLD, &stop);
  const double start = MPI_Wtime();
  for (int flag = 0, told = 0; !flag;) {
    for (volatile int piece = 0; piece < 10000000; ++piece) continue;
    if (rank == culprit && !told && MPI_Wtime() > start + rounds * 0.2) {
      MPI_Send(&rank, 1, MPI_INT, 0, 14, MPI_COMM_WORLD);
      told = 1;
    }
    MPI_Test(&stop, &flag, MPI_STATUS_IGNORE);
  }
}

/* Rank 2 holds a lock on its window; rank 3 wants it, and does nothing wrong. Both are on one node: Debian's Open MPI
 * has no windows over TCP. */
static void hold_lock(int rank) {
  int* cell = NULL;
  MPI_Comm node;
  MPI_Win window;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Win_allocate(sizeof *cell, sizeof *cell, MPI_INFO_NULL, node, &cell, &window);
  if (rank == culprit) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  if (rank == culprit) MPI_Win_flush(0, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == culprit) sleep(1000);
  if (rank == 3) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Put(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
    MPI_Win_flush(0, window);
  }
}

static void stand_still(const char* kind, int rank, int size) {
  if (strcmp(kind, "gather") == 0) gather(rank, size);
  if (strcmp(kind, "serve") == 0) serve(rank, size);
  if (strcmp(kind, "file") == 0) resize_file(rank);
  if (strcmp(kind, "ahead") == 0) go_ahead(rank);
  if (strcmp(kind, "polls") == 0) ask(rank, size);
  if (strcmp(kind, "replace") == 0) replace(rank);
  if (strcmp(kind, "groups") == 0) join_groups(rank, 0);
  if (strcmp(kind, "group-message") == 0) join_groups(rank, 1);
  if (strcmp(kind, "many") == 0) use_many(rank);
  if (strcmp(kind, "lock") == 0) hold_lock(rank);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const char* const kind = argv[1];
  const int rounds = atoi(argv[3]);
  int rank = 0, size = 0;
  int threads = 0;
  if (strcmp(kind, "service") == 0) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
  else MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  MPI_Comm_dup(MPI_COMM_WORLD, &everybody);
  MPI_Type_vector(2, 1, 2, MPI_INT, &every_second);
  MPI_Type_commit(&every_second);
  MPI_Allreduce_init(input, output, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, prepared);
  MPI_Bcast_init(&shared, 1, MPI_INT, 1, MPI_COMM_WORLD, MPI_INFO_NULL, prepared + 1);
  srand((unsigned)atoi(argv[2]));
  const int wrong_round = rand() % rounds;
  srand((unsigned)(atoi(argv[2]) + rank));
  char* const message = calloc(2, long_message);
  if (strcmp(kind, "churn") == 0) make_and_free_many(50 * rounds);
  if (strcmp(kind, "search") == 0) search(rank, size, rounds);
  if (threads == MPI_THREAD_MULTIPLE) work_beside_a_thread(rank, size, rounds);
  for (int round = 0; round < rounds; ++round) {
    const int wrong = rank == culprit && round == wrong_round;
    if (strcmp(kind, "stages") == 0 || strcmp(kind, "slow-stage") == 0) {
      train(rank, size, kind[1] == 'l');
      continue;
    }
    if (strcmp(kind, "straggler") == 0 && rank == culprit) usleep(800000);
    work(rank, size);
    if (strcmp(kind, "none") == 0) pause_at_random();
    if (round == wrong_round) stand_still(kind, rank, size);
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
    if (is_busy_kind(kind) && wrong) be_busy(kind);
    if (strcmp(kind, "late") == 0 && wrong) sleep(1000);
    if (strcmp(kind, "stopped") == 0 && wrong) raise(SIGSTOP);
    if (strcmp(kind, "killed") == 0 && wrong) raise(SIGKILL);
    if (strcmp(kind, "aborted") == 0 && wrong) MPI_Abort(MPI_COMM_WORLD, 7);
    if (strcmp(kind, "exited") == 0 && wrong) exit(0); /* without MPI_Finalize */
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
