/* Connections that carry data between nodes have the congestion control that AMLDIST_TCP_CONGESTION asks for: each rank
 * is on a node of its own here, so that it has one to each other rank. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "program.h"

static int has(int descriptor, const char* algorithm) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  return getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && strcmp(name, algorithm) == 0;
}

static const char* awaited(void) {
  static char of_system[16] = "";
  socklen_t length = sizeof of_system - 1;
  const char* asked = getenv("AMLDIST_TCP_CONGESTION");
  const int fresh = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, of_system, &length) == 0);
  close(fresh);
  if (asked != NULL && strcmp(asked, "system") != 0) return asked;
  return asked == NULL && strncmp(of_system, "bbr", 3) == 0 ? "reno" : of_system;
}

static int is_tcp(int descriptor) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  return getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0;
}

/* The first data makes its connections: those of the library's own messages were there before. */
void run_congestion(void) {
  enum { most = 1024 };
  int32_t given[64] = {0}, got[64];
  char was_open[most];
  int found = 0;
  CHECK(size <= 64);
  for (int each = 0; each < most; ++each) was_open[each] = (char)is_tcp(each);
  OK(amldist_alltoall(world, given, got, 1, AMLDIST_INT32));
  for (int each = 0; each < most; ++each) {
    if (was_open[each] || !is_tcp(each)) continue;
    CHECK(has(each, awaited()));
    ++found;
  }
  CHECK(found >= size - 1);
}
