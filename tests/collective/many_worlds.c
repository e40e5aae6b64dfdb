/* Worlds made from a store and ended again while others live, each with members of its own: nothing of them is left.
 * Three processes; the argument says how many worlds. */
#include <amldist/amldist.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 3, DEADLINE_MS = 60000, WARM_UP = 40, MOST = 4096 };

static int own; /* number of this process */

#define CHECK(condition)                                                                               \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      fprintf(stderr, "process %d, line %d: %s is false; last error: %s\n", own, __LINE__, #condition, \
              amldist_last_error());                                                                   \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)
#define OK(call) CHECK((call) == AMLDIST_OK)

/* ---- a store in shared memory ---- */
struct entry {
  char key[96], value[512];
  size_t bytes;
  atomic_int is_there;
};
struct table {
  atomic_int used;
  struct entry entries[MOST];
};
static struct table* table;

static int store_set(void* context, const char* key, const void* value, size_t bytes) {
  const int at = atomic_fetch_add(&table->used, 1);
  struct entry* const entry = &table->entries[at];
  if (context != table || at >= MOST || bytes > sizeof entry->value || strlen(key) >= sizeof entry->key) return -1;
  strcpy(entry->key, key);
  memcpy(entry->value, value, bytes);
  entry->bytes = bytes;
  atomic_store(&entry->is_there, 1);
  return 0;
}

static int store_get(void* context, const char* key, void* value, size_t capacity, size_t* bytes, int timeout_ms) {
  for (int waited = 0; context == table && waited < timeout_ms; ++waited) {
    const int used = atomic_load(&table->used);
    for (int at = used < MOST ? used - 1 : MOST - 1; at >= 0; --at) {
      const struct entry* const entry = &table->entries[at];
      if (!atomic_load(&entry->is_there) || strcmp(entry->key, key) != 0 || entry->bytes > capacity) continue;
      memcpy(value, entry->value, entry->bytes);
      *bytes = entry->bytes;
      return 0;
    }
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  return -1;
}

/* ---- what a process has ---- */
static int entries_of(const char* folder) {
  DIR* const dir = opendir(folder);
  int count = 0;
  if (dir == NULL) return 0;
  while (readdir(dir) != NULL) ++count;
  closedir(dir);
  return count;
}

static int lines_of(const char* file) {
  FILE* const in = fopen(file, "r");
  int lines = 0;
  CHECK(in != NULL);
  for (int c = getc(in); c != EOF; c = getc(in)) lines += c == '\n';
  fclose(in);
  return lines;
}

struct possessions {
  int descriptors, threads, mappings, files;
};
static struct possessions possessions(void) {
  return (struct possessions){entries_of("/proc/self/fd"), entries_of("/proc/self/task"), lines_of("/proc/self/maps"),
                              entries_of(getenv("AMLDIST_TRACE_DIR"))};
}

/* A sanitizer keeps freed memory back for a while, and maps more meanwhile. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { counts_mappings = 0 };
#else
enum { counts_mappings = 1 };
#endif

/* At the first look another process may still have a file of the world before. */
static int are_equal(struct possessions a, struct possessions b) {
  return a.descriptors == b.descriptors && a.threads == b.threads && a.files >= b.files &&
         (!counts_mappings || a.mappings == b.mappings);
}

/* ---- worlds ---- */
static int is_in(int group, int process) { return group == PROCESSES || process != group; }

/* Of all processes, or of all but the one with the group's number; NULL where this one is not in it. */
static amldist_comm* make_world(int number, int group, amldist_store* store) {
  amldist_comm* world = NULL;
  char name[32];
  int rank = 0, size = 0;
  for (int p = 0; p < PROCESSES; ++p) {
    if (!is_in(group, p)) continue;
    if (p < own) ++rank;
    ++size;
  }
  if (!is_in(group, own)) return NULL;
  snprintf(name, sizeof name, "world %d", number);
  amldist_config config = {.struct_size = sizeof config, .rank = rank, .size = size, .store = store, .name = name};
  OK(amldist_init_config(&world, &config, DEADLINE_MS));
  CHECK(amldist_rank(world) == rank && amldist_size(world) == size);
  return world;
}

static void use_world(amldist_comm* world, int number) {
  if (world == NULL) return;
  int32_t sum = number, mine = amldist_rank(world), left = -1;
  amldist_request *request, *sending;
  OK(amldist_allreduce(world, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM));
  CHECK(sum == number * amldist_size(world));
  OK(amldist_iallreduce(world, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_MAX, &request));
  const int next = (mine + 1) % amldist_size(world);
  OK(amldist_isend(world, &mine, 1, AMLDIST_INT32, next, &sending));
  OK(amldist_recv(world, &left, 1, AMLDIST_INT32, (mine + amldist_size(world) - 1) % amldist_size(world)));
  OK(amldist_wait(&request));
  OK(amldist_wait(&sending));
}

static void run(int worlds) {
  amldist_store store = {sizeof store, table, store_set, store_get};
  amldist_comm* const all = make_world(-1, PROCESSES, &store);
  amldist_comm *before = NULL, *half = NULL;
  struct possessions first = {0, 0, 0, 0};
  for (int number = 0; number < WARM_UP + worlds; ++number) {
    if (number == WARM_UP) first = possessions();
    amldist_comm* const world = make_world(number, number % (PROCESSES + 1), &store);
    use_world(world, number);
    use_world(before, number); /* the world before lives on beside it */
    if (number % 10 == 0) {
      OK(amldist_split(all, own == 0, 0, &half));
      use_world(half, number);
      OK(amldist_finalize(half));
    }
    OK(amldist_finalize(before));
    before = world;
    if (number % (PROCESSES + 1) == PROCESSES) use_world(all, number);
  }
  /* As many worlds live as at the first look: the one of all, and the last. */
  const struct possessions last = possessions();
  CHECK((WARM_UP + worlds) % (PROCESSES + 1) == WARM_UP % (PROCESSES + 1));
  if (!are_equal(first, last)) {
    fprintf(stderr,
            "process %d: %d worlds later: descriptors %d -> %d, threads %d -> %d, mappings %d -> %d, files %d -> %d\n",
            own, worlds, first.descriptors, last.descriptors, first.threads, last.threads, first.mappings,
            last.mappings, first.files, last.files);
    exit(1);
  }
  OK(amldist_finalize(before));
  OK(amldist_finalize(all));
}

/* MASTER_PORT belongs to the store, and the port beside it to somebody else: both are taken before any world is made.
 */
static int take_port(int port) {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  if (bind(one, (struct sockaddr*)&address, length) != 0 || listen(one, 1) != 0) return 0;
  CHECK(getsockname(one, (struct sockaddr*)&address, &length) == 0);
  return ntohs(address.sin_port);
}

static void set_environment(void) {
  char port[16], folder[] = "/tmp/amldist-many-XXXXXX";
  int master = take_port(0);
  if (master + 48 < 65536) take_port(master + 48);
  snprintf(port, sizeof port, "%d", master);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port, 1);
  CHECK(mkdtemp(folder) != NULL);
  setenv("AMLDIST_TRACE_DIR", folder, 1);
  mallopt(M_ARENA_MAX, 1); /* the number of heaps would depend on how threads meet */
}

int main(int argc, char** argv) {
  const int worlds = argc > 1 ? atoi(argv[1]) : 200;
  CHECK(worlds > 0 && worlds % (PROCESSES + 1) == 0);
  table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(table != MAP_FAILED);
  set_environment();
  pid_t processes[PROCESSES];
  for (own = 0; own < PROCESSES; ++own) {
    processes[own] = fork();
    if (processes[own] == 0) {
      run(worlds);
      exit(0);
    }
  }
  int bad = 0;
  for (int p = 0; p < PROCESSES; ++p) {
    int status = 0;
    while (waitpid(processes[p], &status, 0) < 0 && errno == EINTR) {
    }
    bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  bad += rmdir(getenv("AMLDIST_TRACE_DIR")) != 0; /* it is empty */
  if (bad == 0) printf("%d worlds\n", worlds);
  return bad;
}
