/* Asks by weak symbols and dlsym() which of MPI's functions there are: linked with a library that stands in for MPI,
 * or, with its path as an argument, not linked with it. Exit status 0: it sees what it would see without the preloaded
 * library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((weak)) int MPI_Init(int* count, char*** words);
__attribute__((weak)) int MPI_Scan_c(void);

static int has(const char* name) { return dlsym(RTLD_DEFAULT, name) != NULL; }

static int is_linked(void) {
  if (MPI_Init == NULL || !has("MPI_Init") || !has("MPI_Barrier")) return 1;
  return MPI_Scan_c != NULL || has("MPI_Scan_c") || has("MPI_Scan") || has("PMPI_Scan") ? 2 : 0;
}

int main(int count, char** words) {
  if (getenv("LD_PRELOAD") == NULL) return 3;
  if (count == 1) return is_linked();
  if (MPI_Init != NULL || MPI_Scan_c != NULL || has("MPI_Init") || has("PMPI_Init")) return 4;
  if (dlopen(words[1], RTLD_NOW | RTLD_GLOBAL) == NULL) return 5;
  if (!has("MPI_Init") || !has("MPI_Barrier")) return 6;
  return has("MPI_Scan") || has("PMPI_Scan") || has("MPI_Scan_c") ? 7 : 0;
}
