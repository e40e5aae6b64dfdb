/* Wrong calls: each returns an error with a message. Also groups, splits, and an abort from another thread. */
#include <string.h>

#include "program.h"

static void refused(int status, int expected, const char* word) {
  if (status == expected && strstr(amldist_last_error(), word) != NULL) return;
  fprintf(stderr, "got %d (%s) instead of %d with '%s'\n", status, amldist_last_error(), expected, word);
  exit(1);
}

static void misuse_of_lists(void) {
  enum { MOST = 64 };
  float x[4] = {0, 0, 0, 0}, y[4];
  size_t ones[MOST], zeros[MOST] = {0}, own[MOST] = {0}, huge[MOST] = {0};
  CHECK(size <= MOST);
  for (int r = 0; r < MOST; ++r) ones[r] = 1;
  own[rank] = 1;
  huge[size - 1] = (size_t)1 << 62;
  const amldist_type type = AMLDIST_FLOAT32;
  refused(amldist_alltoallv(world, NULL, ones, zeros, y, ones, zeros, type), AMLDIST_EINVAL, "send is NULL");
  refused(amldist_alltoallv(world, x, ones, zeros, NULL, ones, zeros, type), AMLDIST_EINVAL, "receive is NULL");
  refused(amldist_alltoallv(world, x, own, zeros, y, zeros, zeros, type), AMLDIST_EINVAL, "sent to the own rank");
  refused(amldist_alltoallv(world, x, huge, zeros, y, zeros, zeros, type), AMLDIST_EINVAL, "beyond any memory");
  refused(amldist_alltoallv(world, x, zeros, zeros, y, zeros, huge, type), AMLDIST_EINVAL, "beyond any memory");
  refused(amldist_allgatherv(world, NULL, 1, y, ones, zeros, type), AMLDIST_EINVAL, "send is NULL");
  refused(amldist_allgatherv(world, x, 1, NULL, ones, zeros, type), AMLDIST_EINVAL, "receive is NULL");
  refused(amldist_allgatherv(world, x, 2, y, ones, zeros, type), AMLDIST_EINVAL, "counts[own rank] is 1");
  refused(amldist_allgatherv(world, x, 1, y, ones, huge, type), AMLDIST_EINVAL, "beyond any memory");
  refused(amldist_reduce_scatterv(world, NULL, y, ones, zeros, type, AMLDIST_SUM), AMLDIST_EINVAL, "send is NULL");
  refused(amldist_reduce_scatterv(world, x, NULL, ones, zeros, type, AMLDIST_SUM), AMLDIST_EINVAL, "receive is NULL");
  refused(amldist_reduce_scatterv(world, x, y, ones, huge, type, AMLDIST_SUM), AMLDIST_EINVAL, "beyond any memory");
  refused(amldist_reduce_scatterv(world, x, y, NULL, zeros, type, AMLDIST_SUM), AMLDIST_EINVAL, "list of counts");
  OK(amldist_reduce_scatterv(world, NULL, NULL, zeros, zeros, type, AMLDIST_SUM));
  OK(amldist_alltoallv(world, NULL, zeros, zeros, NULL, zeros, zeros, type));
  OK(amldist_allgatherv(world, NULL, 0, NULL, zeros, zeros, type));
}

void run_misuse(void) {
  float x[4] = {0, 0, 0, 0};
  amldist_comm* none = NULL;
  amldist_request* request = NULL;
  void* memory;
  int done;
  refused(amldist_init(NULL, 0), AMLDIST_EINVAL, "NULL");
  refused(amldist_init(&none, -1), AMLDIST_EINVAL, "negative");
  CHECK(none == NULL && amldist_finalize(NULL) == AMLDIST_OK);
  CHECK(amldist_rank(NULL) < 0 && amldist_host(world, size) == NULL && amldist_host(world, -1) == NULL);
  refused(amldist_allreduce(NULL, x, x, 1, AMLDIST_FLOAT32, AMLDIST_SUM), AMLDIST_EINVAL, "NULL");
  refused(amldist_allreduce(world, NULL, x, 1, AMLDIST_FLOAT32, AMLDIST_SUM), AMLDIST_EINVAL, "send is NULL");
  refused(amldist_allreduce(world, x, NULL, 1, AMLDIST_FLOAT32, AMLDIST_SUM), AMLDIST_EINVAL, "receive is NULL");
  refused(amldist_allreduce(world, x, x, 1, (amldist_type)13, AMLDIST_SUM), AMLDIST_EINVAL,
          "13 is not an amldist_type");
  refused(amldist_allreduce(world, x, x, 1, (amldist_type)-1, AMLDIST_SUM), AMLDIST_EINVAL, "not an amldist_type");
  refused(amldist_allreduce(world, x, x, 1, AMLDIST_FLOAT32, (amldist_op)8), AMLDIST_EINVAL, "8 is not an amldist_op");
  refused(amldist_allreduce(world, x, x, 1, AMLDIST_FLOAT32, AMLDIST_BXOR), AMLDIST_EINVAL,
          "float32 cannot be combined by bxor");
  refused(amldist_reduce(world, x, x, 1, AMLDIST_BFLOAT16, AMLDIST_BAND, 0), AMLDIST_EINVAL, "by band");
  refused(amldist_reduce_scatter(world, x, x, 1, AMLDIST_BOOL, AMLDIST_AVG), AMLDIST_EINVAL,
          "bool cannot be combined by avg");
  refused(amldist_allreduce(world, x, x, (size_t)-1, AMLDIST_FLOAT32, AMLDIST_SUM), AMLDIST_EINVAL,
          "beyond any memory");
  refused(amldist_broadcast(world, x, 1, AMLDIST_FLOAT32, size), AMLDIST_EINVAL, "root");
  refused(amldist_broadcast(world, x, 1, AMLDIST_FLOAT32, -1), AMLDIST_EINVAL, "root -1");
  refused(amldist_allgatherv(world, x, 1, x, NULL, NULL, AMLDIST_FLOAT32), AMLDIST_EINVAL, "counts");
  misuse_of_lists();
  refused(amldist_iallreduce(world, x, x, 1, AMLDIST_FLOAT32, AMLDIST_SUM, NULL), AMLDIST_EINVAL, "request");
  refused(amldist_wait(NULL), AMLDIST_EINVAL, "NULL");
  refused(amldist_group_end(world), AMLDIST_EINVAL, "group_begin");
  refused(amldist_free(world, x), AMLDIST_EINVAL, "amldist_alloc");
  refused(amldist_alloc(world, (size_t)1 << 60, &memory), AMLDIST_ELIMIT, "more than this machine");
  refused(amldist_set_timeout(world, -5), AMLDIST_EINVAL, "negative");
  OK(amldist_test(&request, &done));
  CHECK(done == 1);
  OK(amldist_group_begin(world));
  refused(amldist_iallreduce(world, x, x, 1, AMLDIST_FLOAT32, AMLDIST_SUM, &request), AMLDIST_EINVAL, "group");
  OK(amldist_group_end(world));
  OK(amldist_barrier(world)); /* none of it has harmed the communicator */
}

/* Splits into even and odd ranks in reversed order, splits one part again, and leaves one rank out. */
void run_split(void) {
  amldist_comm *half, *alone, *some;
  OK(amldist_split(world, rank % 2, -rank, &half));
  const int halves = (size + 1 - rank % 2) / 2;
  CHECK(amldist_size(half) == halves && amldist_rank(half) == halves - 1 - rank / 2);
  int sum = rank, expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  OK(amldist_allreduce(half, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM));
  CHECK(sum == expected);
  OK(amldist_split(half, amldist_rank(half), 0, &alone));
  CHECK(amldist_size(alone) == 1);
  OK(amldist_barrier(alone));
  OK(amldist_split(world, rank == 0 ? -1 : 5, 0, &some));
  CHECK((some == NULL) == (rank == 0));
  if (some != NULL) {
    CHECK(amldist_size(some) == size - 1);
    OK(amldist_barrier(some));
  }
  OK(amldist_finalize(some));
  OK(amldist_finalize(alone));
  OK(amldist_finalize(half));
}
