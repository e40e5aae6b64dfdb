/* Gradient buckets against separate calls, on ranks of this node.
 *
 *   bucket_speed [--ranks N] [--rounds N] [--json]
 *
 * Three ways to all-reduce the same tensors, in turn, round after round: one blocking call each (in place, on the
 * program's own buffers), the reducer on those buffers, and the reducer on its views. A figure is the median over the
 * rounds of the time of separate calls over the time of the other way in the same round. */
#include <amldist/amldist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"

enum { MOST_TENSORS = 1024, MOST_ROUNDS = 200 };

struct workload {
  const char* name;
  size_t tensors;
  size_t bytes;
  double goal_bound; /* smallest ratio that will do; 0: none */
  double goal_views;
};

static const struct workload workloads[] = {
    {"1024 x 1 KiB", 1024, 1024, 3, 3},
    {"161 x 64 KiB", 161, 64 << 10, 1, 1},
    {"161 x 640 KiB", 161, 640 << 10, 1, 1},
    {"8 x 16 MiB", 8, 16 << 20, 1, 1},
};

static void must(int status, const char* what) {
  if (status == AMLDIST_OK) return;
  fprintf(stderr, "bucket_speed: %s: %s\n", what, amldist_last_error());
  exit(1);
}

static double separate(amldist_comm* comm, char** data, const struct workload* work) {
  must(amldist_barrier(comm), "barrier");
  const double start = now_us();
  for (size_t t = work->tensors; t-- > 0;) {
    must(amldist_allreduce(comm, data[t], data[t], work->bytes / 4, AMLDIST_FLOAT32, AMLDIST_AVG), "allreduce");
  }
  return now_us() - start;
}

static double bucketed(amldist_comm* comm, amldist_reducer* reducer, const struct workload* work) {
  must(amldist_barrier(comm), "barrier");
  const double start = now_us();
  for (size_t t = work->tensors; t-- > 0;) must(amldist_reducer_ready(reducer, t), "ready");
  must(amldist_reducer_wait(reducer), "wait");
  return now_us() - start;
}

static void run(amldist_comm* comm, const struct workload* work, int rounds, int json, int last) {
  static char* data[MOST_TENSORS];
  static size_t counts[MOST_TENSORS];
  double bound[MOST_ROUNDS], views[MOST_ROUNDS], calls[MOST_ROUNDS];
  amldist_reducer *own = NULL, *viewed = NULL;
  for (size_t t = 0; t < work->tensors; ++t) counts[t] = work->bytes / 4;
  must(amldist_reducer_create(comm, counts, work->tensors, AMLDIST_FLOAT32, NULL, &own), "create");
  must(amldist_reducer_create(comm, counts, work->tensors, AMLDIST_FLOAT32, NULL, &viewed), "create");
  for (size_t t = 0; t < work->tensors; ++t) {
    if (posix_memalign((void**)&data[t], 64, work->bytes) != 0) exit(1);
    memset(data[t], 0, work->bytes);
    must(amldist_reducer_bind(own, t, data[t]), "bind");
  }
  for (int round = -1; round < rounds; ++round) { /* the first warms up */
    const double base = separate(comm, data, work);
    const double with_own = bucketed(comm, own, work), with_views = bucketed(comm, viewed, work);
    if (round < 0) continue;
    calls[round] = base;
    bound[round] = base / with_own;
    views[round] = base / with_views;
  }
  if (amldist_rank(comm) == 0) {
    const double b = median(bound, rounds), v = median(views, rounds), us = median(calls, rounds);
    if (json) {
      printf("  {\"workload\": \"%s\", \"separate_us\": %.1f, \"own_buffers_x\": %.2f, \"views_x\": %.2f}%s\n",
             work->name, us, b, v, last ? "" : ",");
    } else {
      printf("%-15s %11.0f us %10.2fx (goal %.0fx, %s) %8.2fx (goal %.0fx, %s)\n", work->name, us, b, work->goal_bound,
             b >= work->goal_bound ? "met" : "not met", v, work->goal_views, v >= work->goal_views ? "met" : "not met");
    }
  }
  must(amldist_reducer_free(own), "free");
  must(amldist_reducer_free(viewed), "free");
  for (size_t t = 0; t < work->tensors; ++t) free(data[t]);
}

static int be_rank(int rounds, int json) {
  amldist_comm* comm = NULL;
  const size_t count = sizeof workloads / sizeof *workloads;
  must(amldist_init(&comm, 60000), "init");
  const int speaks = amldist_rank(comm) == 0;
  if (speaks && json) printf("[\n");
  if (speaks && !json)
    printf("%-15s %14s %22s %22s\n", "gradients", "separate", "buckets, own buffers", "buckets, views");
  for (size_t i = 0; i < count; ++i) run(comm, &workloads[i], rounds, json, i + 1 == count);
  if (speaks && json) printf("]\n");
  must(amldist_finalize(comm), "finalize");
  return 0;
}

int main(int argc, char** argv) {
  int ranks = 2, rounds = 15, json = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--json") == 0) json = 1;
    else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) ranks = atoi(argv[++i]);
    else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = atoi(argv[++i]);
  }
  if (ranks < 1 || rounds < 1 || rounds > MOST_ROUNDS) return 2;
  const int rank = start_ranks(ranks);
  return rank >= 0 ? be_rank(rounds, json) : await_ranks(ranks);
}
