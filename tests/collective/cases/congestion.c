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

static const char* of_system(void) {
  static char name[16] = "";
  socklen_t length = sizeof name - 1;
  const int fresh = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  close(fresh);
  return name;
}

static const char* awaited(void) {
  const char* asked = getenv("AMLDIST_TCP_CONGESTION");
  if (asked != NULL && strcmp(asked, "system") != 0) return asked;
  return asked == NULL && strncmp(of_system(), "bbr", 3) == 0 ? "reno" : of_system();
}

static int is_tcp(int descriptor) {
  char name[16] = "";
  socklen_t length = sizeof name - 1;
  return getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0;
}

/* Connections for the library's own messages keep the system's algorithm, so only where data should have it, too, none
 * may have another one. */
void run_congestion(void) {
  int32_t given[64] = {0}, got[64];
  int found = 0, others = 0;
  CHECK(size <= 64);
  OK(amldist_alltoall(world, given, got, 1, AMLDIST_INT32));
  for (int each = 3; each < 1024; ++each) {
    if (has(each, awaited())) ++found;
    else if (is_tcp(each)) ++others;
  }
  CHECK(found >= size - 1);
  if (strcmp(awaited(), of_system()) == 0) CHECK(others == 0);
}
