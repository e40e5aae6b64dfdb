#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core.h"

static int connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -1;
  strcpy(address.sun_path, path);
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection >= 0 && connect(connection, (const struct sockaddr*)&address, sizeof address) != 0) {
    close(connection);
    return -1;
  }
  return connection;
}

static int read_request(FILE* in, struct bench_request* request) {
  char line[256];
  unsigned long long bytes, iterations;
  if (fgets(line, sizeof line, in) == NULL) return 0;
  const int read =
      sscanf(line, "%d %d %d %d %llu %llu %d %d %d", &request->op, &request->type, &request->redop, &request->in_place,
             &bytes, &iterations, &request->off_cache, &request->own_memory, &request->rewrite);
  request->bytes = bytes;
  request->iterations = iterations;
  return read == 9;
}

int bench_serve(const struct bench_library* library, const char* socket_path) {
  const int connection = connect_to(socket_path);
  if (connection < 0) return 1;
  FILE* in = fdopen(connection, "r");
  FILE* out = fdopen(dup(connection), "w");
  if (in == NULL || out == NULL) return 1;
  fprintf(out, "hello %s %d %d\n", library->name, library->rank, library->size);
  fflush(out);
  struct bench_request request;
  while (read_request(in, &request)) {
    const struct bench_result result = bench_measure(library, &request);
    fprintf(out, "%d %.6f %llu\n", result.status, result.microseconds, (unsigned long long)result.wrong);
    fflush(out);
  }
  fclose(in);
  fclose(out);
  return 0;
}
