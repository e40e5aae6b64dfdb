/* A program of one process, with a library that stands in for MPI. Exit status 0: its functions were called. */
int MPI_Init(int* count, char*** words);
int MPI_Barrier(int comm);
int MPI_Finalize(void);

int main(int count, char** words) {
  const int stands_in = 7;
  if (MPI_Init(&count, &words) != 0) return 1;
  if (MPI_Barrier(stands_in) != stands_in) return 2;
  return MPI_Finalize();
}
