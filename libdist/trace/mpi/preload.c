/* What LD_PRELOAD puts before every program of a traced step: MPI's names, each a jump through a slot. A program that
 * calls none of them is not touched. At the first call, the MPI that the program has loaded is looked up, globally
 * linked or opened locally (as by mpi4py), and with it the part that knows its binary interface. Where there is none,
 * the slots lead straight to MPI.
 *
 * PMPI's names are here too: Open MPI's Fortran calls them and not MPI's, and so do profilers of the user's own. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preloaded_names.h"

const char* const amldist_mpi_names[functions] = {
#define X(name) "PMPI" #name,
#include "function_names.inc"
#undef X
};

__attribute__((visibility("hidden"))) void* amldist_mpi_slots[functions];

/* The library that defines MPI's functions. */
struct Search {
  void* library;
  int is_standard;
};

static int look_at(struct dl_phdr_info* info, size_t size, void* data) {
  struct Search* const search = data;
  (void)size;
  const char* const slash = strrchr(info->dlpi_name, '/');
  const char* const name = slash != NULL ? slash + 1 : info->dlpi_name;
  if (strncmp(name, "libmpi", 6) != 0) return 0;
  void* const library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return 0;
  if (dlsym(library, "PMPI_Comm_create_keyval") == NULL) {
    dlclose(library);
    return 0;
  }
  search->library = library;
  search->is_standard = strncmp(name, "libmpi_abi", 10) == 0;
  return 1;
}

/* No trace of this program was asked for. */
static int is_unwanted;

/* Opens the part beside this file, if it accepts this libmpi. */
static void* open_part(const char* part, void* libmpi) {
  Dl_info own;
  if (dladdr((void*)amldist_mpi_slots, &own) == 0 || own.dli_fname == NULL) return NULL;
  const char* const slash = strrchr(own.dli_fname, '/');
  char* path = NULL;
  const int folder = slash != NULL ? (int)(slash - own.dli_fname) + 1 : 0;
  if (asprintf(&path, "%.*slibamldist-mpitrace-%s.so", folder, own.dli_fname, part) < 0) return NULL;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  free(path);
  if (library == NULL) return NULL;
  int (*use)(void*) = (int (*)(void*))dlsym(library, "amldist_mpitrace_use");
  const int answer = use != NULL ? use(libmpi) : 0;
  if (answer == 1) return library;
  if (answer == 2) is_unwanted = 1;
  return NULL; /* it stays open, because another thread may use it, too */
}

static void* libmpi;
static void* part;

static void look_for_mpi(void) {
  struct Search search = {NULL, 0};
  dl_iterate_phdr(look_at, &search);
  if (search.library == NULL) return;
  libmpi = search.library;
  static const char* const parts[] = {"openmpi", "mpich"};
  if (search.is_standard) part = open_part("standard", libmpi);
  for (size_t i = 0; part == NULL && !is_unwanted && !search.is_standard && i < sizeof parts / sizeof *parts; ++i) {
    part = open_part(parts[i], libmpi);
  }
  if (part == NULL && !is_unwanted)
    fprintf(stderr, "aml-dist: this program's MPI cannot be traced: the program runs without trace\n");
}

/* A library that was bound before absent_names.c could tell it what this MPI lacks. */
static int no_function(void) {
  fprintf(stderr, "aml-dist: this program calls a function that its MPI does not have\n");
  abort();
}

__attribute__((visibility("hidden"))) void* amldist_mpi_resolve(long index) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_for_mpi);
  void* function = part != NULL ? dlsym(part, amldist_mpi_names[index] + 1) : NULL;
  if (function == NULL && libmpi != NULL) function = dlsym(libmpi, amldist_mpi_names[index]);
  /* A substitute for MPI in programs of one process. */
  if (function == NULL) function = dlsym(RTLD_NEXT, amldist_mpi_names[index] + 1);
  if (function == NULL) function = (void*)no_function;
  __atomic_store_n(&amldist_mpi_slots[index], function, __ATOMIC_RELEASE);
  return function;
}

/* A jump that leaves registers and stack as the caller set them. MPI passes no floating-point numbers. */
#if defined(__x86_64__)
#define ASK(index, function) "  lea " function "(%rip), %rsi\n  mov $" index ", %edi\n  jmp amldist_mpi_ask\n"
#define JUMP(label, index)                                                                       \
  "  mov amldist_mpi_slots+8*" index                                                             \
  "(%rip), %rax\n  test %rax, %rax\n  je 1f\n  jmp *%rax\n1:\n"                                  \
  "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  sub $8, %rsp\n" \
  "  mov $" index                                                                                \
  ", %edi\n  call amldist_mpi_resolve\n  add $8, %rsp\n"                                         \
  "  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n  jmp *%rax\n"
#elif defined(__aarch64__)
#define ASK(index, function) "  adr x1, " function "\n  mov x0, #" index "\n  b amldist_mpi_ask\n"
#define JUMP(label, index)                                                                                   \
  "  adrp x16, amldist_mpi_slots\n  add x16, x16, :lo12:amldist_mpi_slots\n  ldr x16, [x16, #8*" index       \
  "]\n"                                                                                                      \
  "  cbz x16, 1f\n  br x16\n1:\n"                                                                            \
  "  stp x29, x30, [sp, #-80]!\n  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n  stp x4, x5, [sp, #48]\n" \
  "  stp x6, x7, [sp, #64]\n  mov x0, #" index                                                               \
  "\n  bl amldist_mpi_resolve\n  mov x16, x0\n"                                                              \
  "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n  ldp x4, x5, [sp, #48]\n  ldp x6, x7, [sp, #64]\n"     \
  "  ldp x29, x30, [sp], #80\n  br x16\n"
#endif

#define TEXT(words) #words
#define NAMES(name) \
  ".globl MPI" TEXT(name) "\n.type MPI" TEXT(name) ", @function\nMPI" TEXT(name) ":\n"       \
  ".globl PMPI" TEXT(name) "\n.type PMPI" TEXT(name) ", @function\nPMPI" TEXT(name) ":\n"

/* The numbers of the functions for the assembler: counted as in the enumeration. */
__asm__(
    ".set .Lcount, 0\n"
#define X(name) ".set .Lindex_" #name ", .Lcount\n.set .Lcount, .Lcount + 1\n"
#include "function_names.inc"
#undef X
    ".text\n"
#define X(name)                                                                           \
  ".Lask_" #name ":\n" ASK(".Lindex_" #name, ".Lcode_" #name) NAMES(name) ".Lcode_" #name \
                                                                          ":\n" JUMP(name, ".Lindex_" #name)
#include "function_names.inc"
#undef X
    ".section .data.rel.ro, \"aw\"\n.balign 8\n.hidden amldist_mpi_askers\n.globl "
    "amldist_mpi_askers\namldist_mpi_askers:\n"
#define X(name) "  .quad .Lask_" #name "\n"
#include "function_names.inc"
#undef X
    ".text\n");
