/* Worlds that the caller describes: two processes, in several of them at a time. */
#include <amldist/amldist.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, DEADLINE_MS = 30000 };

static const char secret[] = "a secret of thirty-two characters or more";
static int rank;
static int failures;

#define CHECK(condition, ...)                                                \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                          \
      fputc('\n', stderr);                                                   \
      ++failures;                                                            \
    }                                                                        \
  } while (0)

/* ---- a store of files ---- */

static char folder[] = "/tmp/amldist-worlds-XXXXXX";
static int sets;

static void path_of(char* path, size_t size, const char* key) {
  char flat[128];
  snprintf(flat, sizeof flat, "%s", key);
  for (char* c = flat; *c != '\0'; ++c) *c = *c == '/' ? '_' : *c;
  snprintf(path, size, "%s/%s", folder, flat);
}

static int file_set(void* context, const char* key, const void* value, size_t bytes) {
  ++sets;
  char path[256];
  path_of(path, sizeof path, key);
  char fresh[300];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  const int file = open(fresh, O_WRONLY | O_CREAT | O_EXCL, 0600);
  const int written = file >= 0 && write(file, value, bytes) == (ssize_t)bytes;
  if (file >= 0) close(file);
  return context == folder && written && rename(fresh, path) == 0 ? 0 : -1;
}

static int file_get(void* context, const char* key, void* value, size_t capacity, size_t* bytes, int timeout_ms) {
  char path[256];
  path_of(path, sizeof path, key);
  for (int waited = 0; waited < timeout_ms; ++waited) {
    const int file = open(path, O_RDONLY);
    if (file < 0) {
      nanosleep(&(struct timespec){0, 1000000}, NULL);
      continue;
    }
    const ssize_t got = read(file, value, capacity);
    close(file);
    *bytes = got < 0 ? 0 : (size_t)got;
    return context == folder && got > 0 ? 0 : -2;
  }
  return -1;
}

static amldist_store store_of_files(void) { return (amldist_store){sizeof(amldist_store), folder, file_set, file_get}; }

/* ---- what a world is good for ---- */

static void check_world(amldist_comm* world, int status, const char* trust) {
  CHECK(status == AMLDIST_OK, "%s", amldist_last_error());
  if (status != AMLDIST_OK) return;
  CHECK(amldist_rank(world) == rank && amldist_size(world) == RANKS, "it is rank %d", amldist_rank(world));
  CHECK(strstr(amldist_provenance(world), trust) != NULL, "%s", amldist_provenance(world));
  CHECK(strstr(amldist_provenance(world), secret) == NULL, "the provenance tells the secret");
  int32_t sum = rank + 1;
  CHECK(amldist_allreduce(world, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM) == AMLDIST_OK, "%s", amldist_last_error());
  CHECK(sum == 3, "the sum is %d", sum);
}

static void run_worlds(const int* ports) {
  amldist_comm* worlds[4] = {NULL, NULL, NULL, NULL};
  amldist_config config = {.struct_size = sizeof config,
                           .rank = rank,
                           .size = RANKS,
                           .address = "127.0.0.1",
                           .port = ports[0],
                           .secret = secret,
                           .name = "first"};
  int status = amldist_init_config(&worlds[0], &config, DEADLINE_MS);
  check_world(worlds[0], status, "authenticated");
  config.port = ports[1];
  config.name = "second";
  status = amldist_init_config(&worlds[1], &config, DEADLINE_MS);
  check_world(worlds[1], status, "authenticated");
  const amldist_store store = store_of_files();
  status = amldist_init_store(&worlds[2], &store, rank, RANKS, DEADLINE_MS);
  check_world(worlds[2], status, "unproven");
  CHECK(sets == (rank == 0 ? 1 : 0), "%d values were set", sets);
  const amldist_config stored = {.struct_size = sizeof stored,
                                 .rank = rank,
                                 .size = RANKS,
                                 .secret = secret,
                                 .store = &store,
                                 .name = "with a secret"};
  status = amldist_init_config(&worlds[3], &stored, DEADLINE_MS);
  check_world(worlds[3], status, "authenticated");
  for (int world = 0; world < 4; ++world) {
    int32_t sum = world;
    status = amldist_allreduce(worlds[world], &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM);
    CHECK(status == AMLDIST_OK && sum == 2 * world, "world %d: %s", world, amldist_last_error());
  }
  for (int world = 0; world < 4; ++world)
    CHECK(amldist_finalize(worlds[world]) == AMLDIST_OK, "%s", amldist_last_error());
}

/* ---- what cannot be right ---- */

static void refuse(amldist_config config, const char* why) {
  amldist_comm* world = (amldist_comm*)&config;
  CHECK(amldist_init_config(&world, &config, 1000) == AMLDIST_EINVAL, "it is accepted, not refused for %s", why);
  CHECK(world == NULL, "the world is not NULL");
  CHECK(strstr(amldist_last_error(), why) != NULL, "%s", amldist_last_error());
  CHECK(config.secret == NULL || strstr(amldist_last_error(), config.secret) == NULL, "%s", amldist_last_error());
}

static void run_nonsense(void) {
  amldist_comm* world = NULL;
  CHECK(amldist_init_config(&world, NULL, 1000) == AMLDIST_EINVAL, "NULL");
  CHECK(amldist_init_config(NULL, NULL, 1000) == AMLDIST_EINVAL, "NULL");
  const amldist_config good = {.struct_size = sizeof good, .rank = 0, .size = 1, .address = "127.0.0.1", .port = 1};
  amldist_config config = good;
  config.struct_size = 8;
  refuse(config, "struct_size");
  config = good;
  config.rank = 1;
  refuse(config, "rank=1 is not below size=1");
  config.size = 0;
  refuse(config, "rank=1 of size=0");
  config.rank = -1;
  refuse(config, "rank=-1");
  config = good;
  config.port = 65536;
  refuse(config, "port=65536");
  config = good;
  config.secret = "hunter2";
  refuse(config, "the secret has 7 characters");
  config = good;
  char name[200];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  config.name = name;
  refuse(config, "the name has more than 128 characters");
  amldist_store store = store_of_files();
  config = good;
  config.store = &store;
  refuse(config, "a store and an address or port are both given");
  config = (amldist_config){.struct_size = sizeof config, .size = 1, .store = &store};
  store.get = NULL;
  refuse(config, "the store lacks set or get");
  store = store_of_files();
  store.struct_size = 1;
  refuse(config, "struct_size");
  CHECK(amldist_init_store(&world, NULL, 0, 2, 1000) == AMLDIST_EINVAL, "NULL");
  store = store_of_files();
  CHECK(amldist_init_store(&world, &store, 0, 0, 1000) == AMLDIST_EINVAL, "a size of 0");
  CHECK(amldist_init_store(&world, &store, 2, 2, 1000) == AMLDIST_EINVAL, "a rank of 2 in 2");
}

/* A program of the first headers, whose amldist_config ended before the label: what lies behind it is not read. */
static void run_older_caller(void) {
  amldist_config config = {.struct_size = offsetof(amldist_config, label), .rank = 0, .size = 1};
  config.label = (const char*)1;
  amldist_comm* world = NULL;
  CHECK(amldist_init_config(&world, &config, DEADLINE_MS) == AMLDIST_OK, "%s", amldist_last_error());
  CHECK(amldist_finalize(world) == AMLDIST_OK, "%s", amldist_last_error());
  config.struct_size -= 1;
  refuse(config, "struct_size");
}

static int free_port(void) {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(one, (struct sockaddr*)&address, length) != 0 || getsockname(one, (struct sockaddr*)&address, &length) != 0)
    abort();
  close(one);
  return ntohs(address.sin_port);
}

int main(void) {
  unsetenv("AMLDIST_STEP_SECRET");
  if (mkdtemp(folder) == NULL) return 1;
  run_nonsense();
  run_older_caller();
  const int ports[2] = {free_port(), free_port()};
  pid_t ranks[RANKS];
  for (int i = 0; i < RANKS; ++i) {
    ranks[i] = fork();
    if (ranks[i] != 0) continue;
    rank = i;
    failures = 0;
    run_worlds(ports);
    _exit(failures == 0 ? 0 : 1);
  }
  for (int i = 0; i < RANKS; ++i) {
    int status = 0;
    if (waitpid(ranks[i], &status, 0) != ranks[i] || status != 0) ++failures;
  }
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  if (system(command) != 0) ++failures;
  return failures == 0 ? 0 : 1;
}
