/* Memory of the program's own that is registered: reductions take place in it, its contents stay, and what cannot be
 * registered is refused. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { PAGE = 4096, BYTES = 3 * 1024 * 1024 };

static void refused(int status, int expected, const char* words) {
  if (status == expected && strstr(amldist_last_error(), words) != NULL) return;
  fprintf(stderr, "got %d (%s) instead of %d with '%s'\n", status, amldist_last_error(), expected, words);
  exit(1);
}

static char* pages(size_t bytes) {
  char* const memory = aligned_alloc(PAGE, bytes);
  CHECK(memory != NULL);
  memset(memory, 0, bytes);
  return memory;
}

/* The mapping at an address, as the kernel lists it; or the first whose line contains `words`. */
static uintptr_t find_mapping(uintptr_t address, const char* words, char line[512]) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  uintptr_t begin = 0;
  for (int is_it = 0; !is_it;) {
    CHECK(fgets(line, 512, maps) != NULL);
    char* rest = NULL;
    begin = strtoull(line, &rest, 16);
    const uintptr_t end = strtoull(rest + 1, NULL, 16);
    is_it = words != NULL ? strstr(line, words) != NULL : begin <= address && address < end;
  }
  fclose(maps);
  return begin;
}

static int is_shared(const void* memory) {
  char line[512];
  find_mapping((uintptr_t)memory, NULL, line);
  return strstr(line, "rw-s") != NULL && strstr(line, "memfd:amldist") != NULL;
}

static int shares_memory(void) { return strstr(amldist_provenance(world), "shared memory (") != NULL; }

/* Elements are small enough that every type holds the sums exactly. */
static int input(int who, size_t i) { return who + 1 + (int)(i % 5); }
static int sum(size_t i) {
  int total = 0;
  for (int who = 0; who < size; ++who) total += input(who, i);
  return total;
}

#define REDUCE_AS(ctype, type, send, recv, count)                                               \
  do {                                                                                          \
    for (size_t i = 0; i < (count); ++i) ((ctype*)(send))[i] = (ctype)input(rank, i);           \
    OK(amldist_allreduce(world, send, recv, count, type, AMLDIST_SUM));                         \
    for (size_t i = 0; i < (count); ++i) CHECK(((const ctype*)(recv))[i] == (ctype)sum(i));     \
    if ((void*)(send) != (void*)(recv))                                                         \
      for (size_t i = 0; i < (count); ++i) CHECK(((ctype*)(send))[i] == (ctype)input(rank, i)); \
  } while (0)

static void reduce(void* send, void* recv, size_t most) {
  static const size_t sizes[] = {8, 4096, 8192, 20000, 131072, 1000008, BYTES};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes && sizes[s] <= most; ++s) {
    REDUCE_AS(int32_t, AMLDIST_INT32, send, recv, sizes[s] / sizeof(int32_t));
    REDUCE_AS(double, AMLDIST_FLOAT64, send, recv, sizes[s] / sizeof(double));
    REDUCE_AS(float, AMLDIST_FLOAT32, send, recv, sizes[s] / sizeof(float));
    REDUCE_AS(uint8_t, AMLDIST_UINT8, send, recv, sizes[s]);
  }
}

static void is_reduced_in_place(void) {
  char* const send = pages(BYTES);
  char* const recv = pages(BYTES);
  char* const private = pages(BYTES);
  for (int i = 0; i < BYTES; ++i) send[i] = (char)(i * 7 + rank);
  for (int round = 0; round < 2; ++round) { /* what was deregistered can be registered again */
    for (int i = 0; i < BYTES; ++i) send[i] = (char)(i * 7 + rank);
    OK(amldist_register(world, send, BYTES));
    for (int i = 0; i < BYTES; ++i) CHECK(send[i] == (char)(i * 7 + rank));
    OK(amldist_register(world, recv, BYTES));
    CHECK(is_shared(send) == shares_memory() && is_shared(recv + BYTES - 1) == shares_memory());
    reduce(send, recv, BYTES);
    reduce(recv, recv, BYTES);
    reduce(send + 2 * PAGE + 64, recv + 128, BYTES / 2);
    reduce(send, private, BYTES);
    reduce(private, recv, BYTES);
    OK(amldist_deregister(world, recv));
    CHECK(!is_shared(recv));
    reduce(rank == 0 ? recv : send, rank == 0 ? recv : send, BYTES); /* on rank 0 it is private */
    for (int i = 0; i < BYTES; ++i) send[i] = (char)(i * 11 + rank);
    OK(amldist_deregister(world, send));
    CHECK(!is_shared(send));
    for (int i = 0; i < BYTES; ++i) CHECK(send[i] == (char)(i * 11 + rank));
    reduce(send, recv, BYTES);
  }
  free(send);
  free(recv);
  free(private);
}

static void* map(size_t bytes, int access, int flags) {
  void* const memory = mmap(NULL, bytes, access, flags | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void only_private_memory_is(void) {
  char line[512];
  refused(amldist_register(world, (void*)find_mapping(0, "[stack]", line), PAGE), AMLDIST_EINVAL, "'[stack]'");
  refused(amldist_register(world, (void*)find_mapping(0, "r-xp", line), PAGE), AMLDIST_EINVAL, "from the file '/");
  char* const shared = map(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
  refused(amldist_register(world, shared, PAGE), AMLDIST_EINVAL, "shared memory already");
  char* const several = map(4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  memset(several, 5, 4 * PAGE);
  CHECK(mprotect(several + 2 * PAGE, PAGE, PROT_READ) == 0);
  refused(amldist_register(world, several, 4 * PAGE), AMLDIST_EINVAL, "cannot be read and written (r--p)");
  CHECK(munmap(several + 2 * PAGE, PAGE) == 0);
  refused(amldist_register(world, several, 4 * PAGE), AMLDIST_EINVAL, "not mapped");
  void* ours = NULL;
  OK(amldist_alloc(world, PAGE, &ours));
  refused(amldist_register(world, ours, PAGE), AMLDIST_EINVAL, "shared memory already");
  OK(amldist_free(world, ours));

  OK(amldist_register(world, several, 2 * PAGE));
  refused(amldist_register(world, several, 2 * PAGE), AMLDIST_EINVAL, "is registered already");
  refused(amldist_register(world, several + PAGE, 3 * PAGE), AMLDIST_EINVAL, "is registered already");
  refused(amldist_register(world, several - PAGE, 2 * PAGE), AMLDIST_EINVAL, "is registered already");
  refused(amldist_deregister(world, several + PAGE), AMLDIST_EINVAL, "no memory is registered at this address");
  for (int i = 0; i < 2 * PAGE; ++i) CHECK(several[i] == 5);
  /* The program unmaps it while it is registered, against the rules: what is there then is left alone. */
  CHECK(mmap(several, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == several);
  refused(amldist_deregister(world, several), AMLDIST_EINVAL, "unmapped or remapped");
  for (int i = 0; i < 2 * PAGE; ++i) CHECK(several[i] == 0);
  refused(amldist_deregister(world, several), AMLDIST_EINVAL, "no memory is registered at this address");
  CHECK(munmap(several, 4 * PAGE) == 0 && munmap(shared, PAGE) == 0);
}

static void only_whole_pages_are(void) {
  char* const memory = pages(2 * PAGE);
  refused(amldist_register(world, memory + 8, PAGE), AMLDIST_EINVAL, "whole pages");
  refused(amldist_register(world, memory, PAGE + 8), AMLDIST_EINVAL, "whole pages");
  refused(amldist_register(world, memory, 0), AMLDIST_EINVAL, "whole pages");
  refused(amldist_register(world, NULL, PAGE), AMLDIST_EINVAL, "whole pages");
  refused(amldist_register(world, memory, (size_t)-PAGE), AMLDIST_EINVAL, "whole pages");
  free(memory);
}

/* Like a data loader: it reads what the parent has there, also what is reduced after the fork. */
static void is_read_by_a_child(void) {
  char* const memory = pages(BYTES);
  memset(memory, 3, BYTES);
  OK(amldist_register(world, memory, BYTES));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == 3);
    refused(amldist_deregister(world, memory), AMLDIST_EUNAVAILABLE, "forked from");
    OK(amldist_finalize(world));
    for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == 3);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  reduce(memory, memory, BYTES);
  OK(amldist_deregister(world, memory));
  free(memory);
}

static volatile int stop;
static void* read_on(void* memory) {
  uintptr_t others = 0;
  while (!stop)
    for (int i = 0; i < BYTES; i += PAGE) others += ((volatile const char*)memory)[i] != 9;
  return (void*)others;
}

/* Another thread that reads meanwhile never finds anything else there, or nothing. */
static void is_never_missing(void) {
  char* const memory = pages(BYTES);
  memset(memory, 9, BYTES);
  pthread_t reader;
  stop = 0;
  CHECK(pthread_create(&reader, NULL, read_on, memory) == 0);
  for (int round = 0; round < 50; ++round) {
    OK(amldist_register(world, memory, BYTES));
    OK(amldist_deregister(world, memory));
  }
  stop = 1;
  void* others = NULL;
  CHECK(pthread_join(reader, &others) == 0 && others == NULL);
  free(memory);
}

/* The program keeps memory that is registered when its communicator ends, in whichever way. */
static void outlives_its_communicator(int is_aborted) {
  amldist_comm* part = NULL;
  OK(amldist_split(world, 0, rank, &part));
  char* const memory = pages(BYTES);
  char* const other = pages(BYTES);
  OK(amldist_register(part, memory, BYTES));
  OK(amldist_register(part, other, BYTES));
  if (shares_memory()) refused(amldist_register(world, memory, BYTES), AMLDIST_EINVAL, "shared memory already");
  OK(amldist_allreduce(part, memory, memory, BYTES, AMLDIST_UINT8, AMLDIST_SUM));
  OK(amldist_barrier(world));
  if (is_aborted) OK(amldist_abort(part));
  for (int i = 0; i < BYTES; ++i) memory[i] = other[i] = (char)(i * 13);
  if (is_aborted) OK(amldist_deregister(part, other));
  OK(amldist_finalize(part));
  CHECK(!is_shared(memory) && !is_shared(other));
  for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == (char)(i * 13) && other[i] == (char)(i * 13));
  free(memory);
  free(other);
}

void run_registered(void) {
  is_reduced_in_place();
  only_whole_pages_are();
  if (shares_memory()) only_private_memory_is();
  is_read_by_a_child();
  is_never_missing();
  outlives_its_communicator(0);
  outlives_its_communicator(1);
  OK(amldist_barrier(world));
}
