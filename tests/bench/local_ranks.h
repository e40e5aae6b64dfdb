/* Ranks of a benchmark that starts itself on this machine, and what they measure with. */
#ifndef LOCAL_RANKS_H
#define LOCAL_RANKS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static inline int ascending(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return left < right ? -1 : left > right;
}

/* Sorts the samples. */
static inline double median(double* samples, int count) {
  qsort(samples, (size_t)count, sizeof *samples, ascending);
  return samples[count / 2];
}

static inline int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(probe, (struct sockaddr*)&address, length) != 0) return 0;
  getsockname(probe, (struct sockaddr*)&address, &length);
  close(probe);
  return ntohs(address.sin_port);
}

static inline void set_number(const char* name, int value) {
  char digits[16];
  snprintf(digits, sizeof digits, "%d", value);
  setenv(name, digits, 1);
}

/* The rank that this process is; -1 in the one that started them. */
static inline int start_ranks(int ranks) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("AMLDIST_BOOTSTRAP", "tcp", 1);
  set_number("MASTER_PORT", free_port());
  set_number("WORLD_SIZE", ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    set_number("RANK", rank);
    return rank;
  }
  return -1;
}

/* 0: all have ended well. */
static inline int await_ranks(int ranks) {
  int bad = 0;
  for (int rank = 0, status = 0; rank < ranks; ++rank) bad |= wait(&status) < 0 || status != 0;
  return bad;
}

#endif
