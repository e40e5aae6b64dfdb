/* What programs of one process are linked with where there is no MPI. */
int MPI_Init(int* count, char*** words);
int MPI_Barrier(int comm);
int MPI_Finalize(void);

int MPI_Init(int* count, char*** words) { return count == 0 || words == 0; }
int MPI_Barrier(int comm) { return comm; }
int MPI_Finalize(void) { return 0; }
