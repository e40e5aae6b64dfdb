/* Memory of the program's own that is registered: reductions take place in it, its contents stay, and what cannot be
 * registered is refused. */
#define _GNU_SOURCE /* mremap */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* All that has been registered there, or not: one long message. */
static void reduce_all(void* send, void* recv) {
  REDUCE_AS(int32_t, AMLDIST_INT32, send, recv, BYTES / sizeof(int32_t));
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
    reduce_all(send, private);
    reduce_all(private, recv);
    OK(amldist_deregister(world, recv));
    CHECK(!is_shared(recv));
    reduce(rank == 0 ? recv : send, rank == 0 ? recv : send, BYTES); /* on rank 0 it is private */
    for (int i = 0; i < BYTES; ++i) send[i] = (char)(i * 11 + rank);
    OK(amldist_deregister(world, send));
    CHECK(!is_shared(send));
    for (int i = 0; i < BYTES; ++i) CHECK(send[i] == (char)(i * 11 + rank));
    reduce_all(send, recv);
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

/* What the program has told the kernel of its pages would be lost with them. */
static void marked_memory_is_not(void) {
  static const struct {
    int advice;
    const char* words;
  } marks[] = {{MADV_DONTFORK, "do not inherit it"}, {MADV_WIPEONFORK, "find it empty"}, {MADV_DONTDUMP, "core dumps"}};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; ++i) {
    char* const memory = map(2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    CHECK(madvise(memory + PAGE, PAGE, marks[i].advice) == 0);
    refused(amldist_register(world, memory, 2 * PAGE), AMLDIST_EINVAL, marks[i].words);
    CHECK(munmap(memory, 2 * PAGE) == 0);
  }
  char* const locked = map(2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  const int is_locked = syscall(SYS_mlock, locked, PAGE) == 0; /* AddressSanitizer's mlock() does nothing */
  if (is_locked) refused(amldist_register(world, locked, 2 * PAGE), AMLDIST_EINVAL, "locked (mlock)");
  CHECK(munmap(locked, 2 * PAGE) == 0);
}

/* Against the rules, the program frees a registered buffer, and gets the address again for another one. */
static void may_be_freed(void) {
  for (int round = 0; round < 3; ++round) {
    const int is_in_place = round != 1;
    char* const first = map(2 * (size_t)BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    OK(amldist_register(world, first, BYTES));
    OK(amldist_register(world, first + BYTES, BYTES));
    reduce_all(first + BYTES, first);
    CHECK(munmap(first, 2 * (size_t)BYTES) == 0);
    char* const again = mmap(first, 2 * (size_t)BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(again == first);
    reduce_all(is_in_place ? again : again + BYTES, again);
    OK(amldist_register(world, again + PAGE, BYTES)); /* a part of both */
    reduce_all(again + PAGE, again + PAGE);
    if (round == 2) { /* half of it is other memory, shared like ours */
      CHECK(mmap(again + PAGE, BYTES / 2 / PAGE * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0) == again + PAGE);
      reduce_all(again + PAGE, again + PAGE);
      refused(amldist_deregister(world, again + PAGE), shares_memory() ? AMLDIST_EINVAL : AMLDIST_OK, "");
    } else {
      OK(amldist_deregister(world, again + PAGE));
    }
    CHECK(munmap(again, 2 * (size_t)BYTES) == 0);
  }
}

/* realloc() may move it: what was registered goes along, and is the program's as before. */
static void may_be_moved(void) {
  char* memory = map(BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  OK(amldist_register(world, memory, BYTES));
  reduce_all(memory, memory);
  for (int i = 0; i < BYTES; ++i) memory[i] = (char)(i * 3);
  char* const moved = mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map(BYTES, PROT_NONE, MAP_PRIVATE));
  CHECK(moved != MAP_FAILED);
  for (int i = 0; i < BYTES; ++i) CHECK(moved[i] == (char)(i * 3));
  reduce_all(moved, moved);
  if (shares_memory()) refused(amldist_deregister(world, memory), AMLDIST_EINVAL, "unmapped or remapped");
  reduce_all(moved, moved);
  CHECK(munmap(moved, BYTES) == 0);
}

/* Every other collective takes registered buffers, too. */
static void serves_all_collectives(void) {
  enum { PART = 64 * 1024 };
  const size_t all = (size_t)size * PART;
  char* const one = pages(PART);
  char* const several = pages(all);
  char* const others = pages(all);
  OK(amldist_register(world, one, PART));
  OK(amldist_register(world, several, all));
  OK(amldist_register(world, others, all));
  for (int root = 0; root < size; ++root) {
    memset(one, rank == root ? 40 + root : 0, PART);
    OK(amldist_broadcast(world, one, PART, AMLDIST_INT8, root));
    for (int i = 0; i < PART; ++i) CHECK(one[i] == 40 + root);
    memset(one, rank + 1, PART);
    OK(amldist_gather(world, one, several, PART, AMLDIST_INT8, root));
    for (size_t i = 0; rank == root && i < all; ++i) CHECK(several[i] == (char)(i / PART + 1));
    OK(amldist_scatter(world, several, others, PART, AMLDIST_INT8, root));
    CHECK(rank != root || others[PART - 1] == rank + 1);
    OK(amldist_reduce(world, one, others, PART, AMLDIST_INT8, AMLDIST_MAX, root));
    for (int i = 0; rank == root && i < PART; ++i) CHECK(others[i] == size);
  }
  OK(amldist_allgather(world, one, several, PART, AMLDIST_INT8));
  for (size_t i = 0; i < all; ++i) CHECK(several[i] == (char)(i / PART + 1));
  OK(amldist_alltoall(world, several, others, PART, AMLDIST_INT8));
  for (size_t i = 0; i < all; ++i) CHECK(others[i] == rank + 1);
  OK(amldist_reduce_scatter(world, several, one, PART, AMLDIST_INT8, AMLDIST_SUM));
  for (int i = 0; i < PART; ++i) CHECK(one[i] == (char)(size * (rank + 1)));
  amldist_request* receiving = NULL;
  OK(amldist_irecv(world, others, PART, AMLDIST_INT8, (rank + size - 1) % size, &receiving));
  OK(amldist_send(world, one, PART, AMLDIST_INT8, (rank + 1) % size));
  OK(amldist_wait(&receiving));
  for (int i = 0; i < PART; ++i) CHECK(others[i] == (char)(size * ((rank + size - 1) % size + 1)));
  OK(amldist_deregister(world, one));
  OK(amldist_deregister(world, several));
  OK(amldist_deregister(world, others));
  free(one);
  free(several);
  free(others);
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

/* A child has a copy, like of any memory of its parent: neither sees what the other writes. */
static void is_copied_to_a_child(void) {
  char* const memory = pages(BYTES);
  char* const freed = map(BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  memset(memory, 3, BYTES);
  OK(amldist_register(world, memory, BYTES));
  OK(amldist_register(world, freed, BYTES));
  CHECK(munmap(freed, BYTES) == 0);
  int go[2];
  CHECK(pipe(go) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char byte = 0;
    CHECK(close(go[1]) == 0 && read(go[0], &byte, 1) == 0); /* until the parent has written */
    for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == 3);
    memset(memory, 7, BYTES);
    refused(amldist_deregister(world, memory), AMLDIST_EUNAVAILABLE, "forked from");
    OK(amldist_finalize(world));
    for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == 7);
    free(memory);
    _exit(0);
  }
  memset(memory, 5, BYTES);
  CHECK(close(go[0]) == 0 && close(go[1]) == 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int i = 0; i < BYTES; ++i) CHECK(memory[i] == 5);
  CHECK(is_shared(memory) == shares_memory());
  reduce_all(memory, memory);
  OK(amldist_deregister(world, memory));
  free(memory);
}

static atomic_int stop;
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

/* Where free() kept the pages of a buffer that is registered, they still are. */
static int registers(void* memory, size_t bytes) {
  if (amldist_register(world, memory, bytes) == AMLDIST_OK) return 1;
  CHECK(strstr(amldist_last_error(), "is registered already") != NULL);
  return 0;
}

#ifdef __SANITIZE_ADDRESS__
enum { MAY_FREE_REGISTERED = 0 }; /* what is freed stays mapped there, and copying it back is an error */
#else
enum { MAY_FREE_REGISTERED = 1 };
#endif

/* Buffers that come and go in any order, used whether they are registered or not, and freed in either case. */
static void lives_of_buffers(unsigned seed) {
  enum { BUFFERS = 4, STEPS = 100 };
  char* buffers[BUFFERS] = {NULL};
  int are_registered[BUFFERS] = {0};
  for (int step = 0; step < STEPS; ++step) { /* each rank does other things, but all reduce as much */
    const int which = step % BUFFERS;
    const size_t bytes = (size_t)(which + 1) * BYTES / BUFFERS / PAGE * PAGE;
    const int choice = rand_r(&seed) % 4;
    char** const buffer = &buffers[which];
    if (*buffer == NULL) *buffer = pages(bytes);
    if (choice == 0 && !are_registered[which]) are_registered[which] = registers(*buffer, bytes);
    if (choice == 1 && are_registered[which]) {
      OK(amldist_deregister(world, *buffer));
      are_registered[which] = 0;
    }
    REDUCE_AS(int32_t, AMLDIST_INT32, *buffer, *buffer, bytes / sizeof(int32_t));
    if (choice != 2) continue;
    if (are_registered[which] && !MAY_FREE_REGISTERED) OK(amldist_deregister(world, *buffer));
    free(*buffer);
    *buffer = NULL;
    are_registered[which] = 0;
  }
  for (int i = 0; i < BUFFERS; ++i) {
    if (are_registered[i]) OK(amldist_deregister(world, buffers[i]));
    free(buffers[i]);
  }
}

static amldist_comm* last_of_all;
static char* last_memory;
static void finalize_last_of_all(void) {
  /* An error has its sentence here, too. */
  if (amldist_register(last_of_all, NULL, PAGE) != AMLDIST_EINVAL || *amldist_last_error() == '\0') _exit(1);
  const int status = amldist_finalize(last_of_all);
  for (int i = 0; i < BYTES; ++i)
    if (last_memory[i] != (char)(i * 5)) _exit(1);
  if (status != AMLDIST_OK || is_shared(last_memory)) _exit(1);
}

/* As a static object does that was made before: after what the library itself keeps until the exit. */
static void may_be_finalized_at_exit(void) {
  CHECK(atexit(finalize_last_of_all) == 0);
  OK(amldist_split(world, 0, rank, &last_of_all));
  last_memory = pages(BYTES);
  OK(amldist_register(last_of_all, last_memory, BYTES));
  for (int i = 0; i < BYTES; ++i) last_memory[i] = (char)(i * 5);
}

/* Like a kernel before 6.11, which cannot be asked about a mapping. */
void run_registered_unasked(void) {
  const unsigned procmap_query = 0xC0686611; /* _IOWR('f', 17, struct procmap_query) */
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, procmap_query, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
  is_reduced_in_place();
  may_be_freed();
  may_be_moved();
  lives_of_buffers(2 + (unsigned)rank);
  OK(amldist_barrier(world));
}

void run_registered(void) {
  may_be_finalized_at_exit();
  is_reduced_in_place();
  only_whole_pages_are();
  if (shares_memory()) {
    only_private_memory_is();
    marked_memory_is_not();
  }
  is_copied_to_a_child();
  is_never_missing();
  may_be_freed();
  may_be_moved();
  serves_all_collectives();
  outlives_its_communicator(0);
  outlives_its_communicator(1);
  lives_of_buffers(1 + (unsigned)rank); /* the last: free() keeps pages that are registered */
  OK(amldist_barrier(world));
}
