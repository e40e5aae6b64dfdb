/* Functions that a program's MPI lacks must look absent: programs ask for them by weak symbols and dlsym(), and do
 * without them. So a name of the preloaded library is there only where another loaded object defines it, too.
 *
 * The dynamic linker relocates the program last. Just before, it relocates this library, and with it calls start(),
 * which changes the library's own table of symbols in memory:
 * - An MPI is loaded, because the program is linked with it: names that it lacks are taken out.
 * - Else one may come later by dlopen(), as with mpi4py: each name becomes an indirect function (STT_GNU_IFUNC), for
 * which
 *   the linker asks whenever it binds it.
 * Libraries that the program is linked with were bound before, and see all names; they call what they were built for.
 */
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preloaded_names.h"

typedef ElfW(Sym) Symbol;

struct Object {
  Symbol* symbols;
  const char* strings;
  const uint32_t* gnu_hash;
  const uint32_t* hash; /* of System V, where there is no other */
};

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static int is_own(const struct dl_phdr_info* info) { return info->dlpi_addr == (ElfW(Addr)) & __ehdr_start; }

/* The parts of the recorder define all names, too. */
static int is_part(const struct dl_phdr_info* info) {
  return info->dlpi_name != NULL && strstr(info->dlpi_name, "/libamldist-mpitrace-") != NULL;
}

static struct Object object_of(const struct dl_phdr_info* info) {
  struct Object object = {0};
  const ElfW(Dyn)* entry = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  for (; entry != NULL && entry->d_tag != DT_NULL; ++entry) {
    /* The linker has added the object's address, except where the table is read-only, as in the vDSO. */
    const ElfW(Addr) given = entry->d_un.d_ptr;
    const ElfW(Addr) address = given < info->dlpi_addr ? given + info->dlpi_addr : given;
    if (entry->d_tag == DT_SYMTAB) object.symbols = (Symbol*)address;
    if (entry->d_tag == DT_STRTAB) object.strings = (const char*)address;
    if (entry->d_tag == DT_GNU_HASH) object.gnu_hash = (const uint32_t*)address;
    if (entry->d_tag == DT_HASH) object.hash = (const uint32_t*)address;
  }
  return object;
}

static uint32_t gnu_hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

static Symbol* if_defined(const struct Object* object, uint32_t index, const char* name) {
  Symbol* const symbol = &object->symbols[index];
  const int is_defined = symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0;
  return is_defined && strcmp(object->strings + symbol->st_name, name) == 0 ? symbol : NULL;
}

static Symbol* find_by_gnu_hash(const struct Object* object, const char* name) {
  const uint32_t* const table = object->gnu_hash;
  const uint32_t buckets = table[0], first = table[1], words = table[2], hash = gnu_hash_of(name);
  const ElfW(Addr)* const filter = (const ElfW(Addr)*)(table + 4);
  const uint32_t* const bucket = (const uint32_t*)(filter + words);
  const uint32_t* const chain = bucket + buckets;
  const unsigned bits = 8 * sizeof *filter;
  const ElfW(Addr) word = buckets != 0 && words != 0 ? filter[hash / bits % words] : 0;
  if ((word >> hash % bits & word >> (hash >> table[3]) % bits & 1) == 0) return NULL;
  uint32_t index = bucket[hash % buckets];
  if (index < first) return NULL;
  for (;; ++index) {
    const uint32_t each = chain[index - first];
    Symbol* const symbol = (each | 1) == (hash | 1) ? if_defined(object, index, name) : NULL;
    if (symbol != NULL || (each & 1) != 0) return symbol;
  }
}

static Symbol* find_symbol(const struct Object* object, const char* name) {
  if (object->symbols == NULL || object->strings == NULL) return NULL;
  if (object->gnu_hash != NULL) return find_by_gnu_hash(object, name);
  for (uint32_t i = 0; object->hash != NULL && i < object->hash[1]; ++i) {
    Symbol* const symbol = if_defined(object, i, name);
    if (symbol != NULL) return symbol;
  }
  return NULL;
}

static int defines_name(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  if (is_own(info) || is_part(info)) return 0;
  const struct Object object = object_of(info);
  return find_symbol(&object, data) != NULL;
}

static int is_elsewhere(const char* name) { return dl_iterate_phdr(defines_name, (void*)name); }

/* A stand-in for MPI has no PMPI, so MPI's own name counts. */
void* amldist_mpi_ask(long index, void* function) {
  return is_elsewhere(amldist_mpi_names[index] + 1) ? function : NULL;
}

/* Which names other objects define. */
struct Presence {
  char is_there[functions];
  int any;
};

static int look_for_names(struct dl_phdr_info* info, size_t size, void* data) {
  struct Presence* const presence = data;
  (void)size;
  if (is_own(info) || is_part(info)) return 0;
  const struct Object object = object_of(info);
  if (find_symbol(&object, "MPI_Init") == NULL) return 0;
  presence->any = 1;
  for (int i = 0; i < functions; ++i) presence->is_there[i] |= find_symbol(&object, amldist_mpi_names[i] + 1) != NULL;
  return 0;
}

static int find_own(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  if (!is_own(info)) return 0;
  *(struct Object*)data = object_of(info);
  return 1;
}

/* With the rights of the pages of the table. */
static int protect(const struct Object* own, int rights) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (uintptr_t)own->symbols & ~(page - 1);
  return mprotect((void*)begin, (uintptr_t)own->strings - begin, rights); /* the strings follow the symbols */
}

static void change(Symbol* symbol, int index, const struct Presence* presence) {
  if (symbol == NULL || presence->is_there[index]) return;
  symbol->st_value = presence->any ? 0 : (ElfW(Addr))amldist_mpi_askers[index] - (ElfW(Addr)) & __ehdr_start;
  if (!presence->any) symbol->st_info = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC);
}

static void change_names(void) {
  struct Presence presence = {0};
  struct Object own = {0};
  dl_iterate_phdr(look_for_names, &presence);
  dl_iterate_phdr(find_own, &own);
  if (own.strings < (const char*)own.symbols || protect(&own, PROT_READ | PROT_WRITE) != 0) return;
  for (int i = 0; i < functions; ++i) {
    change(find_symbol(&own, amldist_mpi_names[i]), i, &presence);
    change(find_symbol(&own, amldist_mpi_names[i] + 1), i, &presence);
  }
  protect(&own, PROT_READ);
}

static void nothing(void) {}

/* Called by the dynamic linker when it relocates this library: once, before it relocates the program. */
static void (*start(void))(void) {
  change_names();
  return nothing;
}
static void started(void) __attribute__((ifunc("start")));
__attribute__((constructor)) static void keep_start(void) { started(); }
