#define _GNU_SOURCE
#include "import_hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tables {
  const ElfW(Sym) * symbols;
  const char* names;
  const ElfW(Rela) * relocations[2]; /* of data, and of the procedure linkage table */
  size_t bytes[2];
};

/* Most C libraries relocate these addresses when they load the file; some leave them as they are in it. */
static const void* address(const struct link_map* map, ElfW(Addr) value) {
  return (const void*)(value < map->l_addr ? value + map->l_addr : value);
}

static struct tables read_tables(const struct link_map* map) {
  struct tables t = {0};
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        t.symbols = address(map, entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        t.names = address(map, entry->d_un.d_ptr);
        break;
      case DT_RELA:
        t.relocations[0] = address(map, entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        t.bytes[0] = entry->d_un.d_val;
        break;
      case DT_JMPREL:
        t.relocations[1] = address(map, entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        t.bytes[1] = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return t;
}

static int write_slot(uintptr_t slot, void* value) {
  const uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void* const page = (void*)(slot & ~(page_size - 1));
  if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return -1; /* the linker closed it: -z relro -z now */
  *(void**)slot = value;
  return 0;
}

int hook_imports(void* handle, const struct import_hook* hooks, size_t count) {
  struct link_map* map = NULL;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return -1;
  const struct tables t = read_tables(map);
  if (t.symbols == NULL || t.names == NULL) return -1;
  int replaced = 0;
  for (int table = 0; table < 2; ++table) {
    for (size_t i = 0; i < t.bytes[table] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)* const relocation = &t.relocations[table][i];
      const size_t symbol = sizeof(void*) == 8 ? relocation->r_info >> 32 : relocation->r_info >> 8;
      if (symbol == 0 || relocation->r_addend != 0) continue;
      const char* const name = t.names + t.symbols[symbol].st_name;
      for (size_t h = 0; h < count; ++h) {
        if (strcmp(name, hooks[h].name) != 0) continue;
        if (write_slot(map->l_addr + relocation->r_offset, hooks[h].replacement) != 0) return -1;
        ++replaced;
      }
    }
  }
  return replaced;
}
